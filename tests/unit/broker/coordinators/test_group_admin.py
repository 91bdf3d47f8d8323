"""ListGroups and DescribeGroups: groups with members, without members, and with offsets alone."""

from __future__ import annotations

import pytest

from broker.coordinators.group.states import GroupState
from protocol.errors import ErrorCode
from testkit.memory.group_shard import GROUP, ShardWorld, subscription

ALL: frozenset[str] = frozenset()


def listed(
    world: ShardWorld, *, states: frozenset[str] = ALL, types: frozenset[str] = ALL
) -> list[tuple[str, str]]:
    return [(one.group_id, one.group_state) for one in world.shard.list_groups(states, types)]


def test_groups_are_listed_by_state_and_type() -> None:
    """Each group is listed once, whether it has members, offsets or both."""
    world = ShardWorld()
    (member,) = world.stable_group()
    world.commit({("a", 0): 1}, member_id=member, generation=1)
    world.commit({("a", 0): 1}, group="offsets")
    assert listed(world) == [(GROUP, "Stable"), ("offsets", "Empty")]
    assert listed(world, states=frozenset({"empty"})) == [("offsets", "Empty")]
    assert listed(world, types=frozenset({"classic", "share"})) == listed(world)
    assert listed(world, types=frozenset({"consumer"})) == []


def test_an_empty_group_is_listed_once_its_record_is_committed() -> None:
    world = ShardWorld()
    member = world.new_id()
    world.join(member)
    world.advance(0)
    world.hold_commits = True
    world.leave((member, None))
    assert world.state() is GroupState.EMPTY
    assert listed(world) == []
    world.commit_next()
    assert listed(world) == [(GROUP, "Empty")]


def test_members_are_described_with_metadata_while_the_group_is_stable() -> None:
    world = ShardWorld()
    (member,) = world.stable_group()
    described = world.shard.describe_group(GROUP, 6)
    (one,) = described.members
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert (one.member_id, one.member_metadata) == (member, subscription("a"))
    world.new_id()
    world.join(world.new_id())
    described = world.shard.describe_group(GROUP, 6)
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert [one.member_metadata for one in described.members] == [b"", b""]


def test_a_group_of_offsets_alone_is_empty() -> None:
    world = ShardWorld()
    world.commit({("a", 0): 1})
    described = world.shard.describe_group(GROUP, 6)
    assert (described.group_state, described.error_code) == ("Empty", ErrorCode.NONE)


@pytest.mark.parametrize(
    ("version", "told"),
    [(5, (ErrorCode.NONE, None)), (6, (ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found."))],
)
def test_a_group_that_is_not_there_is_dead(version: int, told: tuple[ErrorCode, str]) -> None:
    described = ShardWorld().shard.describe_group(GROUP, version)
    assert described.group_state == "Dead"
    assert (described.error_code, described.error_message) == told
