"""`kraftbox status`: the processes, the quorum, the brokers and the partitions of a cluster.

The supervisor knows the processes; everything else is asked of the nodes in Kafka's protocol, each
for a short time only: a cluster with paused nodes is exactly what one wants to look at.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from client.addresses import Address
from client.admin import QUORUM_REQUEST, ExplainedPartition
from kraftbox.cli.explanation import waits
from kraftbox.cli.nodes import DIR_DEFAULT, DirOption
from kraftbox.cli.output import CommandFailed, JsonFlag, say, say_json, table
from kraftbox.launcher import control
from kraftbox.launcher.place import ClusterPlace
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.describe_quorum import DescribeQuorumResponse
from protocol.messages.explain_election import ExplainElectionRequest
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.schema import Request, Response
from protocol.transport.client import Connection

R = TypeVar("R", bound=Response)

ASK_MS_MAX = 1_000.0
WAITING_MAX = 10
"""Partitions without leader that are looked into."""
WATCH_MS = 1_000


def status(
    directory: DirOption = DIR_DEFAULT,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it again every second.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show a cluster that `up` started: quorum, nodes, leaders, ISR, what is under-replicated."""
    place = ClusterPlace(directory)
    try:
        if as_json:
            say_json(snapshot(place))
            while watch:
                time.sleep(WATCH_MS / 1000)
                say_json(snapshot(place))
            return
        console = Console()
        if not console.is_terminal:
            show_plain(snapshot(place))
            return
        if not watch:
            console.print(drawn(snapshot(place)))
            return
        with Live(drawn(snapshot(place)), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(WATCH_MS / 1000)
                live.update(drawn(snapshot(place)), refresh=True)
    except KeyboardInterrupt:
        pass


def snapshot(place: ClusterPlace) -> dict[str, Any]:
    """Everything there is to show now, as JSON. Raises CommandFailed."""
    try:
        known = control.status(place)
    except (control.NotRunning, control.RequestFailed) as error:
        raise CommandFailed(str(error)) from None
    quorum, cluster, metadata, waiting = asyncio.run(_ask_nodes(known["nodes"]))
    return assemble(known, quorum, cluster, metadata, waiting)


# --- asking -----------------------------------------------------------------------------------


def addresses(nodes: Sequence[Mapping[str, Any]], *, controllers: bool) -> list[Address]:
    """Listeners of the processes that can answer."""
    found = []
    for node in nodes:
        if node["state"] not in ("starting", "running"):
            continue
        for entry in node["listeners"].split(","):
            name, _, address = entry.partition("://")
            host, _, port = address.rpartition(":")
            if (name == "CONTROLLER") == controllers and port != "0":
                found.append((host.strip("[]") or "localhost", int(port)))
    return found


async def _ask_nodes(
    nodes: Sequence[Mapping[str, Any]],
) -> tuple[
    DescribeQuorumResponse.PartitionData | None,
    DescribeClusterResponse | None,
    MetadataResponse | None,
    list[ExplainedPartition],
]:
    brokers = addresses(nodes, controllers=False)
    # All controllers at once: one that was cut off may still believe itself the leader, of an
    # older epoch.
    controllers = addresses(nodes, controllers=True)
    found = await asyncio.gather(*(_ask_quorum(address) for address in controllers))
    led = [partition for partition in found if partition is not None]
    for address in [] if led else brokers:
        # A node of its own has no controller that others could ask; a broker passes it on.
        partition = await _ask_quorum(address)
        if partition is not None:
            led = [partition]
            break
    quorum = max(led, key=lambda partition: partition.leader_epoch, default=None)
    for address in brokers:
        cluster = await _ask(address, DescribeClusterRequest(include_fenced_brokers=True))
        if cluster is None or cluster.error_code:
            continue
        metadata = await _ask(address, MetadataRequest(topics=None))
        return quorum, cluster, metadata, await _ask_waiting(address, metadata)
    return quorum, None, None, []


async def _ask_waiting(
    address: Address, metadata: MetadataResponse | None
) -> list[ExplainedPartition]:
    """Why partitions have no leader: of the first ones, and of none where nobody can say."""
    leaderless = [
        (topic.name or "", partition.partition_index)
        for topic in (metadata.topics if metadata else [])
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
    reply = await _ask(address, request)
    return [] if reply is None else [one for one in reply.partitions if one.waits is not None]


async def _ask_quorum(address: Address) -> DescribeQuorumResponse.PartitionData | None:
    reply = await _ask(address, QUORUM_REQUEST)
    if reply is None or reply.error_code or not reply.topics:
        return None
    partition = reply.topics[0].partitions[0]
    return partition if partition.error_code == ErrorCode.NONE else None


async def _ask(address: Address, request: Request[R]) -> R | None:
    try:
        async with asyncio.timeout(ASK_MS_MAX / 1000):
            connection = await Connection.connect(*address, "kraftbox-status", ASK_MS_MAX)
            try:
                return await connection.request(request, ASK_MS_MAX)
            finally:
                await connection.close()
    except (OSError, ApiError, ProtocolError):
        return None


# --- what it means ----------------------------------------------------------------------------


def assemble(
    known: Mapping[str, Any],
    quorum: DescribeQuorumResponse.PartitionData | None,
    cluster: DescribeClusterResponse | None,
    metadata: MetadataResponse | None,
    waiting: Sequence[ExplainedPartition] = (),
) -> dict[str, Any]:
    """The supervisor's view and the nodes' answers as one document; null for what nobody told."""
    partitions = [p for topic in (metadata.topics if metadata else []) for p in topic.partitions]
    fenced = {b.broker_id: b.is_fenced for b in (cluster.brokers if cluster else [])}
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
        **{key: known[key] for key in ("dir", "clusterId", "pid")},
        "quorum": None if quorum is None else _quorum(quorum),
        "nodes": nodes,
        "partitions": None
        if metadata is None
        else {
            "total": len(partitions),
            "leaderless": sum(p.leader_id < 0 for p in partitions),
            "underReplicated": sum(len(p.isr_nodes) < len(p.replica_nodes) for p in partitions),
            "waiting": [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "waits": one.waits,
                    "waitsFor": one.waits_for,
                    "sinceMs": None if one.since_ms < 0 else one.since_ms,
                    "text": waits(one),
                }
                for one in waiting
            ],
        },
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


# --- showing ----------------------------------------------------------------------------------

_COLUMNS = ("NODE", "ROLES", "STATE", "PID", "LAG", "RACK", "LEADERS", "IN SYNC", "ADDRESS")
_STATE_STYLES = {
    "running": "green",
    "fenced": "yellow",
    "starting": "yellow",
    "stopping": "yellow",
    "paused": "yellow",
    "killed": "red",
    "failed": "bold red",
}


def headline(found: Mapping[str, Any]) -> str:
    """Quorum and partitions in one line."""
    quorum = found["quorum"]
    parts = ["quorum: no leader answers"]
    if quorum is not None:
        parts = [
            f"quorum: leader {quorum['leader']}, epoch {quorum['epoch']}, "
            f"high watermark {quorum['highWatermark']}"
        ]
    partitions = found["partitions"]
    if partitions is None:
        parts.append("partitions: no broker answers")
    else:
        parts.append(
            f"partitions: {partitions['total']}, {partitions['underReplicated']} under-replicated, "
            f"{partitions['leaderless']} without leader"
        )
    return "   ".join(parts)


def rows(found: Mapping[str, Any]) -> list[list[str | None]]:
    """One row a node, in the order of _COLUMNS."""
    quorum = found["quorum"] or {"voters": [], "observers": [], "leader": None}
    lag = {r["id"]: r["lag"] for r in [*quorum["voters"], *quorum["observers"]]}
    made: list[list[str | None]] = []
    for node in found["nodes"]:
        state = node["state"]
        if state == "running" and node.get("fenced"):
            state = "fenced"
        own_lag = lag.get(node["id"])
        in_sync = f"{node['inSync']}/{node['replicas']}" if "inSync" in node else None
        made.append(
            [
                str(node["id"]),
                node["roles"] + (" *" if node["id"] == quorum["leader"] else ""),
                state,
                None if node["pid"] is None else str(node["pid"]),
                None if own_lag is None else str(own_lag),
                node["rack"],
                str(node["leaders"]) if "leaders" in node else None,
                in_sync,
                ",".join(one.partition("://")[2] for one in node["listeners"].split(",")),
            ]
        )
    return made


def waiting_lines(found: Mapping[str, Any]) -> list[str]:
    """What partitions without leader wait for, a line each; the last one counts those left out."""
    partitions = found["partitions"]
    if partitions is None or not partitions["waiting"]:
        return []
    lines = [
        f"{one['topic']}-{one['partition']} waits for {one['text']}"
        for one in partitions["waiting"]
    ]
    more = partitions["leaderless"] - len(lines)
    return [*lines, f"and {more} more without leader"] if more > 0 else lines


def show_plain(found: Mapping[str, Any]) -> None:
    say(headline(found))
    for line in waiting_lines(found):
        say(line)
    table(_COLUMNS, rows(found))


def drawn(found: Mapping[str, Any]) -> RenderableType:
    """The same for a terminal."""
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for column in _COLUMNS:
        shown.add_column(column, overflow="fold")
    for row in rows(found):
        cells = [Text("-" if cell is None else cell) for cell in row]
        cells[2].stylize(_STATE_STYLES.get(row[2] or "", ""))
        shown.add_row(*cells)
    waiting = [Text(line, style="yellow") for line in waiting_lines(found)]
    return Group(Text(headline(found)), *waiting, shown)
