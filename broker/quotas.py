"""How fast a client may go, and how long it must wait when it went faster (KIP-13, 55, 124, 546).

A limit belongs to a user, a client id, a pair of both, or to the default of any of these; which one
counts, and who shares it, says `metalog.quota_limits`.

Each kind of limit has its own measure: bytes of Produce requests, bytes of Fetch responses, or the
share of one CPU that handling takes (in percent), all over the windows of `quota.window.*`. What
goes over the limit is served, and says in its response how long the client should wait; the
connection is not read for so long.

Nothing here knows a clock, a socket or a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from metalog.image.values import QuotaEntity
from metalog.quota_limits import Bearer, Limit, QuotaLimits
from runtime.rates import WINDOW_COUNT, WINDOW_MS, WindowedRate

RATES_MAX: Final = 10_000
"""Rates that are kept; beyond, those without a recent event are forgotten."""


class QuotaKind(Enum):
    """What is limited; the values are the keys of client quotas."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"


class ClientQuotas:
    """All limits of the cluster, and the rates of this broker's clients."""

    def __init__(self, *, window_count: int = WINDOW_COUNT, window_ms: float = WINDOW_MS) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        self._limits = {kind: QuotaLimits(kind.value) for kind in QuotaKind}
        self._ips: dict[str | None, float] = {}
        self._rates: dict[tuple[QuotaKind, Bearer], WindowedRate] = {}
        self.active = False
        """Whether any request can have a limit."""

    def replace(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """These are the limits now. Rates go on: a changed limit holds at once."""
        for limits in self._limits.values():
            limits.replace(quotas)
        self._ips.clear()
        for entity, values in quotas.items():
            parts = dict(entity)
            if "ip" in parts and "connection_creation_rate" in values:
                self._ips[parts["ip"]] = values["connection_creation_rate"]
        self.active = any(self._limits.values())

    # --- limits ---------------------------------------------------------------------------------

    def limit(self, kind: QuotaKind, user: str, client_id: str) -> Limit | None:
        """The limit of this user's client, None without one."""
        return self._limits[kind].of(user, client_id)

    def most_at_once(self, kind: QuotaKind, user: str, client_id: str) -> float | None:
        """What the windows of a rate can hold: one answer with more would be over the limit for
        ever. None without a limit."""
        limit = self.limit(kind, user, client_id)
        if limit is None:
            return None
        return limit.per_second * max(self._window_count - 1, 1) * self._window_ms / 1000.0

    def ip_rate(self, host: str) -> float | None:
        """How many connections per second this address may open; None for any number."""
        if not self._ips:
            return None
        rate = self._ips.get(host)
        return rate if rate is not None else self._ips.get(None)

    # --- rates ----------------------------------------------------------------------------------

    def record(
        self, kind: QuotaKind, user: str, client_id: str, amount: float, now_ms: float
    ) -> float:
        """Count `amount`; returns how many milliseconds the client must wait, 0.0 for none."""
        limit = self.limit(kind, user, client_id)
        if limit is None:
            return 0.0
        rate = self._rate(kind, limit.bearer, now_ms)
        rate.record(amount, now_ms)
        wait_ms = rate.excess_ms(limit.per_second, now_ms)
        # Time of the CPU comes back with the next window, whatever was used of it.
        return min(wait_ms, self._window_ms) if kind is QuotaKind.REQUEST else wait_ms

    def take_back(
        self, kind: QuotaKind, user: str, client_id: str, amount: float, now_ms: float
    ) -> None:
        """What was recorded did not happen after all."""
        limit = self.limit(kind, user, client_id)
        if limit is not None:
            self._rate(kind, limit.bearer, now_ms).record(-amount, now_ms)

    def _rate(self, kind: QuotaKind, bearer: Bearer, now_ms: float) -> WindowedRate:
        rate = self._rates.get((kind, bearer))
        if rate is None:
            if len(self._rates) >= RATES_MAX:
                self._rates = {
                    key: kept for key, kept in self._rates.items() if not kept.is_idle(now_ms)
                }
            rate = WindowedRate(self._window_count, self._window_ms)
            self._rates[(kind, bearer)] = rate
        return rate
