"""The rule that decides whether a replica has enough local log, case by case (KIP-1303)."""

from __future__ import annotations

import pytest

from metalog.image.local_log import (
    NOTHING_KNOWN,
    LocalLogStats,
    LocalLogTable,
    LocalLogThresholds,
    LocalLogVerdict,
    judge,
    known_stats,
)
from testkit.planting import bug

NOW_MS = 1_790_000_000_000
MINUTE_MS = 60_000
V = LocalLogVerdict

TEN_MINUTES = LocalLogThresholds(10 * MINUTE_MS, -1)
A_THOUSAND = LocalLogThresholds(-1, 1000)
EITHER = LocalLogThresholds(10 * MINUTE_MS, 1000)


def of_age(age_ms: int, size_bytes: int = 500) -> LocalLogStats:
    return LocalLogStats(NOW_MS - age_ms, size_bytes)


@pytest.mark.parametrize(
    ("thresholds", "stats", "verdict"),
    [
        # Both keys at -1 or 0: the feature is off, whatever is known.
        (LocalLogThresholds(), of_age(0, 0), V.OFF),
        (LocalLogThresholds(0, 0), of_age(0, 0), V.OFF),
        (LocalLogThresholds(-1, 0), NOTHING_KNOWN, V.OFF),
        # The seed's three brokers: 1 h, 30 min, 3 min at ten minutes.
        (TEN_MINUTES, of_age(60 * MINUTE_MS), V.SPAN),
        (TEN_MINUTES, of_age(30 * MINUTE_MS), V.SPAN),
        (TEN_MINUTES, of_age(3 * MINUTE_MS), V.TOO_LITTLE),
        # Exactly at the threshold is enough.
        (TEN_MINUTES, of_age(10 * MINUTE_MS), V.SPAN),
        (TEN_MINUTES, of_age(10 * MINUTE_MS - 1), V.TOO_LITTLE),
        (A_THOUSAND, of_age(0, 1000), V.SIZE),
        (A_THOUSAND, of_age(0, 999), V.TOO_LITTLE),
        # A key that is off does not count, whether its value is known or not.
        (A_THOUSAND, of_age(60 * MINUTE_MS, 999), V.TOO_LITTLE),
        (TEN_MINUTES, of_age(0, 10**9), V.TOO_LITTLE),
        (A_THOUSAND, LocalLogStats(-1, 999), V.TOO_LITTLE),
        (TEN_MINUTES, of_age(0, -1), V.TOO_LITTLE),
        # One of the two keys is enough.
        (EITHER, of_age(60 * MINUTE_MS, 1), V.SPAN),
        (EITHER, of_age(0, 1000), V.SIZE),
        (EITHER, of_age(0, 999), V.TOO_LITTLE),
        # An unknown value counts as met, for its own key only.
        (TEN_MINUTES, NOTHING_KNOWN, V.UNKNOWN),
        (A_THOUSAND, NOTHING_KNOWN, V.UNKNOWN),
        (TEN_MINUTES, LocalLogStats(-1, 5), V.UNKNOWN),
        (EITHER, LocalLogStats(-1, 5), V.UNKNOWN),
        (EITHER, of_age(0, -1), V.UNKNOWN),
        # A known size of 0 is never enough: a new replica has no first batch, so no time.
        (TEN_MINUTES, LocalLogStats(-1, 0), V.EMPTY),
        (A_THOUSAND, LocalLogStats(-1, 0), V.EMPTY),
        (EITHER, of_age(60 * MINUTE_MS, 0), V.EMPTY),
        # A negative span is too little: the clock is behind, or the time is in the future.
        (TEN_MINUTES, of_age(-1), V.FUTURE),
        (TEN_MINUTES, of_age(-60 * MINUTE_MS), V.FUTURE),
        (EITHER, of_age(-1, 1000), V.SIZE),
        # The epoch itself is a time, not an unknown one.
        (TEN_MINUTES, LocalLogStats(0, 5), V.SPAN),
    ],
)
def test_the_rule(
    thresholds: LocalLogThresholds, stats: LocalLogStats, verdict: LocalLogVerdict
) -> None:
    assert judge(stats, thresholds, NOW_MS) is verdict


def test_verdicts_that_are_enough() -> None:
    assert {v for v in V if v.enough} == {V.OFF, V.SPAN, V.SIZE, V.UNKNOWN}
    assert TEN_MINUTES.on and A_THOUSAND.on and not LocalLogThresholds(0, -1).on


def test_time_alone_makes_it_enough() -> None:
    """Without any report, broker 3 of the seed has enough seven minutes later."""
    stats = of_age(3 * MINUTE_MS)
    later = [judge(stats, TEN_MINUTES, NOW_MS + n * MINUTE_MS).enough for n in (0, 6, 7)]
    assert later == [False, False, True]


def test_local_log_of_earlier_incarnation_is_unknown() -> None:
    told = LocalLogStats(5, 7)
    table = LocalLogTable.of((((1, 10), 5, 7, 0), ((2, 20), 6, 8, 0)))
    assert known_stats(table, 1, 10) == told
    assert known_stats(table, 1, 11) == NOTHING_KNOWN
    assert known_stats(table, 3, 10) == NOTHING_KNOWN


def test_size_0_that_counts_as_enough_is_seen() -> None:
    """A planted bug is found: the new replica, which has no time yet, would be preferred."""
    planted = bug(
        "size 0 eligible",
        "local logs",
        "",
        "an empty log is one of which nothing is known",
        ("metalog.image.local_log:judge", "if size == 0:", "if size == -2:"),
    )
    fresh = LocalLogStats(-1, 0)
    assert not judge(fresh, TEN_MINUTES, NOW_MS).enough
    with planted.planted():
        assert judge(fresh, TEN_MINUTES, NOW_MS).enough
