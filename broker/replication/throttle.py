"""Replication throttles (KIP-73): a reassignment must not take the bandwidth of the clients.

`leader.replication.throttled.replicas` and `follower.replication.throttled.replicas` of a topic
name the replicas that are throttled on the sending and on the fetching side, as `partition:broker`
or `*`. The rates are those of the broker (`*.replication.throttled.rate`, bytes per second).
Members of the ISR are never throttled: a throttle must not remove a replica from the ISR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from runtime.config import keys_quotas
from runtime.rates import WINDOW_COUNT, WINDOW_MS, WindowedRate

ALL_REPLICAS: Final = "*"
LEADER_RATE: Final = keys_quotas.LEADER_REPLICATION_THROTTLED_RATE.name
FOLLOWER_RATE: Final = keys_quotas.FOLLOWER_REPLICATION_THROTTLED_RATE.name
PAUSE_MAX_MS: Final = 1_000.0


def throttles(replicas: Sequence[str], partition: int, broker_id: int) -> bool:
    """Return whether a topic's list names this partition's replica on this broker."""
    return any(entry in (ALL_REPLICAS, f"{partition}:{broker_id}") for entry in replicas)


class ReplicationThrottle:
    """The rate of one direction of one broker. Times are monotonic milliseconds."""

    def __init__(self, window_count: int, window_ms: float) -> None:
        self._rate = WindowedRate(window_count, window_ms)
        self.allowed: float = float("inf")
        """Bytes per second."""

    def record(self, size_bytes: int, now_ms: float) -> None:
        """Count bytes that a throttled replica has sent or fetched."""
        self._rate.record(size_bytes, now_ms)

    def per_second(self, now_ms: float) -> float:
        return self._rate.per_second(now_ms)

    def pause_ms(self, now_ms: float) -> float:
        """Return how long to send or fetch nothing, in milliseconds; 0.0 while the rate is not
        above the limit."""
        if self.allowed == float("inf"):
            return 0.0
        return min(self._rate.excess_ms(self.allowed, now_ms), PAUSE_MAX_MS)


class ReplicationThrottles:
    """Throttles of a broker's two directions."""

    def __init__(self, window_count: int = WINDOW_COUNT, window_ms: float = WINDOW_MS) -> None:
        self.sending = ReplicationThrottle(window_count, window_ms)
        self.fetching = ReplicationThrottle(window_count, window_ms)

    def set_rates(self, own: Mapping[str, str], cluster: Mapping[str, str]) -> None:
        """Apply the dynamic configuration of this broker, and the default of all brokers."""
        for throttle, key in ((self.sending, LEADER_RATE), (self.fetching, FOLLOWER_RATE)):
            text = own.get(key, cluster.get(key))
            throttle.allowed = int(text) if text is not None and text.isdecimal() else float("inf")
