"""The view of a local cluster: its supervisor's state, combined with the answers of its nodes.

The supervisor knows the processes; everything else is requested from the nodes in Kafka's protocol.
The requests run in parallel with a short timeout: a cluster with paused nodes must be shown, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from client.addresses import Address
from client.admin import QUORUM_REQUEST, ExplainedPartition
from kraftbox.cli.clusters import not_running
from kraftbox.cli.explanation import waits
from kraftbox.cli.output import CommandFailed
from kraftbox.launcher import control
from kraftbox.launcher.place import ClusterPlace
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.describe_quorum import DescribeQuorumResponse
from protocol.messages.explain_election import ExplainElectionRequest
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.schema import Request, Response
from protocol.transport.client import Connection

T = TypeVar("T")
R = TypeVar("R", bound=Response)
Quorum = DescribeQuorumResponse.PartitionData

ANSWER_MS = 300.0
"""Total time for the nodes to answer, in ms."""
WAITING_MAX = 10
"""The number of partitions without leader to explain."""


class BrokerAnswer(NamedTuple):
    """One broker's view of the cluster."""

    broker_id: int
    address: Address
    cluster: DescribeClusterResponse
    metadata: MetadataResponse


class Answers(NamedTuple):
    """The nodes' answers; None or empty if no node answered in time."""

    quorum: Quorum | None = None
    broker: BrokerAnswer | None = None
    waiting: Sequence[ExplainedPartition] = ()


def snapshot(place: ClusterPlace, answer_ms: float = ANSWER_MS) -> dict[str, Any]:
    """Return the current view of the cluster as JSON values. Raises CommandFailed."""
    try:
        known = control.status(place)
    except control.NotRunning as error:
        raise not_running(error) from None
    except control.RequestFailed as error:
        raise CommandFailed(str(error)) from None
    return assemble(known, asyncio.run(ask_nodes(known["nodes"], answer_ms)), datetime.now(UTC))


# --- requests to the nodes --------------------------------------------------------------------


def addresses(nodes: Sequence[Mapping[str, Any]], *, controllers: bool) -> list[Address]:
    """Return the listeners of running processes."""
    return [address for _, address in _listeners(nodes, controllers=controllers)]


def _listeners(
    nodes: Sequence[Mapping[str, Any]], *, controllers: bool
) -> list[tuple[int, Address]]:
    """Return node IDs and listeners of running processes."""
    found = []
    for node in nodes:
        if node["state"] not in ("starting", "running") or node.get("cutOff"):
            continue
        for entry in node["listeners"].split(","):
            name, _, address = entry.partition("://")
            host, _, port = address.rpartition(":")
            if (name == "CONTROLLER") == controllers and port != "0":
                found.append((node["id"], (host.strip("[]") or "localhost", int(port))))
    return found


async def ask_nodes(nodes: Sequence[Mapping[str, Any]], answer_ms: float) -> Answers:
    """Request the view of all running nodes in parallel; ignore answers after `answer_ms`.

    A node that was cut off may still believe that it is the leader, of an older epoch: the highest
    epoch wins. A broker may lag behind: the broker with the highest metadata log end offset wins.
    """
    deadline = time.monotonic() + answer_ms / 1000
    brokers = _listeners(nodes, controllers=False)
    # A single node has no reachable controller listener; its broker forwards the request.
    of_quorum = addresses(nodes, controllers=True) or [address for _, address in brokers]
    quorums = [asyncio.ensure_future(_ask_quorum(address, answer_ms)) for address in of_quorum]
    requests = [asyncio.ensure_future(_ask_broker(*broker, answer_ms)) for broker in brokers]
    if quorums or requests:
        await asyncio.wait([*quorums, *requests], timeout=answer_ms / 1000)
    quorum = max(_done(quorums), key=lambda found: found.leader_epoch, default=None)
    reached = {} if quorum is None else {o.replica_id: o.log_end_offset for o in _replicas(quorum)}
    broker = max(_done(requests), key=lambda one: reached.get(one.broker_id, -1), default=None)
    if broker is None:
        return Answers(quorum)
    left_ms = max(0.0, deadline - time.monotonic()) * 1000
    return Answers(quorum, broker, await _ask_waiting(broker, left_ms))


def _replicas(quorum: Quorum) -> list[DescribeQuorumResponse.ReplicaState]:
    return [*quorum.current_voters, *quorum.observers]


def _done(requests: Sequence[asyncio.Future[T | None]]) -> list[T]:
    """Return the results that arrived in time and cancel the other requests."""
    for one in requests:
        one.cancel()
    return [
        answer
        for one in requests
        if one.done() and not one.cancelled() and (answer := one.result()) is not None
    ]


async def _ask_broker(broker_id: int, address: Address, answer_ms: float) -> BrokerAnswer | None:
    async def both(connection: Connection) -> BrokerAnswer:
        request = DescribeClusterRequest(include_fenced_brokers=True)
        cluster = await connection.request(request, answer_ms)
        metadata = await connection.request(MetadataRequest(topics=None), answer_ms)
        return BrokerAnswer(broker_id, address, cluster, metadata)

    found = await _asked(address, answer_ms, both)
    return None if found is None or found.cluster.error_code else found


