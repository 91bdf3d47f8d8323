"""Members of a group against a node in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest import mock

import pytest

from client import group_member
from client.admin import Admin
from client.cluster_client import EARLIEST, ClusterClient
from client.errors import Refused
from client.group_member import GroupMember
from client.offsets import commit, committed
from client.visible_records import Received
from protocol.batch import Record, build_batch
from protocol.errors import ErrorCode
from protocol.messages.leave_group import LeaveGroupRequest
from testkit.memory.node import running_node

GROUP = "g"


@asynccontextmanager
async def topic(partitions: int, records: int) -> AsyncIterator[tuple[ClusterClient, str]]:
    """Yield a client of a node with the topic `t` and the node's address; each partition has
    `records`."""
    async with running_node() as node:
        address = node.client_addresses()[0]
        async with await ClusterClient.connect(address) as client:
            await Admin(client).create_topic("t", partitions)
            values = [Record(value=b"%d" % number) for number in range(records)]
            for index in range(partitions if records else 0):
                await client.produce("t", index, build_batch(values))
            yield client, address


def member(client: ClusterClient, **options: object) -> GroupMember:
    return GroupMember(client, GROUP, ["t"], start=EARLIEST, **options)  # type: ignore[arg-type]


async def read(one: GroupMember, count: int) -> list[Received]:
    found: list[Received] = []
    while len(found) < count:
        found += await one.poll(count - len(found))
    return found


async def test_a_later_member_goes_on_where_an_earlier_one_ended() -> None:
    async with topic(1, 5) as (client, _):
        async with member(client) as first:
            assert [one.offset for one in await read(first, 3)] == [0, 1, 2]
        assert await committed(client, GROUP) == {("t", 0): 3}
        async with member(client) as second:
            assert [one.offset for one in await read(second, 2)] == [3, 4]


async def test_a_block_that_fails_commits_nothing_of_what_it_was_given() -> None:
    async with topic(1, 3) as (client, _):
        with pytest.raises(ZeroDivisionError):
            async with member(client, auto_commit_interval_ms=None) as one:
                await read(one, 3)
                raise ZeroDivisionError
        assert await committed(client, GROUP) == {}
        assert (await Admin(client).describe_group(GROUP)).group_state == "Empty"


async def test_a_commit_on_time_is_of_what_was_returned_before() -> None:
    async with topic(1, 4) as (client, _), member(client, auto_commit_interval_ms=0.0) as one:
        await one.poll(2)
        assert await committed(client, GROUP) == {}
        await one.poll(2)
        assert await committed(client, GROUP) == {("t", 0): 2}


async def test_members_share_the_partitions_and_take_over_from_one_that_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_member, "HEARTBEAT_INTERVAL_MS", 0)
    async with topic(3, 0) as (client, address), await ClusterClient.connect(address) as other:
        first, second = member(client), member(other)
        await first.join()
        assert len(first.positions) == 3
        joining = asyncio.create_task(second.join())
        while not joining.done() or len(first.positions) == 3:
            await first.poll()
        await joining
        shares = sorted((len(first.positions), len(second.positions)))
        assert shares == [1, 2]
        assert first.generation == second.generation > 1
        assert not set(first.positions) & set(second.positions)
        await second.close()
        while len(first.positions) < 3:
            await first.poll()
        await first.close()


async def test_a_member_that_was_expelled_joins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_member, "HEARTBEAT_INTERVAL_MS", 0)
    async with topic(1, 1) as (client, _), member(client, auto_commit_interval_ms=0.0) as one:
        await read(one, 1)
        await one.poll()
        known = one.member_id
        await client.request_coordinator(
            GROUP,
            LeaveGroupRequest(
                group_id=GROUP, members=[LeaveGroupRequest.MemberIdentity(member_id=known)]
            ),
        )
        await one.poll()
        assert one.member_id not in (known, "")


async def test_join_with_permanent_error_raises_refused() -> None:
    async with topic(1, 0) as (client, _):
        with pytest.raises(Refused, match="g: INVALID_SESSION_TIMEOUT") as caught:
            await member(client, session_timeout_ms=1).join()
        assert caught.value.code is ErrorCode.INVALID_SESSION_TIMEOUT
        with pytest.raises(ValueError, match="start 7"):
            GroupMember(client, GROUP, ["t"], start=7)


async def test_an_empty_group_takes_commits_without_a_member() -> None:
    async with topic(2, 1) as (client, _):
        await commit(client, GROUP, {("t", 1): 1})
        async with member(client) as one:
            await read(one, 1)
            assert one.positions == {("t", 0): 1, ("t", 1): 1}


async def test_partition_without_committed_offset_needs_no_leader_to_join() -> None:
    """A leaderless partition must not cost a member its place: its start is found in `poll`."""
    async with topic(2, 1) as (client, _):
        asked: list[int] = []

        async def list_offset(*_: object, **__: object) -> None:
            asked.append(1)
            raise AssertionError("a leader was asked")

        with mock.patch.object(client, "list_offset", list_offset):
            one = member(client)
            await one.join()
            assert one.positions == {("t", 0): EARLIEST, ("t", 1): EARLIEST}
            await one.commit()
        assert asked == [] and await committed(client, GROUP) == {}
        assert sorted(found.partition for found in await read(one, 2)) == [0, 1]
        await one.close()
