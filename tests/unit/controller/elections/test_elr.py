"""ELR and LastKnownELR in all small cases, compared with the rules of KIP-966."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from controller.elections.elr import (
    EligibleSets,
    LastKnownMode,
    StateAfterChange,
    effective_min_isr,
    eligible_sets,
    standing_elr,
)
from metalog.image.values import NO_LEADER, LeaderRecoveryState, PartitionImage

REPLICAS = (1, 2, 3)
NONE: frozenset[int] = frozenset()


def partition(
    *,
    isr: tuple[int, ...] = (),
    elr: tuple[int, ...] = (),
    last_known: tuple[int, ...] = (),
    leader: int = NO_LEADER,
    replicas: tuple[int, ...] = REPLICAS,
) -> PartitionImage:
    return PartitionImage(
        replicas=replicas,
        directories=tuple(bytes(16) for _ in replicas),
        isr=isr,
        removing=(),
        adding=(),
        elr=elr,
        last_known_elr=last_known,
        leader=leader,
        leader_epoch=1,
        partition_epoch=1,
        recovery_state=int(LeaderRecoveryState.RECOVERED),
    )


def subsets(values: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for size in range(len(values) + 1):
        yield from itertools.combinations(values, size)


@pytest.mark.parametrize("mode", LastKnownMode)
def test_p9_and_the_sentences_of_the_proposal_in_all_small_cases(mode: LastKnownMode) -> None:
    count = 0
    for isr, elr, known, target, lost in itertools.product(subsets(REPLICAS), repeat=5):
        if set(isr) & set(elr):
            continue
        before = partition(isr=isr, elr=elr, last_known=known, leader=isr[0] if isr else NO_LEADER)
        for min_isr, unclean in itertools.product((1, 2, 3), (False, True)):
            leader = target[0] if target else NO_LEADER
            after = StateAfterChange(REPLICAS, target, leader, unclean and leader != NO_LEADER)
            now = eligible_sets(
                before, after, min_isr=min_isr, unclean_shutdown=frozenset(lost), mode=mode
            )
            count += 1
            if len(target) >= min_isr:
                assert now == EligibleSets()
                continue
            candidates = {*isr, *elr}
            expected = set() if after.unclean else candidates - set(target) - set(lost)
            assert set(now.elr) == expected
            assert not set(now.last_known) & set(target)
            if mode is LastKnownMode.WHOLE_SET:
                assert set(now.last_known) == (candidates | set(known)) - set(target) - expected
            elif leader != NO_LEADER:
                assert now.last_known == ()
            else:
                assert now.last_known == ((before.leader,) if isr else known)
    assert count > 10_000


def test_an_election_that_reaches_min_isr_leaves_no_elr() -> None:
    before = partition(elr=(3, 2), last_known=(3,))
    assert standing_elr(before, REPLICAS, (), min_isr=1, unclean_shutdown=NONE) == (3, 2)
    now = eligible_sets(
        before,
        StateAfterChange(REPLICAS, (2,), 2, unclean=False),
        min_isr=1,
        unclean_shutdown=NONE,
        mode=LastKnownMode.LAST_LEADER,
    )
    assert now == EligibleSets()


def test_standing_elr_is_empty_when_the_isr_has_min_isr_members() -> None:
    """An old record may contain an ELR, but the high watermark may have passed its members."""
    before = partition(isr=(1, 2), elr=(3,), leader=1)
    assert standing_elr(before, REPLICAS, (1, 2), min_isr=2, unclean_shutdown=NONE) == ()
    assert standing_elr(before, REPLICAS, (1,), min_isr=2, unclean_shutdown=NONE) == (2, 3)


@pytest.mark.parametrize("mode", LastKnownMode)
def test_eligible_sets_exclude_brokers_that_are_no_longer_replicas(mode: LastKnownMode) -> None:
    before = partition(isr=(1,), elr=(2,), last_known=(3, 4), leader=1, replicas=(1, 2, 3, 4))
    now = eligible_sets(
        before,
        StateAfterChange((3, 5), (), NO_LEADER, unclean=False),
        min_isr=2,
        unclean_shutdown=NONE,
        mode=mode,
    )
    assert now == EligibleSets((), (3,))


def test_the_leader_that_was_lost_is_noted_only_if_it_is_a_replica() -> None:
    before = partition(isr=(1,), leader=1)
    for replicas, expected in (((1, 2), (1,)), ((2, 3), ())):
        now = eligible_sets(
            before,
            StateAfterChange(replicas, (), NO_LEADER, unclean=False),
            min_isr=2,
            unclean_shutdown=frozenset({1}),
            mode=LastKnownMode.LAST_LEADER,
        )
        assert now.last_known == expected


def test_last_known_leader_without_a_leader_is_the_last_isr_member() -> None:
    before = partition(isr=(2,), elr=(3,))
    for isr, expected in (((), (2,)), ((2,), ())):
        now = eligible_sets(
            before,
            StateAfterChange(REPLICAS, isr, NO_LEADER, unclean=False),
            min_isr=2,
            unclean_shutdown=NONE,
            mode=LastKnownMode.LAST_LEADER,
        )
        assert now.last_known == expected


def test_effective_min_isr() -> None:
    assert effective_min_isr(3, 1) == 1
    assert effective_min_isr(2, 3) == 2
