"""Consumer groups in the swarm: checks of the members' answers, and that all operations occur."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.internal import encode_versioned
from protocol.internal.consumer_protocol_subscription import ConsumerProtocolSubscription
from protocol.internal.group_metadata import GroupMetadataKey, GroupMetadataValue
from protocol.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol.messages.offset_commit import OffsetCommitResponse
from simulation.clients import final_reads
from simulation.clients.groups import Member
from simulation.event import Event
from simulation.judges.compacted import Keyed, KeyTable
from simulation.judges.expiry import At, OffsetLives
from simulation.judges.groups import GroupTruth, Holder, committed_offsets
from simulation.judges.ledger import PartitionLedger
from simulation.judges.partitions import OFFSETS_TOPIC
from simulation.schedule import Schedule
from simulation.shapes.shape import ClientShape, DiskShape, LinkShape, NodeShape, Shape, TopicShape
from simulation.swarm import RunOutcome, run
from simulation.world.invariants import Violation
from testkit.planting import Bug, Patch
from tests.sim.small_cluster import schedule

pytestmark = pytest.mark.sim

KEY = (b"topic", 0)
GROUP_KEY = b"\x00\x02" + encode(GroupMetadataKey(group="g"), 0)
A, B = frozenset({("t", 0)}), frozenset({("t", 1)})


def stable() -> GroupTruth:
    """Return generation 3, in which x has A and y has B."""
    truth = GroupTruth("g")
    truth.planned(3, {"x-1": A, "y-1": B})
    truth.synced("x", "x-1", 3, A, 10.0)
    truth.synced("y", "y-1", 3, B, 11.0)
    return truth


def committed(
    truth: GroupTruth, offset: int, begin_s: float, end_s: float, generation: int = 3
) -> None:
    truth.committed(truth.committing(KEY, offset, generation, begin_s), end_s)


def nobody_planned_it(truth: GroupTruth) -> None:
    truth.synced("x", "x-1", 4, A, 12.0)


def another_leaders_plan(truth: GroupTruth) -> None:
    truth.planned(4, {"x-1": A, "y-1": B})
    truth.planned(4, {"x-1": A | B})
    truth.synced("y", "y-1", 4, B, 12.0)
    truth.synced("x", "x-1", 4, A | B, 12.0)


def one_partition_twice(truth: GroupTruth) -> None:
    truth.planned(4, {"x-1": A, "y-1": A})
    truth.synced("x", "x-1", 4, A, 12.0)
    truth.synced("y", "y-1", 4, A, 12.0)


def back_to_an_older_generation(truth: GroupTruth) -> None:
    truth.planned(2, {"x-1": A})
    truth.synced("x", "x-1", 2, A, 12.0)


def a_commit_of_an_older_generation(truth: GroupTruth) -> None:
    truth.planned(4, {"y-1": A})
    truth.synced("y", "y-1", 4, A, 12.0)
    committed(truth, 7, 13.0, 14.0)


def anothers_share(truth: GroupTruth) -> None:
    truth.planned(4, {"x-1": A, "y-1": B})
    truth.synced("x", "x-1", 4, B, 12.0)


def a_heartbeat_of_an_older_generation(truth: GroupTruth) -> None:
    truth.planned(4, {"y-1": A | B})
    truth.synced("y", "y-1", 4, A | B, 12.0)
    truth.confirmed("x-1", 3, 12.5)


def a_partition_of_an_older_generation(truth: GroupTruth) -> None:
    truth.planned(2, {"z-1": A})
    truth.synced("z", "z-1", 2, A, 12.0, asked_s=11.5)


def an_older_offset(truth: GroupTruth) -> None:
    committed(truth, 7, 12.0, 13.0)
    committed(truth, 8, 14.0, 15.0)
    truth.fetched(KEY, 7, 16.0, 17.0)


def no_offset(truth: GroupTruth) -> None:
    committed(truth, 7, 12.0, 13.0)
    truth.fetched(KEY, -1, 14.0, 15.0)


def an_offset_of_nobody(truth: GroupTruth) -> None:
    truth.fetched(KEY, 9, 14.0, 15.0)


@pytest.mark.parametrize(
    ("code", "do"),
    [
        ("G1", nobody_planned_it),
        ("G1", another_leaders_plan),
        ("G2", one_partition_twice),
        ("G3", anothers_share),
        ("G3", a_heartbeat_of_an_older_generation),
        ("G5", a_partition_of_an_older_generation),
        ("G6", back_to_an_older_generation),
        ("G8", a_commit_of_an_older_generation),
        ("G9", an_older_offset),
        ("G9", no_offset),
        ("G9", an_offset_of_nobody),
    ],
)
def test_each_rule_finds_its_own(code: str, do: Callable[[GroupTruth], None]) -> None:
    with pytest.raises(Violation, match=f"^{code}:"):
        do(stable())


def test_returned_static_member_keeps_its_assignment() -> None:
    truth = stable()
    truth.planned(4, {"x-1": A, "y-1": B})
    truth.synced("x", "x-2", 4, A, 12.0)
    with pytest.raises(Violation, match=r"^G3:.*x-3"):
        truth.synced("x", "x-3", 4, B, 13.0)


def test_an_answer_may_be_overtaken_by_a_newer_generation() -> None:
    truth = stable()
    truth.planned(2, {"z-1": A})
    truth.synced("z", "z-1", 2, A, 12.0, asked_s=9.5)  # 3 was known at 10
    truth.confirmed("z-1", 2, 9.5)


X, Y = Holder("x-1", False, A, False), Holder("y-1", False, B, False)


@pytest.mark.parametrize(
    ("holders", "wrong"),
    [
        ((X, Y), None),
        ((X, Y._replace(member_id="y-2", static=True)), None),
        ((X, Y._replace(member_id="y-2")), "not a leader's assignment"),
        ((X,), "not a leader's assignment"),
        ((X, Y._replace(share=A)), "not a leader's assignment"),
        ((X, Y, Holder("z-1", True, frozenset(), False)), "not a leader's assignment"),
        ((X, Y._replace(waits=True)), r"\['y-1'\] wait"),
        ((Y,), "x-1 leads"),
    ],
)
def test_stable_group_has_the_assignment_of_its_leader(
    holders: tuple[Holder, ...], wrong: str | None
) -> None:
    """G4: each member holds what the leader's assignment gives it."""
    found = stable().held(3, "x-1", holders)
    assert found is None if wrong is None else re.search(wrong, found or ""), found


