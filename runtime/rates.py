"""Rates, and the delays that keep them below a limit.

There are two measures, both Kafka's, because clients and operators know their behaviour:

- `WindowedRate` adds up the events of the last `count` windows (quota.window.num windows of
  quota.window.size.seconds each). A new rate is divided by nearly all of that time. So a client may
  begin with a burst, and is throttled afterwards.
- `TokenBucket` (KIP-599) fills at the allowed rate, up to the tokens of `count` windows. One
  operation of any size may take it below zero; until it is above again, no other operation passes.

Nothing here has a clock: the caller passes `now_ms` of a monotonic one.
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
        # (begin, total) of each window with an event, oldest first.
        self._samples: list[tuple[float, float]] = []

    def record(self, amount: float, now_ms: float) -> None:
        """Record an event; a negative amount reverts an earlier one."""
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
        """Return the time that the rate is taken over.

        It is the time of the windows in use, and never less than all windows but the current one.
        """
        begin_ms = self._samples[0][0] if self._samples else now_ms
        elapsed_ms = now_ms - begin_ms
        missing = self._count - 1 - int(elapsed_ms // self._window_ms)
        return elapsed_ms + max(missing, 0) * self._window_ms

    def per_second(self, now_ms: float) -> float:
        """Return the current rate per second."""
        self._forget(now_ms)
        span_ms = self.span_ms(now_ms)
        if span_ms <= 0.0:
            span_ms = self._window_ms
        return sum(total for _, total in self._samples) * 1000.0 / span_ms

    def excess_ms(self, allowed: float, now_ms: float) -> float:
        """Return how long to pause until the rate is down to `allowed` per second; 0.0 if it is
        not above.
        """
        rate = self.per_second(now_ms)
        if rate <= allowed:
            return 0.0
        if allowed <= 0.0:
            return self._count * self._window_ms
        return (rate - allowed) / allowed * max(self.span_ms(now_ms), self._window_ms)

    def is_idle(self, now_ms: float) -> bool:
        """Return whether no recorded event is left in the windows."""
        self._forget(now_ms)
        return not self._samples


class WindowedMean:
    """Mean of the values recorded in the last `count` windows."""

    __slots__ = ("_count", "_samples", "_window_ms")

    def __init__(self, count: int = WINDOW_COUNT, window_ms: float = WINDOW_MS) -> None:
        self._count = count
        self._window_ms = window_ms
        # (begin, total, events) of each window with a value, oldest first.
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
        """Return the mean; NaN if no value was recorded."""
        self._forget(now_ms)
        events = sum(events for _, _, events in self._samples)
        return sum(total for _, total, _ in self._samples) / events if events else math.nan

    def _forget(self, now_ms: float) -> None:
        oldest_ms = now_ms - self._count * self._window_ms
        while self._samples and self._samples[0][0] <= oldest_ms:
            del self._samples[0]


class TokenBucket:
    """Tokens that grow with time and are spent by operations."""

    __slots__ = ("_burst", "_last_ms", "_tokens", "rate")

    def __init__(
        self, rate: float, now_ms: float, count: int = WINDOW_COUNT, window_ms: float = WINDOW_MS
    ) -> None:
        self._burst = count * window_ms / 1000.0
        self.rate = rate
        self._tokens = rate * self._burst
        self._last_ms = now_ms

    def set_rate(self, rate: float, now_ms: float) -> None:
        """Change the rate from now on; tokens above the new maximum are dropped."""
        self._fill(now_ms)
        self.rate = rate
        self._tokens = min(self._tokens, rate * self._burst)

    def _fill(self, now_ms: float) -> None:
        grown = self._tokens + (now_ms - self._last_ms) / 1000.0 * self.rate
        self._tokens = min(grown, self.rate * self._burst)
        self._last_ms = now_ms

    def tokens(self, now_ms: float) -> float:
        """Return the tokens; they are below zero after too much was spent."""
        self._fill(now_ms)
        return self._tokens

    def is_full(self, now_ms: float) -> bool:
        """Return whether the bucket is full, that is, equal to a new one."""
        return self.tokens(now_ms) >= self.rate * self._burst

    def wait_ms(self, now_ms: float) -> float:
        """Return how long it takes until the tokens are not below zero any more."""
        self._fill(now_ms)
        if self._tokens >= 0.0:
            return 0.0
        if self.rate <= 0.0:
            return self._burst * 1000.0
        return -self._tokens / self.rate * 1000.0

    def spend(self, amount: float, now_ms: float) -> None:
        """Take `amount`, even if fewer tokens are left."""
        self._fill(now_ms)
        self._tokens -= amount
