"""Rates over windows and token buckets, compared with numbers calculated by hand."""

from __future__ import annotations

import math

import pytest

from runtime.rates import TokenBucket, WindowedMean, WindowedRate


def test_a_rate_that_began_just_now_is_over_all_windows_but_one() -> None:
    rate = WindowedRate(11, 1_000.0)
    rate.record(1_000.0, 0.0)
    assert rate.per_second(0.0) == 100.0
    assert rate.per_second(500.0) == pytest.approx(1_000 / 10.5)
    assert rate.per_second(10_500.0) == pytest.approx(1_000 / 10.5)


def test_windows_that_are_over_are_forgotten() -> None:
    rate = WindowedRate(2, 1_000.0)
    rate.record(100.0, 0.0)
    rate.record(50.0, 1_000.0)
    assert rate.per_second(1_999.0) == pytest.approx(150 / 1.999)
    assert rate.per_second(2_000.0) == pytest.approx(50.0)
    assert not rate.is_idle(2_999.0)
    assert rate.is_idle(3_000.0)
    assert rate.per_second(3_000.0) == 0.0


def test_one_window_of_one_sample_is_never_divided_by_nothing() -> None:
    rate = WindowedRate(1, 1_000.0)
    rate.record(5.0, 0.0)
    assert rate.per_second(0.0) == 5.0
    assert rate.excess_ms(5.0, 0.0) == 0.0


def test_a_mean_is_over_what_was_recorded_lately() -> None:
    mean = WindowedMean(2, 1_000.0)
    assert math.isnan(mean.mean(0.0))
    mean.record(10.0, 0.0)
    mean.record(20.0, 500.0)
    mean.record(60.0, 1_000.0)
    assert mean.mean(1_999.0) == 30.0
    assert mean.mean(2_000.0) == 60.0
    assert math.isnan(mean.mean(3_000.0))


def test_excess_is_the_time_until_the_rate_is_allowed_again() -> None:
    rate = WindowedRate(11, 1_000.0)
    rate.record(1_500.0, 0.0)
    assert rate.excess_ms(150.0, 0.0) == 0.0
    assert rate.excess_ms(100.0, 0.0) == pytest.approx(5_000.0)
    assert rate.excess_ms(0.0, 0.0) == 11_000.0
    rate.record(-1_500.0, 0.0)
    assert rate.excess_ms(100.0, 0.0) == 0.0


def test_following_the_throttle_keeps_the_rate() -> None:
    rate = WindowedRate(11, 1_000.0)
    now_ms, sent = 0.0, 0
    while now_ms < 120_000.0:
        rate.record(100.0, now_ms)
        sent += 100
        now_ms += max(rate.excess_ms(1_000.0, now_ms), 10.0)
    assert sent / 120 == pytest.approx(1_000.0, rel=0.15)


def test_a_bucket_lends_one_operation_of_any_size() -> None:
    bucket = TokenBucket(2.0, 0.0, count=10, window_ms=1_000.0)
    bucket.spend(20.0, 0.0)
    assert bucket.wait_ms(0.0) == 0.0
    bucket.spend(5.0, 0.0)
    assert bucket.wait_ms(0.0) == pytest.approx(2_500.0)
    assert bucket.wait_ms(1_000.0) == pytest.approx(1_500.0)
    assert bucket.wait_ms(2_500.0) == 0.0
    bucket.spend(0.0, 1_000_000.0)
    bucket.spend(21.0, 1_000_000.0)
    assert bucket.wait_ms(1_000_000.0) == pytest.approx(500.0)


def test_a_bucket_may_change_its_rate() -> None:
    bucket = TokenBucket(10.0, 0.0, count=10, window_ms=1_000.0)
    bucket.set_rate(1.0, 0.0)
    bucket.spend(11.0, 0.0)
    assert bucket.wait_ms(0.0) == pytest.approx(1_000.0)
    bucket.set_rate(0.0, 0.0)
    assert bucket.wait_ms(0.0) == 10_000.0
