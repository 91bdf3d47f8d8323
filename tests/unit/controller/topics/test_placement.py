from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.topics.placement import UsableBroker, place_replicas
from protocol.errors import ApiError, ErrorCode


def place(
    brokers: list[UsableBroker], partitions: int, replicas: int, seed: int = 1
) -> list[tuple[int, ...]]:
    return list(
        place_replicas(
            brokers,
            partition_count=partitions,
            replication_factor=replicas,
            rng=random.Random(seed),
        )
    )


def flat(count: int) -> list[UsableBroker]:
    return [UsableBroker(broker_id, None, False) for broker_id in range(count)]


brokers_lists = st.lists(
    st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1, max_size=9
).map(lambda entries: [UsableBroker(i, rack, fenced) for i, (rack, fenced) in enumerate(entries)])


@given(brokers_lists, st.integers(1, 9), st.integers(1, 30), st.integers(0, 5))
def test_the_rules_hold(
    brokers: list[UsableBroker], replicas: int, partitions: int, seed: int
) -> None:
    by_id = {broker.id: broker for broker in brokers}
    possible = replicas <= len(brokers) and not all(b.fenced for b in brokers)
    if not possible:
        with pytest.raises(ApiError) as refusal:
            place(brokers, partitions, replicas, seed)
        assert refusal.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        return
    placed = place(brokers, partitions, replicas, seed)
    assert placed == place(brokers, partitions, replicas, seed)
    assert len(placed) == partitions
    racks = {broker.rack for broker in brokers}
    for assignment in placed:
        assert len(set(assignment)) == len(assignment) == replicas
        assert not by_id[assignment[0]].fenced
        used = Counter(by_id[b].rack for b in assignment)
        assert len(used) == min(replicas, len(racks))
        for rack in used:
            chosen = [b for b in assignment if by_id[b].rack == rack]
            unfenced = [b.id for b in brokers if b.rack == rack and not b.fenced]
            if any(by_id[b].fenced for b in chosen):
                assert set(unfenced) <= set(chosen)


@pytest.mark.parametrize(("count", "replicas"), [(3, 3), (4, 2), (5, 3), (6, 1)])
def test_leaders_and_replicas_are_even(count: int, replicas: int) -> None:
    placed = place(flat(count), count * 10, replicas)
    leaders = Counter(assignment[0] for assignment in placed)
    assert set(leaders.values()) == {10}
    assert set(Counter(b for a in placed for b in a).values()) == {10 * replicas}


def test_even_over_racks() -> None:
    brokers = [UsableBroker(i, "abc"[i % 3], False) for i in range(6)]
    placed = place(brokers, 60, 3)
    assert all({brokers[b].rack for b in a} == {"a", "b", "c"} for a in placed)
    assert set(Counter(a[0] for a in placed).values()) == {10}


def test_small_topics_start_at_random_places() -> None:
    leaders = {place(flat(5), 1, 3, seed)[0][0] for seed in range(60)}
    assert leaders == {0, 1, 2, 3, 4}


def test_partners_change() -> None:
    pairs = Counter(tuple(sorted(a)) for a in place(flat(6), 600, 2))
    assert len(pairs) == 15
