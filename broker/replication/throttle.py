"""Replication throttles (KIP-73): a reassignment must not take the bandwidth of the clients.

`leader.replication.throttled.replicas` and `follower.replication.throttled.replicas` of a topic say
which replicas are throttled on the side that sends and on the side that fetches, as
`partition:broker` or `*`; the rates are those of the broker (`*.replication.throttled.rate`, bytes
per second). Members of the ISR are never held back: a throttle must not put a replica out.
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
    """Whether a topic's list names this partition's replica on this broker."""
    return any(entry in (ALL_REPLICAS, f"{partition}:{broker_id}") for entry in replicas)


class ReplicationThrottle:
    """The rate of one direction of one broker. Times are monotonic milliseconds."""

    def __init__(self, window_count: int, window_ms: float) -> None:
        self._rate = WindowedRate(window_count, window_ms)
        self.allowed: float = float("inf")
        """Bytes per second."""

    def record(self, size_bytes: int, now_ms: float) -> None:
        """Bytes of a throttled replica went by."""
        self._rate.record(size_bytes, now_ms)

    def per_second(self, now_ms: float) -> float:
        return self._rate.per_second(now_ms)

    def pause_ms(self, now_ms: float) -> float:
        """How long nothing should go by; 0.0 while the rate is not above the allowed one."""
        if self.allowed == float("inf"):
            return 0.0
        return min(self._rate.excess_ms(self.allowed, now_ms), PAUSE_MAX_MS)


class ReplicationThrottles:
    """Both directions."""

    def __init__(self, window_count: int = WINDOW_COUNT, window_ms: float = WINDOW_MS) -> None:
        self.sending = ReplicationThrottle(window_count, window_ms)
        self.fetching = ReplicationThrottle(window_count, window_ms)

    def set_rates(self, own: Mapping[str, str], cluster: Mapping[str, str]) -> None:
        """Takes the dynamic configuration of this broker, and that of all brokers."""
        for throttle, key in ((self.sending, LEADER_RATE), (self.fetching, FOLLOWER_RATE)):
            text = own.get(key, cluster.get(key))
            throttle.allowed = int(text) if text is not None and text.isdecimal() else float("inf")