async def _ask_waiting(broker: BrokerAnswer, answer_ms: float) -> list[ExplainedPartition]:
    """Explain why partitions have no leader: the first WAITING_MAX, or none without an answer."""
    leaderless = [
        (topic.name or "", partition.partition_index)
        for topic in broker.metadata.topics
        for partition in topic.partitions
        if partition.leader_id < 0
    ]
    if not leaderless:
        return []
    request = ExplainElectionRequest(
        topics=[
            ExplainElectionRequest.Topic(name=topic, partitions=[index])
            for topic, index in sorted(leaderless)[:WAITING_MAX]
        ]
    )
    reply = await _ask(broker.address, request, answer_ms)
    return [] if reply is None else [one for one in reply.partitions if one.waits is not None]


async def _ask_quorum(address: Address, answer_ms: float) -> Quorum | None:
    reply = await _ask(address, QUORUM_REQUEST, answer_ms)
    if reply is None or reply.error_code or not reply.topics:
        return None
    partition = reply.topics[0].partitions[0]
    return partition if partition.error_code == ErrorCode.NONE else None


async def _ask(address: Address, request: Request[R], answer_ms: float) -> R | None:
    return await _asked(address, answer_ms, lambda connection: connection.request(request))


async def _asked(
    address: Address, answer_ms: float, ask: Callable[[Connection], Coroutine[Any, Any, T]]
) -> T | None:
    """Connect and send requests; return None if the node does not answer in time."""
    try:
        async with asyncio.timeout(answer_ms / 1000):
            connection = await Connection.connect(*address, "kraftbox-status", answer_ms)
            try:
                return await ask(connection)
            finally:
                connection.abort()
    except (OSError, ApiError, ProtocolError):
        return None


# --- the document -----------------------------------------------------------------------------


def assemble(known: Mapping[str, Any], answers: Answers, now: datetime) -> dict[str, Any]:
    """Combine the supervisor's view and the nodes' answers.

    Values that no node reported are null.
    """
    quorum, broker = answers.quorum, answers.broker
    metadata = broker.metadata if broker else None
    topics = metadata.topics if metadata else []
    partitions = [partition for topic in topics for partition in topic.partitions]
    fenced = {b.broker_id: b.is_fenced for b in (broker.cluster.brokers if broker else [])}
    nodes = []
    for node in known["nodes"]:
        entry = dict(node)
        if "broker" in node["roles"] and metadata is not None:
            number = node["id"]
            entry["fenced"] = fenced.get(number)
            entry["leaders"] = sum(p.leader_id == number for p in partitions)
            entry["replicas"] = sum(number in p.replica_nodes for p in partitions)
            entry["inSync"] = sum(number in p.isr_nodes for p in partitions)
        nodes.append(entry)
    return {
        "time": now.isoformat(timespec="milliseconds"),
        **{key: known[key] for key in ("dir", "clusterId", "pid")},
        "quorum": None if quorum is None else _quorum(quorum),
        "nodes": nodes,
        "partitions": None
        if metadata is None
        else {
            **_counted(partitions),
            "waiting": [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "waits": one.waits,
                    "waitsFor": one.waits_for,
                    "sinceMs": None if one.since_ms < 0 else one.since_ms,
                    "text": waits(one),
                }
                for one in answers.waiting
            ],
        },
        "topics": None
        if metadata is None
        else [
            {"name": topic.name, "internal": topic.is_internal, **_counted(topic.partitions)}
            for topic in sorted(metadata.topics, key=lambda topic: topic.name or "")
        ],
    }


def _counted(partitions: Sequence[MetadataResponse.MetadataResponsePartition]) -> dict[str, int]:
    return {
        "total": len(partitions),
        "leaderless": sum(p.leader_id < 0 for p in partitions),
        "underReplicated": sum(len(p.isr_nodes) < len(p.replica_nodes) for p in partitions),
    }


def _quorum(found: DescribeQuorumResponse.PartitionData) -> dict[str, Any]:
    leader_end = max((v.log_end_offset for v in found.current_voters), default=-1)

    def replicas(states: Sequence[DescribeQuorumResponse.ReplicaState]) -> list[dict[str, Any]]:
        return [
            {
                "id": state.replica_id,
                "logEndOffset": state.log_end_offset,
                "lag": None if state.log_end_offset < 0 else leader_end - state.log_end_offset,
                "lastCaughtUpMs": state.last_caught_up_timestamp,
            }
            for state in sorted(states, key=lambda state: state.replica_id)
        ]

    return {
        "leader": found.leader_id,
        "epoch": found.leader_epoch,
        "highWatermark": found.high_watermark,
        "voters": replicas(found.current_voters),
        "observers": replicas(found.observers),
    }