def test_commit_in_flight_may_be_seen_or_not() -> None:
    truth = stable()
    committed(truth, 7, 12.0, 13.0)
    truth.committing(KEY, 8, 3, 13.5)  # never answered: it may take effect at any time
    committed(truth, 9, 14.0, 16.0)
    for offset in (7, 8, 9):
        truth.fetched(KEY, offset, 15.0, 15.5)
    truth.fetched(KEY, 8, 20.0, 21.0)
    with pytest.raises(Violation, match="G9"):
        truth.fetched(KEY, 7, 20.0, 21.0)


def test_members_must_reach_one_generation() -> None:
    truth = stable()
    assert truth.unsettled() is None
    truth.members["z"] = -1
    assert truth.unsettled() is not None


def offsets_record(group: str, partition: int, offset: int | None) -> Keyed:
    key = b"\x00\x01" + encode(OffsetCommitKey(group=group, topic="t", partition=partition), 0)
    if offset is None:
        return Keyed(key, None)
    return Keyed(key, encode_versioned(OffsetCommitValue(offset=offset), 3))


def test_offsets_are_replayed_from_the_newest_record_of_each_key() -> None:
    table = KeyTable()
    written = (("g", 0, 5), ("g", 1, 6), ("h", 0, 7), ("g", 0, 8), ("g", 1, None))
    for at, record in enumerate(written):
        table.add(at, offsets_record(*record))
    table.add(9, Keyed(b"\x00\x02a group", b""))
    assert committed_offsets(table, "g") == {("t", 0): 8}


