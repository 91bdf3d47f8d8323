"""The three verdicts of an audit, and losses that a replica's log proves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from audit.checks.data.base import PartitionView, Replica
from audit.checks.data.lost_records import LostRecords
from audit.decoding.batches import BatchIdentity
from audit.inputs.metadata_log import Segment
from audit.inputs.replicas import ReplicaFiles
from audit.job import BROKEN, MAY_BE_LOST, exit_code
from audit.planning.partitions import LossyElection, PartitionWork
from audit.report.html import as_html
from audit.report.text import verdict
from testkit.records.metadata_logs import LogBuilder, audited

ELECTION = LossyElection(offset=7, timestamp_ms=9, leader=3, leader_epoch=2)


def replica(broker: int, *batches: tuple[int, int, int]) -> Replica:
    """Return a replica with batches (base offset, next offset, epoch)."""
    segments = (Segment("", 0, 0),)
    files = ReplicaFiles("t", 0, broker, "", None, 0, None, segments)
    made = Replica(files)
    made.batches = {base: BatchIdentity(end, epoch, 0) for base, end, epoch in batches}
    return made


def complaints(*replicas: Replica, compacted: bool = False) -> list[Any]:
    files = tuple(one.files for one in replicas)
    work = PartitionWork("t", 0, files, 3, 2, None, compacted, (), (ELECTION,))
    return list(LostRecords().on_partition(PartitionView(work, replicas, replicas[0])))


def test_records_beyond_the_leaders_begin_are_lost() -> None:
    """The old leader has not truncated yet: its log proves the loss."""
    (found,) = complaints(
        replica(3, (0, 5, 0), (5, 6, 2)), replica(1, (0, 5, 0), (5, 8, 1)), replica(2, (0, 6, 1))
    )
    assert found.message == (
        "3 offsets are lost in t-0: the log of broker 1 reaches offset 8 in earlier leader epochs, "
        "and leader epoch 2 of broker 3 begins at 5"
    )
    assert (found.after["offsets"], found.offset) == (3, 7)


def test_leader_that_wrote_nothing_begins_at_its_end() -> None:
    (found,) = complaints(replica(3, (0, 5, 0)), replica(1, (0, 6, 1)))
    assert found.message.startswith("1 offset is lost in t-0: the log of broker 1 reaches offset 6")


@pytest.mark.parametrize(
    "others",
    [
        [replica(3, (0, 5, 0), (5, 6, 2)), replica(1, (0, 5, 0), (5, 6, 2))],
        [replica(1, (0, 9, 0))],
        [replica(3, (0, 5, 0), (5, 6, 2)), replica(1)],
    ],
    ids=["truncated", "the leader's log is unknown", "an empty replica"],
)
def test_logs_without_a_conflict_prove_nothing(others: list[Replica]) -> None:
    assert complaints(*others) == []


def test_records_that_a_later_leader_has_are_not_lost() -> None:
    """Broker 1 lost an election and won the next one, so all its records are in the log again."""
    log = ((0, 5, 0), (5, 8, 1))
    assert complaints(replica(1, *log), replica(3, (0, 5, 0))) == []


def test_compacted_partition_is_not_compared() -> None:
    assert complaints(replica(3, (0, 5, 0)), replica(1, (0, 6, 1)), compacted=True) == []


@pytest.fixture
def lossy(tmp_path: Path) -> dict[str, Any]:
    """Return the audit of a log with an unclean election of t-0."""
    builder = LogBuilder().begin()
    builder.topic()
    builder.fence(2, builder.change(isr=[1, 3]))
    builder.fence(3, builder.change(isr=[1], eligible_leader_replicas=[3]))
    change = builder.change(isr=[], leader=-1, eligible_leader_replicas=[3], last_known_elr=[1])
    builder.fence(1, change)
    builder.unfence(2)
    left = {"eligible_leader_replicas": [], "last_known_elr": [], "leader_recovery_state": 1}
    builder.add(builder.change(isr=[2], leader=2, **left))
    return audited(builder.write(tmp_path))


def test_lossy_election_is_a_verdict_of_its_own(lossy: dict[str, Any]) -> None:
    """First hours, fault 4: "every promise holds", exit code 0, over lost data."""
    summary = lossy["summary"]
    assert (summary["verdict"], exit_code(summary)) == ("may-be-lost", MAY_BE_LOST)
    assert summary["losses"] == [
        {"topic": "t", "partition": 0, "elections": 1, "kinds": {"unclean": 1}, "offsets": None}
    ]
    assert verdict(summary) == (
        "records may be lost: 1 election of leaders that may lack some, in t-0; every promise holds"
    )
    assert '<p class="verdict lossy">' in as_html(lossy)
    (finding,) = [one for one in lossy["findings"] if one["check"] == "lossy-election"]
    assert finding["message"].endswith("records that it had not fetched before may be lost")


def test_proven_losses_are_counted_in_the_verdict(lossy: dict[str, Any]) -> None:
    lossy["summary"]["losses"][0]["offsets"] = 3
    text = "; at least 3 offsets are lost in t-0: another replica's log has them; every"
    assert text in verdict(lossy["summary"])


def test_broken_promise_outweighs_a_possible_loss(lossy: dict[str, Any]) -> None:
    summary = {**lossy["summary"], "verdict": "broken"}
    assert exit_code(summary) == BROKEN
    assert "BROKEN: a promise was broken" in verdict(summary)
    assert "records may be lost: 1 election" in verdict(summary)
