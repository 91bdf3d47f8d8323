"""The answers to clients of a group, step by step, as lines of text.

The scenario runs on any broker that has topics `a` (4 partitions) and `b` (2) and waits 0 ms before
the first rebalance of a group. Member ids are random, so that lines number them in the order of
their appearance. No step depends on speed, except that a posted request gets time to arrive before
the next one of another connection.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Sequence
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.transport.client import Connection

ARRIVAL_S = 0.2
TIMEOUT_MS = 30_000.0
CLIENT = "tc"
READS_A = b"\x00\x00\x00\x00\x00\x01\x00\x01a\xff\xff\xff\xff"
RANGE = (("range", READS_A),)
MEMBER_ID = re.compile(r"(.+)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Scenario:
    """A run; `prefix` separates runs on one broker and does not appear in the lines."""

    def __init__(self, first: Connection, second: Connection, prefix: str) -> None:
        self.first = first
        self.second = second
        self.prefix = prefix
        self.lines: list[str] = []
        self.names: dict[str, str] = {}

    def say(self, step: str, *facts: Any) -> None:
        self.lines.append(" ".join([f"{step}:", *(repr(fact) for fact in facts)]))

    def name(self, member_id: str) -> str:
        match = MEMBER_ID.fullmatch(member_id)
        if match is None:
            return member_id
        return self.names.setdefault(member_id, f"{match[1]}#{len(self.names)}")

    def group(self, name: str) -> str:
        return self.prefix + name if name else ""

    async def ask(self, request: Any, version: int, on: Connection | None = None) -> Any:
        return await (on or self.first).request(request, TIMEOUT_MS, version)

    async def post(self, awaitable: Awaitable[Any]) -> asyncio.Future[Any]:
        """Send a request whose answer waits for others."""
        task = asyncio.ensure_future(awaitable)
        await asyncio.sleep(ARRIVAL_S)
        return task

    # -- requests

    async def join(
        self,
        group: str,
        member_id: str = "",
        instance: str | None = None,
        *,
        version: int = 9,
        protocols: Sequence[tuple[str, bytes]] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        on: Connection | None = None,
    ) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self.group(group),
            member_id=member_id,
            group_instance_id=instance,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=20_000,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols
            ],
        )
        response: JoinGroupResponse = await self.ask(request, version, on)
        return response

    def joined(self, response: JoinGroupResponse) -> tuple[Any, ...]:
        return (
            ErrorCode(response.error_code).name,
            response.generation_id,
            response.protocol_type,
            response.protocol_name,
            self.name(response.leader),
            response.skip_assignment,
            self.name(response.member_id),
            sorted(
                (self.name(member.member_id), member.group_instance_id, member.metadata)
                for member in response.members
            ),
        )

    async def joins(self, *args: Any, **how: Any) -> tuple[Any, ...]:
        return self.joined(await self.join(*args, **how))

    async def sync(
        self,
        group: str,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        instance: str | None = None,
        *,
        version: int = 5,
        protocol_type: str | None = "consumer",
        protocol: str | None = "range",
        on: Connection | None = None,
    ) -> tuple[Any, ...]:
        request = SyncGroupRequest(
            group_id=self.group(group),
            member_id=member_id,
            generation_id=generation,
            group_instance_id=instance,
            protocol_type=protocol_type if version >= 5 else None,
            protocol_name=protocol if version >= 5 else None,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=each, assignment=data)
                for each, data in (assignments or {}).items()
            ],
        )
        response: SyncGroupResponse = await self.ask(request, version, on)
        code = ErrorCode(response.error_code).name
        return code, response.protocol_type, response.protocol_name, response.assignment

    async def beat(
        self, group: str, member_id: str, generation: int, instance: str | None = None
    ) -> str:
        request = HeartbeatRequest(
            group_id=self.group(group),
            member_id=member_id,
            generation_id=generation,
            group_instance_id=instance,
        )
        return ErrorCode((await self.ask(request, 4)).error_code).name

    async def leave(
        self, group: str, *members: tuple[str, str | None], version: int = 5
    ) -> tuple[Any, ...]:
        request = LeaveGroupRequest(group_id=self.group(group))
        if version < 3:
            request.member_id = members[0][0]
        else:
            request.members = [
                LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance)
                for member_id, instance in members
            ]
        response = await self.ask(request, version)
        return ErrorCode(response.error_code).name, [
            (self.name(each.member_id), each.group_instance_id, ErrorCode(each.error_code).name)
            for each in response.members
        ]

    async def commit(
        self,
        group: str,
        generation: int = -1,
        member_id: str = "",
        instance: str | None = None,
        *,
        topics: Sequence[tuple[str, int]] = (("a", 0), ("b", 0)),
        offset: int = 3,
        metadata: str | None = "m",
        version: int = 9,
    ) -> list[tuple[str, int, str]]:
        request = OffsetCommitRequest(
            group_id=self.group(group),
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for name, partition in topics
            ],
        )
        response = await self.ask(request, version)
        return sorted(
            (topic.name, each.partition_index, ErrorCode(each.error_code).name)
            for topic in response.topics
            for each in topic.partitions
        )

    async def fetch(
        self, group: str, topics: Sequence[tuple[str, int]] | None, version: int
    ) -> list[tuple[Any, ...]]:
        request = OffsetFetchRequest()
        if version < 8:
            request.group_id = self.group(group)
            request.topics = None
            if topics is not None:
                request.topics = [
                    OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=[index])
                    for name, index in topics
                ]
        else:
            asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.group(group))
            asked.topics = None
            if topics is not None:
                asked.topics = [
                    OffsetFetchRequest.OffsetFetchRequestTopics(
                        name=name, partition_indexes=[index]
                    )
                    for name, index in topics
                ]
            request.groups = [asked]
        response = await self.ask(request, version)
        shown = response if version < 8 else response.groups[0]
        return sorted(
            (
                topic.name,
                each.partition_index,
                each.committed_offset,
                each.committed_leader_epoch,
                each.metadata,
                ErrorCode(each.error_code).name,
            )
            for topic in shown.topics
            for each in topic.partitions
        )

    async def describe(self, group: str, version: int = 6) -> tuple[Any, ...]:
        request = DescribeGroupsRequest(groups=[self.group(group)])
        request.include_authorized_operations = version >= 3
        (shown,) = (await self.ask(request, version)).groups
        message = shown.error_message
        return (
            ErrorCode(shown.error_code).name,
            message if message is None else message.replace(self.prefix, ""),
            shown.group_state,
            shown.protocol_type,
            shown.protocol_data,
            shown.authorized_operations,
            sorted(
                (
                    self.name(each.member_id),
                    each.group_instance_id,
                    each.client_id,
                    each.client_host,
                    each.member_metadata,
                    each.member_assignment,
                )
                for each in shown.members
            ),
        )

    async def list(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[Any]:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        return sorted(
            (
                each.group_id.removeprefix(self.prefix),
                each.protocol_type,
                each.group_state,
                each.group_type,
            )
            for each in (await self.ask(request, 5)).groups
            if each.group_id.startswith(self.prefix)
        )

    async def delete_offsets(self, group: str, *topics: tuple[str, int]) -> tuple[Any, ...]:
        request = OffsetDeleteRequest(
            group_id=self.group(group),
            topics=[
                OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[
                        OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=partition)
                    ],
                )
                for name, partition in topics
            ],
        )
        response = await self.ask(request, 0)
        return ErrorCode(response.error_code).name, sorted(
            (topic.name, each.partition_index, ErrorCode(each.error_code).name)
            for topic in response.topics
            for each in topic.partitions
        )

    async def delete(self, *groups: str) -> list[tuple[str, str]]:
        request = DeleteGroupsRequest(groups_names=[self.group(group) for group in groups])
        return sorted(
            (each.group_id.removeprefix(self.prefix), ErrorCode(each.error_code).name)
            for each in (await self.ask(request, 2)).results
        )

    # -- the story

    async def run(self) -> list[str]:
        await self.first_contact()
        await self.offsets_without_members()
        await self.two_dynamic_members()
        await self.two_static_members()
        return self.lines

    async def first_contact(self) -> None:
        # Kafka keeps an empty group after a refused first join, we do not: no client needs it.
        for version in range(10):
            self.say(f"first join v{version}", await self.joins(f"v{version}", version=version))
        self.say("no group id", await self.joins(""), await self.joins("", version=5))
        self.say("short session", await self.joins("q", session_ms=1))
        self.say("long session", await self.joins("q", "m", session_ms=2**31 - 1, version=5))
        self.say("unknown member", await self.joins("q", "m"))
        self.say("no type", await self.joins("w", protocol_type=""))
        self.say("no protocols", await self.joins("w", protocols=()))
        self.say("heartbeat", await self.beat("q", "m", 1), await self.beat("", "m", 1))
        self.say("sync", await self.sync("q", "m", 1), await self.sync("", "m", 1))
        self.say("sync v2", await self.sync("q", "m", 1, version=2))
        self.say("leave", await self.leave("q", ("m", None), ("", "i")))
        self.say("leave v1", await self.leave("q", ("m", None), version=1))
        self.say("leave no group id", await self.leave("", ("m", None)))
        self.say("leave no group id v1", await self.leave("", ("m", None), version=1))
        self.say("describe", await self.describe("q"), await self.describe("q", 5))

    async def offsets_without_members(self) -> None:
        self.say("commit", await self.commit("s", topics=[("a", 0), ("zz", 0), ("b", 9)]))
        for version in (2, 5, 8):
            self.say(f"commit v{version}", await self.commit("s", version=version))
        for version in (8, 9):
            answer = await self.commit("none", 1, "m", version=version)
            self.say(f"commit to no group v{version}", answer)
        self.say("commit as member", await self.commit("s", 0, "m"), await self.commit("s", 0))
        self.say("commit with names", await self.commit("s", -1, "m"))
        self.say("commit with instance", await self.commit("s", -1, "", "i"))
        self.say("negative offset", await self.commit("s", offset=-5, topics=[("a", 1)]))
        for size, metadata in ((4096, "x"), (4097, "x"), (4096, "\u00e4"), (2049, "\U0001f600")):
            answer = await self.commit("s", metadata=metadata * size, topics=[("a", 2)])
            self.say(f"metadata {size} x {metadata!a}", answer)
        self.say("null metadata", await self.commit("s", metadata=None, topics=[("a", 2)]))
        for version in range(1, 10):
            asked = [("a", 0), ("a", 3), ("zz", 0)]
            self.say(f"fetch v{version}", await self.fetch("s", asked, version))
        self.say("fetch all", await self.fetch("s", None, 7), await self.fetch("s", None, 9))
        self.say("fetch nobody", await self.fetch("none", [("a", 0)], 8))
        self.say("fetch all of nobody", await self.fetch("none", None, 8))
        self.say("describe", await self.describe("s"))
        for states, types in ((), ()), (["empty"], ["CLASSIC"]), (["Stable"], ["classic"]):
            listed = await self.list(states, types)
            self.say("list", [each for each in listed if each[0] == "s"])
        self.say("list nonsense", await self.list(["nonsense"]), await self.list([], ["x"]))
        self.say("delete offsets", await self.delete_offsets("s", ("a", 0), ("a", 3), ("zz", 0)))
        self.say("delete offsets of nobody", await self.delete_offsets("none", ("a", 0)))
        self.say("delete", await self.delete("s", "none"), await self.fetch("s", None, 9))

    async def two_dynamic_members(self) -> None:
        one = (await self.join("d")).member_id
        self.say("one joins", await self.joins("d", one), await self.describe("d"))
        self.say("completing", await self.beat("d", one, 1), await self.commit("d", 1, one))
        self.say("syncs", await self.sync("d", one, 1, {one: b"A"}), await self.describe("d"))
        self.say("other type", await self.joins("d", protocol_type="connect"))
        self.say("other protocol", await self.joins("d", protocols=[("other", b"")]))
        self.say("member of other type", await self.joins("d", one, protocol_type="connect"))
        two = (await self.join("d")).member_id
        for who, generation in ((one, 1), (one, 0), (one, 2), ("x", 1), (two, 1)):
            step = f"{self.name(who)} in {generation}"
            self.say(f"heartbeat of {step}", await self.beat("d", who, generation))
            self.say(f"sync of {step}", await self.sync("d", who, generation))
            self.say(f"commit of {step}", await self.commit("d", generation, who))
        self.say("instance nobody has", await self.beat("d", one, 1, "i"))
        self.say("sync of other type", await self.sync("d", one, 1, protocol_type="connect"))
        self.say("sync of other protocol", await self.sync("d", one, 1, protocol="rr"))
        self.say("sync of no protocol", await self.sync("d", one, 1, protocol=None))
        self.say("sync v2", await self.sync("d", one, 1, version=2))
        self.say("outsider", await self.commit("d"), await self.commit("d", -1, one))
        self.say("delete", await self.delete("d"), await self.delete_offsets("d", ("a", 0)))
        self.say("delete unread", await self.delete_offsets("d", ("b", 0)))
        waiting = await self.post(self.join("d", two, on=self.second))
        self.say("preparing", await self.describe("d"), await self.beat("d", one, 1))
        self.say("commit", await self.commit("d", 1, one), "sync", await self.sync("d", one, 1))
        self.say("delete", await self.delete_offsets("d", ("a", 0), ("b", 0)))
        self.say("one is back", await self.joins("d", one))
        self.say("two is in", self.joined(await waiting))
        self.say("again", await self.joins("d", one), await self.joins("d", two))
        waiting = await self.post(self.sync("d", two, 2, on=self.second))
        self.say("leader", await self.sync("d", one, 2, {one: b"A", two: b"B"}))
        self.say(
            "follower", await waiting, await self.joins("d", two), await self.beat("d", one, 2)
        )
        waiting = await self.post(self.join("d", two, protocols=[("range", b"n")], on=self.second))
        self.say("changed", await self.beat("d", one, 2))
        self.say("leader leaves", await self.leave("d", (one, None), ("x", None)))
        self.say("new leader", self.joined(await waiting))
        self.say("no assignment", await self.sync("d", two, 3))
        self.say("last leaves", await self.leave("d", (two, None), version=2))
        self.say("empty", await self.describe("d"), await self.beat("d", two, 4))
        self.say("commit", await self.commit("d", 3, two), await self.commit("d"))
        self.say("delete", await self.delete("d"), await self.describe("d"))

    async def two_static_members(self) -> None:
        one = (await self.join("t", instance="i1")).member_id
        waiting = await self.post(self.join("t", instance="i2", on=self.second))
        self.say("both", await self.joins("t", one, "i1"), self.joined(await waiting))
        two = waiting.result().member_id
        waiting = await self.post(self.sync("t", two, 2, instance="i2", on=self.second))
        self.say("leader", await self.sync("t", one, 2, {one: b"A", two: b"B"}, "i1"))
        self.say("follower", await waiting)
        back = (await self.join("t", instance="i2")).member_id
        self.say("follower is back", self.name(back))
        self.say("old", await self.beat("t", two, 2, "i2"), await self.beat("t", two, 2))
        self.say("old joins", await self.joins("t", two, "i2"))
        self.say("old syncs", await self.sync("t", two, 2, instance="i2"))
        self.say("old commits", await self.commit("t", 2, two, "i2"))
        self.say("old leaves", await self.leave("t", (two, "i2"), (two, None)))
        self.say("new syncs", await self.sync("t", back, 2, instance="i2"))
        for version in (9, 8, 6):
            answer = await self.join("t", instance="i1", version=version)
            self.say(f"leader is back v{version}", self.joined(answer))
        one = answer.member_id
        self.say("other instance", await self.joins("t", one, "i9"))
        self.say("other protocol", await self.joins("t", instance="i1", protocols=[("o", b"")]))
        self.say("stable", await self.describe("t"))
        self.say("put out", await self.leave("t", ("", "i2")), await self.beat("t", one, 2, "i1"))
        self.say("joins", await self.joins("t", one, "i1"))
        self.say("joins anew", await self.joins("t", instance="i1"))