HELD = At("g", "t", 0)
NOBODY = GroupMetadataValue(protocol_type="consumer", current_state_timestamp=500)
SUBSCRIBED = encode_versioned(ConsumerProtocolSubscription(topics=["t"]), 1)
READER = GroupMetadataValue.MemberMetadata(member_id="x-1", subscription=SUBSCRIBED)


def lives(group: GroupMetadataValue | None, expire_ms: int = -1) -> OffsetLives:
    """Return an offset committed at 100, with the group's newest record and a retention of
    1,000."""
    found = OffsetLives(1_000)
    key = b"\x00\x01" + encode(OffsetCommitKey(group="g", topic="t"), 0)
    value = OffsetCommitValue(offset=5, commit_timestamp=100, expire_timestamp=expire_ms)
    found.add(Keyed(key, encode_versioned(value, 3 if expire_ms < 0 else 1)), 100, ())
    if group is not None:
        found.add(Keyed(GROUP_KEY, encode_versioned(group, 3)), 500, ())
    return found


@pytest.mark.parametrize(
    ("group", "expire_ms", "end_ms"),
    [
        (None, -1, 1_100),
        (None, 300, 300),
        (NOBODY, -1, 1_500),
        (NOBODY, 300, 300),
        (GroupMetadataValue(protocol_type="consumer", members=[READER]), -1, None),
        (GroupMetadataValue(protocol_type="consumer", members=[READER]), 300, None),
    ],
)
def test_an_offset_may_end_when_its_time_is_over(
    group: GroupMetadataValue | None, expire_ms: int, end_ms: int | None
) -> None:
    """G9: an offset expires only after its own time or the group's retention."""
    gone = offsets_record("g", 0, None)
    assert lives(group, expire_ms).end_ms(HELD) == end_ms
    with pytest.raises(Violation, match="^G9:"):
        lives(group, expire_ms).add(gone, 10**9 if end_ms is None else end_ms - 1, ())
    assert lives(group, expire_ms).add(gone, 0, {"t"}) == HELD  # its topic is deleted
    if end_ms is not None:
        assert lives(group, expire_ms).going(end_ms) == HELD
        assert lives(group, expire_ms).add(gone, end_ms, ()) == HELD


def test_expired_offset_is_not_a_commit_any_more() -> None:
    truth = stable()
    committed(truth, 7, 12.0, 13.0)
    truth.expired(KEY, 14.0)
    truth.fetched(KEY, -1, 15.0, 16.0)
    with pytest.raises(Violation, match="^G9:"):
        truth.fetched(KEY, 7, 15.0, 16.0)


def test_deleted_group_begins_with_generation_1() -> None:
    truth = stable()
    gone, before = Keyed(GROUP_KEY, None), lives(NOBODY)
    before.add(offsets_record("g", 0, None), 1_500, ())
    assert before.add(gone, 1_500, ()) == "g" and lives(None).add(gone, 600, ()) is None
    truth.ended(12.0)
    truth.synced("x", "x-1", 3, A, 13.0, asked_s=11.0)  # of the group before
    truth.planned(1, {"z-1": A})
    truth.synced("z", "z-1", 1, A, 14.0, asked_s=13.0)
    committed(truth, 8, 15.0, 16.0, 1)


def test_a_group_with_members_or_offsets_stays() -> None:
    """G9: a group is deleted only without members and offsets."""
    gone = Keyed(GROUP_KEY, None)
    with pytest.raises(Violation, match=r"^G9: g went, .* offsets \W+At"):
        lives(NOBODY).add(gone, 600, ())
    joined = lives(GroupMetadataValue(protocol_type="consumer", members=[READER]))
    joined.add(offsets_record("g", 0, None), 0, {"t"})
    with pytest.raises(Violation, match=r"^G9: g went, with members \W+x-1"):
        joined.add(gone, 600, ())


