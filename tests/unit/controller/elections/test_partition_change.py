"""Partition changes as transcripts, in the format that `partition_changes.txt` describes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.configs.topic_settings import RecoveryStrategy
from controller.elections.cause import Cause
from controller.elections.election import Election, ThisBroker, Wish
from controller.elections.eligibility import (
    ELIGIBLE,
    ElectionOrder,
    Eligibility,
    Ineligible,
    PartitionReplicas,
    Reason,
    assignment_order,
)
from controller.elections.elr import LastKnownMode
from controller.elections.partition_change import (
    PartitionChange,
    Safety,
    Target,
    decide_change,
    replicas_of,
    written,
)
from metalog.image.replay import merge_partition_change
from metalog.image.values import ElectedAs, PartitionImage
from protocol.metadata import PartitionChangeRecord

TOPIC_ID = b"t" * 16
LISTS = ("replicas", "isr", "elr", "last_known_elr", "adding", "removing")
SHORT = {"lk": "last_known_elr", "state": "recovery_state", "epoch": "leader_epoch"}


def ids(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def words(line: str) -> dict[str, str]:
    result = {}
    for word in line.split():
        key, _, value = word.partition("=")
        result[SHORT.get(key, key)] = value
    return result


def partition(line: str) -> PartitionImage:
    given = words(line)
    replicas = ids(given["replicas"])
    return PartitionImage(
        replicas=replicas,
        directories=tuple(bytes([r]) * 16 for r in replicas),
        isr=ids(given.get("isr", given["replicas"])),
        removing=ids(given.get("removing", "")),
        adding=ids(given.get("adding", "")),
        elr=ids(given.get("elr", "")),
        last_known_elr=ids(given.get("last_known_elr", "")),
        leader=int(given.get("leader", replicas[0])),
        leader_epoch=10,
        partition_epoch=20,
        recovery_state=int(given.get("recovery_state", 0)),
    )


def safety(
    given: dict[str, str], *, order: ElectionOrder = assignment_order, now_ms: int = 0
) -> Safety:
    dead = ids(given.get("dead", ""))

    gone = ids(given.get("gone", ""))

    def eligibility_of(partition: PartitionReplicas, broker_id: int) -> Eligibility:
        assert partition.topic_id == TOPIC_ID
        if broker_id in gone:
            return Ineligible(Reason.DIRECTORY_OFFLINE)
        return Ineligible(Reason.FENCED) if broker_id in dead else ELIGIBLE

    return Safety(
        min_isr=int(given.get("min", 1)),
        elr_enabled="elr_on" in given,
        last_known_mode=LastKnownMode.WHOLE_SET if "whole" in given else LastKnownMode.LAST_LEADER,
        strategy=RecoveryStrategy(given.get("strategy", "Balanced")),
        last_known_electable="lk_off" not in given,
        unclean_shutdown=frozenset(ids(given.get("unclean", ""))),
        eligibility_of=eligibility_of,
        order=order,
        now_ms=now_ms,
        keeps_local_logs=False,
        metadata_version=int(given.get("mv", 30)),
    )


def election(word: str) -> Election:
    """Parse a `Wish`, `recovery:2` or `designated:2`."""
    kind, _, broker = word.partition(":")
    if broker:
        kinds = {"recovery": ElectedAs.UNCLEAN_RECOVERY, "designated": ElectedAs.DESIGNATED}
        return ThisBroker(int(broker), kinds[kind])
    return Wish(kind)


def change_partition(
    partition: PartitionImage, *, topic_id: bytes, partition_id: int, touch: bool, **given: Any
) -> PartitionChange | None:
    decided = decide_change(
        partition, topic_id=topic_id, partition_id=partition_id, reported_logs=None, **given
    )
    return written(decided, partition, partition_id, is_report=False, touch=touch)


def change(before: PartitionImage, line: str) -> PartitionChange | None:
    given = words(line)
    target = Target(
        isr=ids(given["isr"]) if "isr" in given else None,
        replicas=ids(given["replicas"]) if "replicas" in given else None,
        directories=(
            tuple(bytes([r]) * 16 for r in ids(given["replicas"])) if "replicas" in given else None
        ),
        adding=ids(given["adding"]) if "adding" in given else None,
        removing=ids(given["removing"]) if "removing" in given else None,
    )
    return change_partition(
        before,
        topic_id=TOPIC_ID,
        partition_id=7,
        target=target,
        election=election(given.get("elect", "online")),
        cause=Cause.BROKER_FENCED,
        safety=safety(given),
        touch="touch" in given,
    )


def describe(before: PartitionImage, changed: PartitionChange | None) -> str:
    if changed is None:
        return "nothing"
    after = merge_partition_change(before, changed.record)
    assert after.partition_epoch == before.partition_epoch + 1
    assert changed.record.topic_id == TOPIC_ID
    assert changed.record.partition_id == 7
    assert changed.elected.leader == after.leader
    parts = []
    if after.leader != before.leader:
        parts.append(f"leader={after.leader}")
    for name in LISTS:
        if getattr(after, name) != getattr(before, name):
            short = "lk" if name == "last_known_elr" else name
            parts.append(f"{short}={','.join(map(str, getattr(after, name)))}")
    if after.recovery_state != before.recovery_state:
        parts.append(f"state={after.recovery_state}")
    if after.leader_epoch != before.leader_epoch:
        parts.append(f"le+{after.leader_epoch - before.leader_epoch}")
    return " ".join(parts) or "epoch only"


CASES = Path(__file__).with_name("partition_changes.txt")


def parse_cases() -> list[tuple[str, str, str]]:
    cases = []
    for line in CASES.read_text().splitlines():
        if line and not line.startswith("#"):
            before, what, after = (part.strip() for part in line.split("|"))
            cases.append((before, what, after))
    return cases


@pytest.mark.parametrize(("before", "what", "after"), parse_cases())
def test_transcript(before: str, what: str, after: str) -> None:
    start = partition(before)
    assert describe(start, change(start, what)) == after


def test_every_safety_input_is_required() -> None:
    """A caller that omits a safety input must fail at once, not elect in the wrong way."""
    given = safety({})
    for name in Safety.__slots__:
        inputs = {other: getattr(given, other) for other in Safety.__slots__ if other != name}
        with pytest.raises(TypeError):
            Safety(**inputs)


def test_the_election_has_an_order_of_its_own() -> None:
    before = partition("replicas=1,2,3 isr=1,2,3 leader=1")
    asked: list[tuple[PartitionReplicas, tuple[int, ...], int]] = []

    def reversed_order(
        partition: PartitionReplicas, replicas: tuple[int, ...], now_ms: int
    ) -> tuple[int, ...]:
        asked.append((partition, replicas, now_ms))
        return tuple(reversed(replicas))

    changed = change_partition(
        before,
        topic_id=TOPIC_ID,
        partition_id=0,
        target=Target(),
        election=Wish.PREFERRED,
        cause=Cause.PREFERRED_REQUEST,
        safety=safety({}, order=reversed_order, now_ms=99),
        touch=False,
    )
    assert changed is not None
    assert changed.record.leader == 3
    assert changed.record.replicas is None
    place = replicas_of(TOPIC_ID, 0, before)
    assert place == PartitionReplicas(TOPIC_ID, 0, before.replicas, before.directories)
    assert asked == [(place, (1, 2, 3), 99)]


def test_elections_see_the_partition_as_it_will_be() -> None:
    """Elections use the replicas and directories at the end of a reassignment, not those before."""
    before = partition("replicas=1,2,3,4 adding=4 removing=1 isr=1,2,3,4 leader=1")
    seen = set()

    def order(
        partition: PartitionReplicas, replicas: tuple[int, ...], now_ms: int
    ) -> tuple[int, ...]:
        seen.add(partition)
        return replicas

    change_partition(
        before,
        topic_id=TOPIC_ID,
        partition_id=5,
        target=Target(),
        election=Wish.ONLINE,
        cause=Cause.REASSIGNMENT,
        safety=safety({}, order=order),
        touch=False,
    )
    assert seen == {
        PartitionReplicas(TOPIC_ID, 5, (2, 3, 4), tuple(bytes([r]) * 16 for r in (2, 3, 4)))
    }


def test_a_reassignment_waits_for_min_isr() -> None:
    before = partition("replicas=1,2,3 isr=1,2 leader=1 removing=3")
    assert describe(before, change(before, "min=2")).startswith("replicas=1,2")


def test_directories_follow_their_replicas() -> None:
    before = partition("replicas=1,2,3,4 adding=4 removing=1 isr=1,2,3,4 leader=2")
    changed = change(before, "")
    assert changed is not None
    after = merge_partition_change(before, changed.record)
    assert after.directories == tuple(bytes([r]) * 16 for r in after.replicas)


def test_directory_change_alone_writes_a_record() -> None:
    before = partition("replicas=2,1,3 isr=2,1,3 leader=2")
    directories = (before.directories[0], b"lost" * 4, b"here" * 4)
    changed = change_partition(
        before,
        topic_id=TOPIC_ID,
        partition_id=7,
        target=Target(directories=directories),
        election=Wish.ONLINE,
        cause=Cause.DIRECTORY_FAILED,
        safety=safety({}),
        touch=False,
    )
    assert changed is not None
    assert changed.record == PartitionChangeRecord(
        topic_id=TOPIC_ID, partition_id=7, directories=list(directories)
    )
    assert describe(before, changed) == "epoch only"


@pytest.mark.parametrize(
    ("before", "what", "kind"),
    [
        ("replicas=1,2,3", "isr=2,3 dead=1", ElectedAs.ISR),
        ("replicas=1,2,3 isr=1", "isr= dead=1", ElectedAs.NONE),
        ("replicas=1,2,3 leader=2", "elect=preferred", ElectedAs.PREFERRED),
        # there was no leader, so no leader was replaced
        ("replicas=1,2,3 isr=1,2 leader=-1", "elect=preferred", ElectedAs.ISR),
        ("replicas=1,2,3 isr= elr=3,2 lk=3 leader=-1", "dead=1,3 min=2 elr_on", ElectedAs.ELR),
        ("replicas=1,2,3 isr= lk=3 leader=-1", "dead=1,2 elr_on", ElectedAs.LAST_KNOWN_LEADER),
        ("replicas=1,2,3 isr=1", "elect=unclean dead=1", ElectedAs.UNCLEAN),
        ("replicas=1,2,3 isr=1", "elect=recovery:3 dead=1", ElectedAs.UNCLEAN_RECOVERY),
        ("replicas=1,2,3 isr=1,2", "elect=recovery:3 dead=1", ElectedAs.ISR),
        ("replicas=1,2,3 isr=1", "elect=designated:3 dead=1", ElectedAs.DESIGNATED),
        ("replicas=1,2,3 isr=1,2", "elect=designated:3 dead=1", ElectedAs.DESIGNATED),
        # the leader stays and gets a new epoch: there was no election
        ("replicas=1,2,3,4 adding=4 isr=1,2,3", "replicas=1,2,3 adding=", ElectedAs.NONE),
    ],
)
def test_record_with_a_leader_contains_the_election_kind_and_cause(
    before: str, what: str, kind: ElectedAs
) -> None:
    changed = change(partition(before), what)
    assert changed is not None and changed.record.leader != -2
    assert changed.record.election_kind == kind
    assert changed.record.election_cause == "broker-fenced"


def test_record_without_a_leader_contains_no_election_kind_or_cause() -> None:
    changed = change(partition("replicas=1,2,3 leader=2"), "isr=2,3 dead=1")
    assert changed is not None and changed.record.isr == [2, 3]
    assert (changed.record.election_kind, changed.record.election_cause) == (0, "")
