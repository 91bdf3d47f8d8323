"""Kinds of elections without the controller's note, in all small cases of its own elections."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple

import pytest

from audit.decoding.records import PartitionChange, partition_change
from audit.state.elections import NOTED_KINDS, ElectionKind, election_kind
from audit.state.shapes import ShapeKey, after_change
from controller.configs.topic_settings import RecoveryStrategy
from controller.elections.cause import Cause
from controller.elections.election import Election, ThisBroker, Wish
from controller.elections.eligibility import (
    ELIGIBLE,
    Eligibility,
    Ineligible,
    PartitionReplicas,
    Reason,
)
from controller.elections.elr import LastKnownMode
from controller.elections.partition_change import Safety, Target, decide_change
from metalog.image.features import LATEST_PRODUCTION_METADATA_VERSION
from metalog.image.values import NO_LEADER, ElectedAs, PartitionImage
from protocol.metadata import PartitionChangeRecord

TOPIC_ID = b"t" * 16
REPLICAS = (1, 2, 3)
MIN_ISR = 2
DIRECTORIES = tuple(bytes([r]) * 16 for r in REPLICAS)
ORDERS = ((1, 2, 3), (3, 1, 2))
"""Orders of election: the assignment, and one that local logs have changed (KIP-1303)."""
ELECTIONS: tuple[Election, ...] = (
    *Wish,
    *(ThisBroker(r, ElectedAs.UNCLEAN_RECOVERY) for r in REPLICAS),
    *(ThisBroker(r, ElectedAs.DESIGNATED) for r in REPLICAS),
)
ONLY_NOTED = {ElectionKind.UNCLEAN_RECOVERY, ElectionKind.DESIGNATED}
"""docs/audit.md: without the note these elections count as unclean."""


class Case(NamedTuple):
    """The visible part of a record: the partition before, and the change's fields without its note.

    It is not a PartitionChange, which is compared by identity.
    """

    before: ShapeKey
    fields: tuple[Any, ...]


def subsets(values: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [
        chosen for size in range(len(values) + 1) for chosen in itertools.combinations(values, size)
    ]


def partitions() -> Iterator[PartitionImage]:
    """Yield partitions with every ISR, ELR and LastKnownELR of three replicas that are valid."""
    for isr in subsets(REPLICAS):
        # At min ISR there is no ELR.
        outside = () if len(isr) >= MIN_ISR else tuple(r for r in REPLICAS if r not in isr)
        for elr in subsets(outside):
            for leader in (NO_LEADER, *isr):
                if leader == NO_LEADER and isr and elr:
                    continue  # with ELR, a member that cannot lead leaves the ISR
                known = ((), *((r,) for r in REPLICAS)) if leader == NO_LEADER else ((),)
                for last_known, recovery in itertools.product(known, (0, 1)):
                    yield PartitionImage(
                        replicas=REPLICAS,
                        directories=DIRECTORIES,
                        isr=isr,
                        removing=(),
                        adding=(),
                        elr=elr,
                        last_known_elr=last_known,
                        leader=leader,
                        leader_epoch=10,
                        partition_epoch=20,
                        recovery_state=recovery,
                    )


def safety(alive: tuple[int, ...], order: tuple[int, ...]) -> Safety:
    def eligibility_of(_: PartitionReplicas, broker_id: int) -> Eligibility:
        return ELIGIBLE if broker_id in alive else Ineligible(Reason.FENCED)

    return Safety(
        min_isr=MIN_ISR,
        elr_enabled=True,
        last_known_mode=LastKnownMode.LAST_LEADER,
        strategy=RecoveryStrategy.BALANCED,
        last_known_electable=True,
        unclean_shutdown=frozenset(),
        eligibility_of=eligibility_of,
        order=lambda _place, _replicas, _now_ms: order,
        now_ms=0,
        keeps_local_logs=False,
        metadata_version=LATEST_PRODUCTION_METADATA_VERSION.level,
    )


def decided(
    partition: PartitionImage, target: Target, election: Election, rules: Safety
) -> PartitionChangeRecord | None:
    return decide_change(
        partition,
        topic_id=TOPIC_ID,
        partition_id=0,
        target=target,
        election=election,
        cause=Cause.OPERATOR_REQUEST,
        safety=rules,
        reported_logs=None,
    ).record


@cache
def noted_kinds() -> dict[Case, set[ElectionKind]]:
    """Return the noted kinds of all the controller's elections, by the rest of their records."""
    found: defaultdict[Case, set[ElectionKind]] = defaultdict(set)
    every = [
        (alive, safety(alive, order))
        for alive, order in itertools.product(subsets(REPLICAS), ORDERS)
        if alive
    ]
    for partition in partitions():
        before = ShapeKey(
            *(partition.replicas, partition.isr, partition.elr, partition.last_known_elr),
            *(partition.leader, partition.recovery_state, (), (), partition.directories),
        )
        for alive, rules in every:
            # A fenced broker leaves the ISR in the same change.
            left = tuple(r for r in partition.isr if r in alive)
            for target in {None, left}:
                for election in ELECTIONS:
                    record = decided(partition, Target(isr=target), election, rules)
                    if record is None or record.leader in (-2, NO_LEADER, partition.leader):
                        continue
                    kind = NOTED_KINDS[record.election_kind]
                    record.election_kind, record.election_cause = 0, ""
                    change = partition_change(record)
                    shown = tuple(getattr(change, one.name) for one in fields(change))
                    found[Case(before, shown)].add(kind)
    return dict(found)


