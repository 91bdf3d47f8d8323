"""The laws of elections: clean by the records, and clean by the named disks."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from metalog.image.values import ElectedAs, LeaderRecoveryState, PartitionImage
from protocol.ids import DIRECTORY_UNASSIGNED
from simulation.judges.election_laws import Election, ElectionLaws
from simulation.judges.election_truth import PartitionElections
from simulation.shapes.shape import NOBODY
from simulation.world.invariants import Violation

pytestmark = pytest.mark.sim

OLD_DISK, NEW_DISK = b"o" * 16, b"n" * 16


def elected(
    kind: ElectedAs,
    was: bytes,
    now: bytes,
    *,
    asked: bool = True,
    joins: bool = False,
    begins: str = "",
    elr_level: int | None = None,
) -> ElectionLaws:
    """Elect the only replica of a partition, whose broker has registered with a new disk.

    Variants:
    - It `joins` the ISR at the end of a move from replica 4.
    - A move `begins` while 4 is dead, and 5 is added or removed by it.
    - It is in the ELR, with the feature at `elr_level`.
    """
    broker = SimpleNamespace(directories=(NEW_DISK,), fenced=False)
    image: Any = SimpleNamespace(
        cluster=SimpleNamespace(brokers={5: broker}), elr_enabled=bool(elr_level)
    )
    recovers = kind is ElectedAs.UNCLEAN
    old = PartitionImage(
        replicas=(5,),
        directories=(was,),
        isr=(5,),
        removing=(),
        adding=(),
        elr=(),
        last_known_elr=(),
        leader=-1,
        leader_epoch=1,
        partition_epoch=1,
    )
    if joins:
        old = old._replace(replicas=(5, 4), directories=(was, OLD_DISK), isr=(4,), leader=4)
    if begins == "added":
        old = old._replace(replicas=(4,), directories=(OLD_DISK,), isr=(), elr=(4,))
    if begins == "removed":
        old = old._replace(replicas=(4, 5), directories=(OLD_DISK, was), isr=(), elr=(4,))
    if elr_level is not None:
        old = old._replace(isr=(), elr=(5,))
    new = old._replace(
        replicas=(5,),
        elr=(),
        directories=(now,),
        isr=(5,),
        leader=5,
        recovery_state=LeaderRecoveryState.RECOVERING if recovers else old.recovery_state,
    )
    if begins == "added":
        new = new._replace(
            replicas=(5, 4), directories=(now, OLD_DISK), adding=(5,), removing=(4,), elr=()
        )
    if begins == "removed":
        new = new._replace(
            replicas=(6, 4, 5),
            directories=(OLD_DISK, OLD_DISK, now),
            adding=(6,),
            removing=(5,),
            elr=(),
        )
    truth: Any = SimpleNamespace(strategy=lambda *_: NOBODY)
    laws = ElectionLaws(truth, ())
    if asked:
        laws.asked.add(("t", 0))
    record: Any = SimpleNamespace(election_kind=kind)
    laws.judge(Election("record 1, t-0", "t", (b"t", 0), image, old, new, record, 1.0))
    return laws


def test_a_member_whose_disk_is_gone_is_elected_uncleanly() -> None:
    """P22: it is in the ISR by name only, and its new disk is empty (tiered seed 396)."""
    laws = elected(ElectedAs.UNCLEAN, OLD_DISK, NEW_DISK)
    assert laws.committed == {ElectedAs.UNCLEAN: 1}
    with pytest.raises(Violation, match="^P21: .* is elected as ISR"):
        elected(ElectedAs.ISR, OLD_DISK, NEW_DISK)
    with pytest.raises(Violation, match="^P21"):
        elected(ElectedAs.UNCLEAN, OLD_DISK, NEW_DISK, asked=False)


@pytest.mark.parametrize("was", [NEW_DISK, DIRECTORY_UNASSIGNED])
def test_a_member_that_has_its_disk_is_elected_cleanly(was: bytes) -> None:
    """P22: no replica counts as lost if no directory was on record."""
    assert elected(ElectedAs.ISR, was, NEW_DISK).committed == {ElectedAs.ISR: 1}
    with pytest.raises(Violation, match="^P22: .* the record has UNCLEAN"):
        elected(ElectedAs.UNCLEAN, was, NEW_DISK)


def test_replica_complete_on_its_new_disk_is_elected_cleanly_as_its_move_ends() -> None:
    """P22, seed 623: the replica was in no ISR with the old disk."""
    assert elected(ElectedAs.ISR, OLD_DISK, NEW_DISK, joins=True).committed == {ElectedAs.ISR: 1}
    with pytest.raises(Violation, match="^P22: .* the record has UNCLEAN"):
        elected(ElectedAs.UNCLEAN, OLD_DISK, NEW_DISK, joins=True)


def test_an_elr_counts_while_the_feature_is_on() -> None:
    """P21, P22, seed 5490: after the feature is switched off, a remaining ELR is no proof of
    records."""
    chosen = partial(elected, was=NEW_DISK, now=NEW_DISK)
    assert chosen(ElectedAs.ELR, elr_level=1).committed == {ElectedAs.ELR: 1}
    with pytest.raises(Violation, match="^P22"):
        chosen(ElectedAs.UNCLEAN, elr_level=1)
    assert chosen(ElectedAs.UNCLEAN, elr_level=0).committed == {ElectedAs.UNCLEAN: 1}
    with pytest.raises(Violation, match="^P21"):
        chosen(ElectedAs.ELR, elr_level=0)


@pytest.mark.parametrize("kind", [ElectedAs.ISR, ElectedAs.UNCLEAN])
@pytest.mark.parametrize("begins", ["added", "removed"])
def test_replica_elected_as_its_move_begins_counts_as_incomplete(
    kind: ElectedAs, begins: str
) -> None:
    """P21, P22, seeds 818 and 1031: the record that begins a move of a leaderless partition elects.

    Its leader is a replica that is only being added, or one that is being removed.
    """
    begun = partial(elected, kind, NEW_DISK, NEW_DISK, begins=begins)
    if kind is ElectedAs.UNCLEAN:
        assert begun().committed == {ElectedAs.UNCLEAN: 1}
        with pytest.raises(Violation, match="^P21: .* by the strategy"):
            begun(asked=False)
    else:
        with pytest.raises(Violation, match="^P21: .* is elected as ISR and was in neither ISR"):
            begun()


@pytest.mark.parametrize(
    ("committed_ms", "written_ms", "holds"),
    [(300, 0, True), (299, 298, False), (297, 299, True), (0, 300, True)],
)
def test_replica_that_has_not_responded_in_time_is_not_awaited(
    committed_ms: int, written_ms: int, holds: bool
) -> None:
    """P21: the time counts from the controller's decision, which may be committed late (seed
    181)."""
    mine = PartitionElections(leaderless_s=1.0, leaderless_ms=5_000)
    key = (b"t", 0)
    truth: Any = SimpleNamespace(of={key: mine}, timeout_ms=lambda image: 300)
    nothing: Any = None
    one = Election(
        "record 2, t-0", "t", key, nothing, nothing, nothing, nothing,
        1.0 + committed_ms / 1000, 5_000 + written_ms,
    )  # fmt: skip
    assert ElectionLaws(truth, ())._has_waited(one) is holds
