"""Rates, and the pauses that keep them below a limit.

Two measures, both Kafka's, because clients and operators reckon with their behaviour:

- `WindowedRate` adds up what happened in the last `count` windows (quota.window.num of
  quota.window.size.seconds each). A rate that has just begun is divided by nearly all of that time,
  so a client may begin with a burst, and then pays for it.
- `TokenBucket` (KIP-599) fills at the allowed rate up to what `count` windows give. It may go below
  zero by one operation of any size; until it is above again, nothing else passes.

Nothing here knows a clock: every call is given `now_ms` of a monotonic one.
"""

from __future__ import annotations

import math

WINDOW_COUNT = 11
WINDOW_MS = 1_000.0


class WindowedRate:
    """Events per second over sliding windows."""

    __slots__ = ("_count", "_samples", "_window_ms")

    def __init__(self, count: int = WINDOW_COUNT, window_ms: float = WINDOW_MS) -> None:
        self._count = count
        self._window_ms = window_ms
        # (begin, total) of each window in which something happened, oldest first.
        self._samples: list[tuple[float, float]] = []

    def record(self, amount: float, now_ms: float) -> None:
        """Something happened; a negative amount takes something back."""
        samples = self._samples
        if samples and now_ms - samples[-1][0] < self._window_ms:
            begin, total = samples[-1]
            samples[-1] = (begin, total + amount)
        else:
            self._forget(now_ms)
            samples.append((now_ms, amount))

    def _forget(self, now_ms: float) -> None:
        oldest_ms = now_ms - self._count * self._window_ms
        samples = self._samples
        while samples and samples[0][0] <= oldest_ms:
            del samples[0]

    def span_ms(self, now_ms: float) -> float:
        """The time the rate is taken over: that of the windows in use, and never less than all
        windows but the current one."""
        begin_ms = self._samples[0][0] if self._samples else now_ms
        elapsed_ms = now_ms - begin_ms
        missing = self._count - 1 - int(elapsed_ms // self._window_ms)
        return elapsed_ms + max(missing, 0) * self._window_ms

    def per_second(self, now_ms: float) -> float:
        """The rate now."""
        self._forget(now_ms)
        span_ms = self.span_ms(now_ms)
        if span_ms <= 0.0:
            span_ms = self._window_ms
        return sum(total for _, total in self._samples) * 1000.0 / span_ms

    def excess_ms(self, allowed: float, now_ms: float) -> float:
        """How long nothing may happen for the rate to come down to `allowed` per second; 0.0 when
        it is not above it."""
        rate = self.per_second(now_ms)
        if rate <= allowed:
            return 0.0
        if allowed <= 0.0:
            return self._count * self._window_ms
        return (rate - allowed) / allowed * max(self.span_ms(now_ms), self._window_ms)

    def is_idle(self, now_ms: float) -> bool:
        """Whether nothing is left of what was recorded."""
        self._forget(now_ms)
        return not self._samples


class WindowedMean:
    """Mean of what was recorded in the last `count` windows."""

    __slots__ = ("_count", "_samples", "_window_ms")

    def __init__(self, count: int = WINDOW_COUNT, window_ms: float = WINDOW_MS) -> None:
        self._count = count
        self._window_ms = window_ms
        # (begin, total, events) of each window in which something was recorded, oldest first.
        self._samples: list[tuple[float, float, int]] = []

    def record(self, value: float, now_ms: float) -> None:
        samples = self._samples
        if samples and now_ms - samples[-1][0] < self._window_ms:
            begin, total, events = samples[-1]
            samples[-1] = (begin, total + value, events + 1)
        else:
            self._forget(now_ms)
            samples.append((now_ms, value, 1))

    def mean(self, now_ms: float) -> float:
        """NaN when nothing was recorded."""
        self._forget(now_ms)
        events = sum(events for _, _, events in self._samples)
        return sum(total for _, total, _ in self._samples) / events if events else math.nan

    def _forget(self, now_ms: float) -> None:
        oldest_ms = now_ms - self._count * self._window_ms
        while self._samples and self._samples[0][0] <= oldest_ms:
            del self._samples[0]


class TokenBucket:
    """Credit that grows with time and is spent by operations."""

    __slots__ = ("_burst", "_last_ms", "_tokens", "rate")

    def __init__(
        self, rate: float, now_ms: float, count: int = WINDOW_COUNT, window_ms: float = WINDOW_MS
    ) -> None:
        self._burst = count * window_ms / 1000.0
        self.rate = rate
        self._tokens = rate * self._burst
        self._last_ms = now_ms

    def set_rate(self, rate: float, now_ms: float) -> None:
        """Fill at another rate from now on; a bucket that is too full for it overflows."""
        self._fill(now_ms)
        self.rate = rate
        self._tokens = min(self._tokens, rate * self._burst)

    def _fill(self, now_ms: float) -> None:
        grown = self._tokens + (now_ms - self._last_ms) / 1000.0 * self.rate
        self._tokens = min(grown, self.rate * self._burst)
        self._last_ms = now_ms

    def tokens(self, now_ms: float) -> float:
        """What can be spent; below zero after too much was."""
        self._fill(now_ms)
        return self._tokens

    def is_full(self, now_ms: float) -> bool:
        """Whether it is as good as new."""
        return self.tokens(now_ms) >= self.rate * self._burst

    def wait_ms(self, now_ms: float) -> float:
        """How long until the bucket is not below zero any more."""
        self._fill(now_ms)
        if self._tokens >= 0.0:
            return 0.0
        if self.rate <= 0.0:
            return self._burst * 1000.0
        return -self._tokens / self.rate * 1000.0

    def spend(self, amount: float, now_ms: float) -> None:
        """Take `amount`, whatever is left."""
        self._fill(now_ms)
        self._tokens -= amount