def derived(case: Case) -> ElectionKind | None:
    change = PartitionChange(*case.fields)
    return election_kind(case.before, after_change(case.before, change), change)


def test_kind_without_the_note_is_that_of_the_controller_or_one_that_shows_the_same() -> None:
    """Class 10 of the planted bugs: several kinds may have the same record; the audit names one of
    them."""
    cases = noted_kinds()
    assert len(cases) > 500
    assert set().union(*cases.values()) == set(ElectionKind)
    for case, kinds in cases.items():
        possible = {ElectionKind.UNCLEAN if kind in ONLY_NOTED else kind for kind in kinds}
        leader = PartitionChange(*case.fields).leader
        if ElectionKind.PREFERRED in kinds and leader != REPLICAS[0]:
            # The local logs prefer another replica, which the shape does not show.
            possible.add(ElectionKind.ISR)
        assert derived(case) in possible, (case, kinds)


def test_kind_without_the_note_is_not_lossy_where_the_controller_lost_nothing() -> None:
    """A wrong warning of lost records is as bad as a missing one: no case may be of both sorts."""
    clean = {ElectionKind.ISR, ElectionKind.PREFERRED, ElectionKind.ELR}
    for case, kinds in noted_kinds().items():
        assert len({kind in clean for kind in kinds}) == 1, (case, kinds)
        assert (derived(case) in clean) == (kinds <= clean), (case, kinds)


def test_last_known_leader_is_named_only_where_isr_and_elr_were_both_empty() -> None:
    for case, kinds in noted_kinds().items():
        if ElectionKind.LAST_KNOWN_LEADER in kinds:
            assert (case.before.isr, case.before.elr) == ((), ())
            assert derived(case) is ElectionKind.LAST_KNOWN_LEADER
        elif case.before.isr or case.before.elr:
            assert derived(case) is not ElectionKind.LAST_KNOWN_LEADER


def of(**named: Any) -> PartitionChange:
    """Return a change with these fields."""
    stays = {one.name: None for one in fields(PartitionChange)}
    return PartitionChange(**{**stays, "recovery": -1, "kind": 0, "cause": "", **named})


@pytest.mark.parametrize(
    ("before", "change", "kind"),
    [
        # The rules of docs/audit.md that no change of our own controller needs.
        ({"isr": (1,)}, {"isr": (2,), "leader": 2, "recovery": 1}, ElectionKind.UNCLEAN),
        ({"isr": (1, 2)}, {"isr": (2,), "leader": 2, "recovery": 1}, ElectionKind.UNCLEAN),
        (
            {"isr": (), "elr": (2,), "leader": -1},
            {"isr": (2,), "leader": 2, "recovery": 1},
            ElectionKind.UNCLEAN,
        ),
        ({"isr": (1, 2)}, {"isr": (2, 3), "leader": 3}, ElectionKind.ISR),
        ({"isr": (1, 2)}, {"isr": (3,), "leader": 3}, ElectionKind.UNCLEAN),
        ({"isr": (1,), "leader": -1}, {"isr": (1, 3), "leader": 3}, ElectionKind.ISR),
        ({"isr": (1, 2)}, {"leader": 1}, None),
        ({"isr": (1, 2)}, {"leader": -2, "isr": (1,)}, None),
        ({"isr": (1, 2)}, {"leader": -1, "isr": ()}, None),
    ],
)
def test_kind_follows_the_written_rules(
    before: dict[str, Any], change: dict[str, Any], kind: ElectionKind | None
) -> None:
    shape = ShapeKey(REPLICAS, (1, 2, 3), (), (), 1, 0, (), (), DIRECTORIES)._replace(**before)
    made = of(**change)
    assert election_kind(shape, after_change(shape, made), made) is kind