async def test_member_of_a_deleted_group_joins_again() -> None:
    """A group without sessions and offsets is deleted: a later commit is refused with this code.

    The member had been cut off (tiered seed 156).
    """

    async def of_group(_group: str, _request: object) -> OffsetCommitResponse:
        one = OffsetCommitResponse.OffsetCommitResponsePartition(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND
        )
        topic = OffsetCommitResponse.OffsetCommitResponseTopic(partitions=[one])
        return OffsetCommitResponse(topics=[topic])

    truth = stable()
    load: Any = SimpleNamespace(
        new_client=lambda: SimpleNamespace(of_group=of_group),
        group=lambda _name: truth,
        ledgers=SimpleNamespace(
            partition=lambda topic, index: PartitionLedger(topic, index, b"topic")
        ),
        promises=SimpleNamespace(may_vanish=frozenset()),
        now_s=lambda: 12.0,
        number=lambda: 1,
    )
    member = Member(load, "x", "g", static=False)
    member._member_id, member._generation, member._share = "x-1", 3, A
    member._knows_brokers = True
    rng: Any = SimpleNamespace(random=lambda: 0.6, choice=lambda many: many[0])
    await member.step(rng)
    assert (member._member_id, member._generation, truth.members["x"]) == ("", -1, -1)


def lives_on() -> RunOutcome:
    """Let members join, commit and fetch; their coordinator fails, and they join again."""
    members = [
        ClientShape("member", f"m{n}", 50.0, {"group": "g", "static": n == 2}) for n in range(3)
    ]
    shape = Shape(
        nodes=(NodeShape(1, ("controller",)), *(NodeShape(n, ("broker",)) for n in (2, 3, 4))),
        topics=(TopicShape("t0", 3, 3, {"min.insync.replicas": "2"}),),
        settings={"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "200"},
        link=LinkShape(),
        disk=DiskShape(),
        clients=(ClientShape("acks all", "w", 50.0), *members),
        faults={},
    )
    lost = Event("e", 4000, "kill", "leader of __consumer_offsets-0", {"for_ms": 3000})
    return run(Schedule(1, shape, (lost,), 9000))


def test_coordinator_with_an_offset_that_its_log_lacks_is_found() -> None:
    with mock.patch.object(final_reads, "committed_offsets", lambda *_: {("t0", 0): -5}):
        broken = lives_on().broken
    assert broken is not None and broken.code == "G10", broken


def test_a_group_lives_through_the_loss_of_its_coordinator() -> None:
    outcome = lives_on()
    assert outcome.broken is None, outcome.broken
    assert outcome.took_effect == {"kill": 1}
    assert outcome.counts["generations"] >= 3
    assert outcome.counts["commits"] > 20 and outcome.counts["offsets asked"] > 20


def brief() -> Schedule:
    """Return a schedule with offsets that expire after a second, and a coordinator that fails."""
    end = Event("end", 3_000, "kill", f"leader of {OFFSETS_TOPIC}-0", {"for_ms": 2_000})
    drawn = schedule(end, quiet_from_ms=6_000, **{"offsets.retention.check.interval.ms": "300"})
    args = {"topic": "t0", "group": "brief", "lasts_ms": 1_000}
    client = ClientShape("brief committer", "brief", 100.0, args)
    return replace(drawn, shape=replace(drawn.shape, clients=(*drawn.shape.clients, client)))


def test_offsets_expire_within_a_run() -> None:
    """G9: no offset expires before its time, stays long after it, or returns."""
    outcome = run(brief(), keep=0)
    assert outcome.broken is None, outcome.broken
    assert outcome.took_effect == {"kill": 1}
    assert outcome.counts["offsets expired"] > 3


@pytest.mark.rest
@pytest.mark.parametrize(
    ("place", "old", "new", "words"),
    [
        (
            "_is_expired",
            "return _is_too_old(core, group, at, committed, now)",
            "return False",
            "is still there",
        ),
        ("_is_too_old", "now.wall_ms >= committed.expire_timestamp_ms", "True", "it lasts until"),
    ],
)
def test_offsets_that_expire_at_another_time_are_seen(
    place: str, old: str, new: str, words: str
) -> None:
    patch = Patch(f"broker.coordinators.group.expiry:{place}", old, new)
    broken = run(brief(), planted=[Bug("", "", "", "", (patch,)).planted], keep=0).broken
    assert broken is not None and broken.code == "G9" and words in broken.words, broken
