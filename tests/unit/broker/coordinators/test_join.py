"""JoinGroup: member ids, admission, and the joins that begin a rebalance."""

from __future__ import annotations

import pytest

from broker.coordinators.group.config import GroupConfig
from broker.coordinators.group.states import GroupState
from protocol.errors import ErrorCode
from testkit.memory.group_shard import (
    SESSION_MS,
    ShardWorld,
    subscription,
)

NONE = ErrorCode.NONE


def test_three_members_join_and_one_leaves() -> None:
    world = ShardWorld(GroupConfig(initial_rebalance_delay_ms=3_000))
    ids = [world.new_id(client=f"c{i}") for i in range(3)]
    joins = [world.join(member_id) for member_id in ids]
    world.advance(2_999)
    assert not any(ticket in world.answers for ticket in joins)
    world.advance(1)
    # New members came after the first: the group waits for the initial delay once more.
    assert not any(ticket in world.answers for ticket in joins)
    world.advance(3_000)
    answers = [world.joined(ticket) for ticket in joins]
    assert {answer.generation_id for answer in answers} == {1}
    assert {answer.leader for answer in answers} == {ids[0]}
    assert [len(answer.members) for answer in answers] == [3, 0, 0]
    assert [member.member_id for member in answers[0].members] == ids
    assert world.state() is GroupState.COMPLETING_REBALANCE

    followers = [world.sync(member_id, 1) for member_id in ids[1:]]
    assert not any(ticket in world.answers for ticket in followers)
    leader = world.sync(ids[0], 1, {member_id: member_id.encode() for member_id in ids})
    assert world.state() is GroupState.STABLE
    for ticket, member_id in zip([leader, *followers], ids, strict=True):
        assert world.synced(ticket).assignment == member_id.encode()
        assert world.synced(ticket).protocol_name == "range"
        assert world.synced(ticket).protocol_type == "consumer"

    assert world.code(world.leave((ids[1], None))) is NONE
    assert world.state() is GroupState.PREPARING_REBALANCE
    assert world.heartbeat(ids[0], 1) is ErrorCode.REBALANCE_IN_PROGRESS
    first, last = world.join(ids[0]), world.join(ids[2])
    assert world.joined(first).generation_id == world.joined(last).generation_id == 2
    assert len(world.joined(first).members) == 2


def test_initial_delay_is_bounded_by_the_rebalance_timeout() -> None:
    world = ShardWorld(GroupConfig(initial_rebalance_delay_ms=3_000))
    first = world.join(version=3, rebalance_ms=7_000)
    for _ in range(3):
        world.advance(2_000)
        world.join(version=3, rebalance_ms=7_000)
    assert first not in world.answers
    world.advance(1_000)
    assert world.joined(first).generation_id == 1
    assert len(world.joined(first).members) == 4


def test_a_member_id_fits_into_the_record() -> None:
    world = ShardWorld()
    for client in ("c" * 32_767, "\u20ac" * 10_922):
        member_id = world.new_id(client=client)
        assert 32_760 < len(member_id.encode()) <= 32_767
        assert member_id.endswith(f"-uuid-{world._uuids}")


def test_versions_below_four_need_no_member_id() -> None:
    world = ShardWorld()
    ticket = world.join(version=3, client="c")
    world.advance(0)
    assert world.joined(ticket).member_id == "c-uuid-1"


