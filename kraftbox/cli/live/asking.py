"""Queries to the nodes of a cluster, each node's in a task of its own.

A node that does not answer in time delays no other node. The supervisor reports the nodes and their
states; a node that is paused or cut off is not queried.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from client.addresses import Address
from client.admin import QUORUM_REQUEST
from kraftbox.cli.live.facts import ASK_MS, Board, ClusterReport, Groups, Partition, Quorum
from kraftbox.launcher import control
from kraftbox.launcher.place import ClusterPlace
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.transport.client import Connection

CLIENT_ID = "kraftbox-top"
PARTITIONS_MAX = 2_000
"""The maximum of one response; the view states when there are more partitions."""
GROUPS_MAX = 100
LATEST = -1


class Asking:
    """Poller of all nodes, until it is cancelled. `now_ms` is a monotonic clock."""

    def __init__(self, place: ClusterPlace, board: Board, now_ms: Callable[[], float]) -> None:
        self._place = place
        self._board = board
        self._now_ms = now_ms
        self._tasks: dict[tuple[int, str], asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Poll the supervisor, and start a task for each node and role.

        Raises only CancelledError.
        """
        try:
            while True:
                asked_ms = self._now_ms()
                await self._ask_supervisor(asked_ms)
                await self._rest(asked_ms)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _rest(self, asked_ms: float) -> None:
        await asyncio.sleep(max(0.0, asked_ms + ASK_MS - self._now_ms()) / 1000)

    async def _ask_supervisor(self, asked_ms: float) -> None:
        try:
            known = await asyncio.to_thread(control.status, self._place, ASK_MS)
        except (control.NotRunning, control.RequestFailed) as error:
            self._board.supervisor_failed(str(error))
            return
        self._board.take_nodes(asked_ms, known["nodes"])
        for node in known["nodes"]:
            for role in node["roles"].split(","):
                key = (node["id"], role)
                if key not in self._tasks:
                    ask = self._ask_broker if role == "broker" else self._ask_controller
                    self._tasks[key] = asyncio.create_task(self._keep_asking(*key, ask))

    async def _keep_asking(
        self,
        node_id: int,
        role: str,
        ask: Callable[[int, Connection, float], Coroutine[Any, Any, None]],
    ) -> None:
        connection: Connection | None = None
        while True:
            asked_ms = self._now_ms()
            address = self._address(node_id, role)
            self._board.set_requested(node_id, asked_ms, requested=address is not None)
            try:
                if address is not None:
                    async with asyncio.timeout(ASK_MS / 1000):
                        if connection is None or connection.is_closed:
                            connection = await Connection.connect(*address, CLIENT_ID, ASK_MS)
                        await ask(node_id, connection, asked_ms)
                elif connection is not None:
                    connection.abort()
                    connection = None
            except (OSError, ApiError, ProtocolError):
                # TimeoutError is an OSError: a late answer is dropped with its connection.
                if connection is not None:
                    connection.abort()
                    connection = None
            except BaseException:
                if connection is not None:
                    connection.abort()
                raise
            await self._rest(asked_ms)

    def _address(self, node_id: int, role: str) -> Address | None:
        """Return the address of a node's role, None while it cannot answer there."""
        for node in self._board.nodes:
            if node["id"] == node_id:
                return address_of(node, role)
        return None

    async def _ask_controller(self, node_id: int, connection: Connection, asked_ms: float) -> None:
        reply = await connection.request(QUORUM_REQUEST, ASK_MS)
        self._board.take_answer(node_id, "controller", asked_ms)
        quorum = None
        if not reply.error_code and reply.topics:
            partition = reply.topics[0].partitions[0]
            if partition.error_code == ErrorCode.NONE:
                replicas = [*partition.current_voters, *partition.observers]
                ends = {one.replica_id: one.log_end_offset for one in replicas}
                epoch, watermark = partition.leader_epoch, partition.high_watermark
                quorum = Quorum(asked_ms, partition.leader_id, epoch, watermark, ends)
        self._board.take_quorum(node_id, quorum)

    async def _ask_broker(self, node_id: int, connection: Connection, asked_ms: float) -> None:
        cluster, topics, groups = await asyncio.gather(
            connection.request(DescribeClusterRequest(include_fenced_brokers=True), ASK_MS),
            connection.request(
                DescribeTopicPartitionsRequest(response_partition_limit=PARTITIONS_MAX), ASK_MS
            ),
            connection.request(ListGroupsRequest(), ASK_MS),
        )
        self._board.take_answer(node_id, "broker", asked_ms)
        fenced = frozenset(one.broker_id for one in cluster.brokers if one.is_fenced)
        partitions = tuple(partitions_of(topics))
        is_cut = topics.next_cursor is not None
        self._board.take_report(node_id, ClusterReport(asked_ms, fenced, partitions, is_cut))
        states = {one.group_id: one.group_state for one in groups.groups[:GROUPS_MAX]}
        led = [one for one in partitions if one.leader == node_id]
        with contextlib.suppress(ApiError):
            await asyncio.gather(
                self._ask_committed(node_id, connection, asked_ms, states),
                self._ask_ends(connection, asked_ms, led),
            )

    async def _ask_committed(
        self, node_id: int, connection: Connection, asked_ms: float, states: Mapping[str, str]
    ) -> None:
        committed: dict[str, dict[tuple[str, int], int]] = {}
        if states:
            entries = [
                OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None)
                for name in states
            ]
            # Version 9 is the last one with topic names.
            request = OffsetFetchRequest(groups=entries)
            reply = await connection.request(request, ASK_MS, version=9)
            for group in reply.groups:
                committed[group.group_id] = {
                    (topic.name, one.partition_index): one.committed_offset
                    for topic in group.topics
                    for one in topic.partitions
                    if one.committed_offset >= 0
                }
        self._board.take_groups(node_id, Groups(asked_ms, states, committed))

    async def _ask_ends(
        self, connection: Connection, asked_ms: float, led: Sequence[Partition]
    ) -> None:
        by_topic: dict[str, list[int]] = {}
        for one in led:
            by_topic.setdefault(one.topic, []).append(one.number)
        if not by_topic:
            return
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=number, timestamp=LATEST
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic.items()
            ],
        )
        reply = await connection.request(request, ASK_MS)
        self._board.take_ends(
            asked_ms,
            {
                (topic.name, one.partition_index): one.offset
                for topic in reply.topics
                for one in topic.partitions
                if not one.error_code
            },
        )


def address_of(node: Mapping[str, Any], role: str) -> Address | None:
    """Return the listener of a node's role, None unless the node can answer there."""
    if node["state"] not in ("starting", "running") or node.get("cutOff"):
        return None
    for entry in node["listeners"].split(","):
        name, _, address = entry.partition("://")
        host, _, port = address.rpartition(":")
        if (name == "CONTROLLER") == (role == "controller") and port != "0":
            return host.strip("[]") or "localhost", int(port)
    return None


def partitions_of(response: DescribeTopicPartitionsResponse) -> list[Partition]:
    """Return the partitions of a response."""
    return [
        Partition(
            topic.name or "",
            one.partition_index,
            one.leader_id,
            one.leader_epoch,
            tuple(one.replica_nodes),
            tuple(one.isr_nodes),
            tuple(one.eligible_leader_replicas or ()),
        )
        for topic in response.topics
        for one in topic.partitions
    ]
