"""Effects of links on packets, and the schedule of faults."""

from __future__ import annotations

import itertools
import random

import pytest

from kraftbox.chaos.schedule import steps
from kraftbox.launcher.links import Link, LinkRule, Links, Underway

PACKETS = 2_000


def links(*rules: LinkRule) -> Links:
    made = Links(random.Random(1))
    made.set(rules)
    return made


def arrivals(made: Links, count: int = PACKETS, size_bytes: int = 100) -> list[list[float]]:
    return [made.arrivals(1, 2, size_bytes, 1000.0) for _ in range(count)]


def test_link_without_rule_is_whole() -> None:
    made = links(LinkRule(1, 2, Link(loss=1.0)))
    assert made.is_whole(2, 1) and not made.is_whole(1, 2)
    assert made.arrivals(2, 1, 100, 1000.0) == [1000.0]


def test_a_cut_link_carries_nothing_until_it_is_healed() -> None:
    made = links(LinkRule(1, 2, Link(loss=1.0)))
    assert not any(arrivals(made))
    made.set([])
    assert all(arrivals(made))


def test_link_loss_and_duplicates_have_the_given_rates() -> None:
    seen = arrivals(links(LinkRule(1, 2, Link(loss=0.2, duplicate=0.1))))
    assert 0.15 < sum(not one for one in seen) / PACKETS < 0.25
    assert 0.05 < sum(len(one) == 2 for one in seen) / PACKETS < 0.12


def test_delay_varies_by_its_jitter() -> None:
    seen = [one[0] for one in arrivals(links(LinkRule(1, 2, Link(delay_ms=50, jitter_ms=20))))]
    assert 1030.0 <= min(seen) < 1032.0 and 1068.0 < max(seen) <= 1070.0


def test_a_reordered_packet_overtakes() -> None:
    seen = [one[0] for one in arrivals(links(LinkRule(1, 2, Link(delay_ms=50, reorder=0.1))))]
    assert 0.05 < seen.count(1000.0) / PACKETS < 0.15


def test_a_rate_spreads_packets_and_drops_what_would_wait_too_long() -> None:
    made = links(LinkRule(1, 2, Link(rate_bytes_per_s=100_000)))
    seen = arrivals(made, 200, 1_000)
    assert [one[0] for one in seen[:3]] == [1010.0, 1020.0, 1030.0]
    assert sum(bool(one) for one in seen) == 101
    assert made.arrivals(1, 2, 1_000, 3_000.0) == [3_010.0]


def test_packets_arrive_in_the_order_of_their_times() -> None:
    underway = Underway()
    for at_ms, packet in ((30.0, b"c"), (10.0, b"a"), (10.0, b"b")):
        underway.add(at_ms, 2, packet)
    assert underway.next_ms == 10.0
    assert underway.due(9.9) == []
    assert underway.due(10.0) == [(2, b"a"), (2, b"b")]
    assert underway.due(50.0) == [(2, b"c")]
    assert underway.next_ms is None


def test_a_seed_repeats_a_schedule_and_every_kind_comes_in_every_round() -> None:
    kinds = ["a", "b", "c"]
    first = list(itertools.islice(steps(random.Random(5), kinds), 9))
    assert first == list(itertools.islice(steps(random.Random(5), kinds), 9))
    assert first != list(itertools.islice(steps(random.Random(6), kinds), 9))
    for start in (0, 3, 6):
        assert {step.kind for step in first[start : start + 3]} == set(kinds)
    assert all(3.0 <= step.length_s <= 12.0 for step in first)


def test_a_schedule_needs_a_kind() -> None:
    with pytest.raises(ValueError, match="no kind"):
        next(steps(random.Random(1), []))


def test_packets_beyond_the_bound_are_dropped(monkeypatch):
    """A long delay must not fill the host's memory."""
    monkeypatch.setattr("kraftbox.launcher.links.UNDERWAY_BYTES_MAX", 100)
    underway = Underway()
    for at_ms in range(5):
        underway.add(at_ms, 1, bytes(40))
    assert len(underway.due(0)) == 1
    underway.add(9, 1, bytes(60))
    assert underway.due(10) == [(1, bytes(40)), (1, bytes(60))]