def test_a_member_id_that_is_not_used_is_forgotten() -> None:
    world = ShardWorld()
    member_id = world.new_id()
    world.advance(SESSION_MS - 1)
    assert world.group().pending == {member_id}
    world.advance(1)
    assert not world.shard.core.groups
    assert world.code(world.join(member_id)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_join_phase_waits_for_given_out_member_ids() -> None:
    world = ShardWorld()
    ids = world.stable_group()
    pending = world.new_id()
    rejoin = world.join(ids[0])
    assert rejoin not in world.answers
    late = world.join(pending)
    assert world.joined(rejoin).generation_id == world.joined(late).generation_id == 2


def test_a_pending_id_that_expires_ends_the_wait() -> None:
    world = ShardWorld()
    ids = world.stable_group()
    world.new_id()
    rejoin = world.join(ids[0])
    world.advance(SESSION_MS)
    assert world.joined(rejoin).generation_id == 2


def test_a_join_in_the_sync_phase_starts_over() -> None:
    world = ShardWorld()
    first = world.new_id()
    world.join(first)
    world.advance(0)
    assert world.state() is GroupState.COMPLETING_REBALANCE
    second = world.new_id()
    late = world.join(second)
    assert world.state() is GroupState.PREPARING_REBALANCE
    assert world.code(world.sync(first, 1, {})) is ErrorCode.REBALANCE_IN_PROGRESS
    again = world.join(first)
    assert world.joined(again).generation_id == world.joined(late).generation_id == 2


def test_a_join_in_the_sync_phase_fails_those_that_wait_for_the_assignment() -> None:
    world = ShardWorld()
    ids = [world.new_id(), world.new_id()]
    for member_id in ids:
        world.join(member_id)
    world.advance(0)
    waiting = world.sync(ids[1], 1)
    world.join(world.new_id())
    assert world.code(waiting) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_lost_join_answer_is_repeated_without_a_rebalance() -> None:
    world = ShardWorld()
    ids = [world.new_id(), world.new_id()]
    for member_id in ids:
        world.join(member_id)
    world.advance(0)
    leader, follower = world.joined(world.join(ids[0])), world.joined(world.join(ids[1]))
    assert leader.generation_id == follower.generation_id == 1
    assert (len(leader.members), len(follower.members)) == (2, 0)
    assert world.state() is GroupState.COMPLETING_REBALANCE


def test_a_follower_may_join_a_stable_group_again_and_the_leader_starts_a_rebalance() -> None:
    world = ShardWorld()
    ids = world.stable_group(2)
    assert world.joined(world.join(ids[1])).generation_id == 1
    assert world.state() is GroupState.STABLE
    world.join(ids[0])
    assert world.state() is GroupState.PREPARING_REBALANCE


def test_a_changed_subscription_starts_a_rebalance() -> None:
    world = ShardWorld()
    ids = world.stable_group(2)
    world.join(ids[1], protocols=(("range", subscription("a", "b")),))
    assert world.state() is GroupState.PREPARING_REBALANCE


def test_a_second_join_of_one_member_takes_the_place_of_the_first() -> None:
    world = ShardWorld()
    ids = world.stable_group(2)
    first = world.join(ids[0])
    second = world.join(ids[0])
    assert world.code(first) is ErrorCode.REBALANCE_IN_PROGRESS
    world.join(ids[1])
    assert world.code(second) is NONE


class TestProtocols:
    def test_the_majority_chooses(self) -> None:
        world = ShardWorld()
        wishes = (("x", "y"), ("y", "x"), ("y", "x"))
        tickets = [
            world.join(version=3, protocols=[(name, name.encode()) for name in wish])
            for wish in wishes
        ]
        world.advance(0)
        answers = [world.joined(ticket) for ticket in tickets]
        assert {answer.protocol_name for answer in answers} == {"y"}
        assert [member.metadata for member in answers[0].members] == [b"y"] * 3

    def test_only_what_all_support_is_a_candidate(self) -> None:
        world = ShardWorld()
        world.join(version=3, protocols=[("x", b""), ("z", b"")])
        ticket = world.join(version=3, protocols=[("y", b""), ("z", b"")])
        world.advance(0)
        assert world.joined(ticket).protocol_name == "z"

    @pytest.mark.parametrize(
        ("protocol_type", "protocols"),
        [
            ("connect", [("range", b"")]),
            ("consumer", [("other", b"")]),
            ("consumer", []),
            ("", [("range", b"")]),
        ],
    )
    def test_nothing_in_common_is_refused(
        self, protocol_type: str, protocols: list[tuple[str, bytes]]
    ) -> None:
        world = ShardWorld()
        world.stable_group()
        ticket = world.join(protocol_type=protocol_type, protocols=protocols)
        assert world.code(ticket) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert world.state() is GroupState.STABLE

    @pytest.mark.parametrize(("protocol_type", "count"), [("", 1), ("consumer", 0)])
    def test_a_first_member_needs_type_and_protocols(self, protocol_type: str, count: int) -> None:
        world = ShardWorld()
        protocols = [("range", b"")] * count
        ticket = world.join(protocol_type=protocol_type, protocols=protocols)
        assert world.code(ticket) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert not world.shard.core.groups

    def test_a_member_cannot_change_to_something_foreign(self) -> None:
        world = ShardWorld()
        ids = world.stable_group(2)
        ticket = world.join(ids[0], protocols=[("other", b"")])
        assert world.code(ticket) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class TestLimits:
    @pytest.mark.parametrize("session_ms", [-1, 0, 5_999, 1_800_001])
    def test_session_timeout_out_of_range(self, session_ms: int) -> None:
        world = ShardWorld()
        assert world.code(world.join(session_ms=session_ms)) is ErrorCode.INVALID_SESSION_TIMEOUT

    def test_empty_group_id(self) -> None:
        world = ShardWorld()
        assert world.code(world.join(group="")) is ErrorCode.INVALID_GROUP_ID
        assert world.heartbeat("m", 1, group="") is ErrorCode.INVALID_GROUP_ID
        assert world.code(world.sync("m", 1, group="")) is ErrorCode.INVALID_GROUP_ID
        assert world.code(world.leave(("m", None), group="")) is ErrorCode.INVALID_GROUP_ID

    def test_group_max_size_in_a_stable_group(self) -> None:
        world = ShardWorld(GroupConfig(initial_rebalance_delay_ms=0, max_size=2))
        world.stable_group(2)
        ticket = world.join()
        assert world.code(ticket) is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert world.joined(ticket).member_id == ""
        assert world.state() is GroupState.STABLE

    def test_group_max_size_while_preparing_counts_those_that_wait(self) -> None:
        """KAFKA-9844: the members that join last are refused, not the first ones."""
        world = ShardWorld(GroupConfig(initial_rebalance_delay_ms=3_000, max_size=2))
        ids = [world.new_id() for _ in range(3)]
        tickets = [world.join(member_id) for member_id in ids]
        assert world.code(tickets[2]) is ErrorCode.GROUP_MAX_SIZE_REACHED
        world.advance(6_000)
        assert world.joined(tickets[0]).generation_id == 1
        assert set(world.group().members) == set(ids[:2])

    def test_group_max_size_lowered(self) -> None:
        world = ShardWorld()
        ids = world.stable_group(3)
        world.shard.core.config = GroupConfig(initial_rebalance_delay_ms=0, max_size=1)
        stay = world.join(ids[1], protocols=(("range", subscription("b")),))
        gone = world.join(ids[0])
        assert world.code(gone) is ErrorCode.GROUP_MAX_SIZE_REACHED
        world.advance(SESSION_MS)
        assert world.joined(stay).leader == ids[1]
        assert set(world.group().members) == {ids[1]}

    def test_group_max_size_does_not_keep_the_join_phase_waiting(self) -> None:
        """As in Kafka, a refused member is removed at once, so the others need not wait for it."""
        world = ShardWorld()
        ids = world.stable_group(3)
        world.shard.core.config = GroupConfig(initial_rebalance_delay_ms=0, max_size=1)
        stay = world.join(ids[1], protocols=(("range", subscription("b")),))
        for gone in (ids[0], ids[2]):
            assert world.code(world.join(gone)) is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert world.joined(stay).leader == ids[1]
        assert set(world.group().members) == {ids[1]}

    def test_group_max_size_removes_no_member_for_a_foreign_instance_id(self) -> None:
        """G8: member id and instance id must belong together before a member is removed."""
        world = ShardWorld()
        ids = world.stable_group(2)
        pending = world.new_id()
        world.shard.core.config = GroupConfig(initial_rebalance_delay_ms=0, max_size=1)
        world.join(ids[1], protocols=(("range", subscription("b")),))
        for member_id in (ids[0], pending):
            ticket = world.join(member_id, instance="another")
            assert world.code(ticket) is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert set(world.group().members) == set(ids)
        assert world.group().pending == {pending}

    def test_group_that_loads_above_max_size_rebalances(self) -> None:
        """KAFKA-9844: Kafka begins a rebalance as soon as it has loaded such a group."""
        world = ShardWorld()
        ids = world.stable_group(2)
        world.config = GroupConfig(initial_rebalance_delay_ms=0, max_size=2)
        assert world.restarted().state() is GroupState.STABLE
        world.config = GroupConfig(initial_rebalance_delay_ms=0, max_size=1)
        loaded = world.restarted()
        assert loaded.state() is GroupState.PREPARING_REBALANCE
        assert loaded.heartbeat(ids[0], 1) is ErrorCode.REBALANCE_IN_PROGRESS
        stay, gone = loaded.join(ids[0]), loaded.join(ids[1])
        assert loaded.code(gone) is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert loaded.joined(stay).generation_id == 2

    def test_version_0_uses_the_session_timeout_for_rebalances(self) -> None:
        world = ShardWorld()
        world.join(version=0, rebalance_ms=-1)
        (member,) = world.group().members.values()
        assert member.rebalance_timeout_ms == SESSION_MS
