"""Client quotas: measured rates and throttle times (KIP-13, KIP-55, KIP-124, KIP-546).

A limit belongs to a user, a client id, a pair of both, or to the default of any of these.
`serving.quota_limits` determines which one applies, and which clients share it.

Each kind of limit has its own measure: bytes of Produce requests, bytes of Fetch responses, or the
share of one CPU for handling (in percent). All are measured over the windows of `quota.window.*`.
Requests over the limit are served, and their responses contain how long the client should wait. The
connection is not read in that time.

Nothing here uses a clock, a socket or a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from metalog.image.values import QuotaEntity
from runtime.config import NodeConfig, keys_quotas, keys_server
from runtime.rates import WINDOW_COUNT, WINDOW_MS, WindowedMean, WindowedRate
from serving.quota_limits import Bearer, Limit, QuotaLimits

RATES_MAX: Final = 10_000
"""Maximum number of rates that are kept."""


_IP_RATE: Final = keys_quotas.CONNECTION_CREATION_RATE.name


class QuotaKind(Enum):
    """Kind of a limit; the values are the keys of client quotas."""

    PRODUCE = keys_quotas.PRODUCER_BYTE_RATE.name
    FETCH = keys_quotas.CONSUMER_BYTE_RATE.name
    REQUEST = keys_quotas.REQUEST_PERCENTAGE.name


class _Usage(NamedTuple):
    """The usage of one bearer, and its throttle times."""

    rate: WindowedRate
    waits: WindowedMean


class ClientQuotas:
    """All limits of the cluster, and the rates of this broker's clients."""

    def __init__(self, *, window_count: int = WINDOW_COUNT, window_ms: float = WINDOW_MS) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        self._limits = {kind: QuotaLimits(kind.value) for kind in QuotaKind}
        self._ips: dict[str | None, float] = {}
        self._usages: dict[tuple[QuotaKind, Bearer], _Usage] = {}
        self.throttled = dict.fromkeys(QuotaKind, 0)
        self.active = False
        """True if any request can have a limit."""

    @classmethod
    def of(cls, node: NodeConfig) -> ClientQuotas:
        return cls(
            window_count=node[keys_server.QUOTA_WINDOW_NUM],
            window_ms=node[keys_server.QUOTA_WINDOW_SIZE_SECONDS] * 1000.0,
        )

    def replace(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Replace all limits. Rates continue: a changed limit applies at once."""
        for limits in self._limits.values():
            limits.replace(quotas)
        self._ips.clear()
        for entity, values in quotas.items():
            parts = dict(entity)
            if "ip" in parts and _IP_RATE in values:
                self._ips[parts["ip"]] = values[_IP_RATE]
        self.active = any(self._limits.values())

    # --- limits ---------------------------------------------------------------------------------

    def limit(self, kind: QuotaKind, user: str, client_id: str) -> Limit | None:
        """Return the limit of this user's client, None without one."""
        return self._limits[kind].of(user, client_id)

    def most_at_once(self, kind: QuotaKind, user: str, client_id: str) -> float | None:
        """Return the amount that the windows of a rate can hold; one response with more would
        always be over the limit. Returns None without a limit."""
        limit = self.limit(kind, user, client_id)
        if limit is None:
            return None
        return limit.per_second * max(self._window_count - 1, 1) * self._window_ms / 1000.0

    def ip_rate(self, host: str) -> float | None:
        """Return how many connections per second this address may open; None for any number."""
        if not self._ips:
            return None
        rate = self._ips.get(host)
        return rate if rate is not None else self._ips.get(None)

    # --- rates ----------------------------------------------------------------------------------

    def record(
        self, kind: QuotaKind, user: str, client_id: str, amount: float, now_ms: float
    ) -> float:
        """Count `amount`; return how many milliseconds the client must wait, 0.0 for no wait."""
        limit = self.limit(kind, user, client_id)
        if limit is None:
            return 0.0
        usage = self._usage(kind, limit.bearer, now_ms)
        usage.rate.record(amount, now_ms)
        wait_ms = usage.rate.excess_ms(limit.per_second, now_ms)
        if kind is QuotaKind.REQUEST:
            # CPU time is available again in the next window, whatever was used in this one.
            wait_ms = min(wait_ms, self._window_ms)
        if wait_ms > 0.0:
            usage.waits.record(wait_ms, now_ms)
            self.throttled[kind] += 1
        return wait_ms

    def take_back(
        self, kind: QuotaKind, user: str, client_id: str, amount: float, now_ms: float
    ) -> None:
        """Undo a `record` whose amount was not used after all."""
        limit = self.limit(kind, user, client_id)
        if limit is not None:
            self._usage(kind, limit.bearer, now_ms).rate.record(-amount, now_ms)

    def in_use(self, now_ms: float) -> Iterator[tuple[QuotaKind, Bearer, float, float]]:
        """Yield the bearers that have used some of a limit recently: kind, bearer, amount per
        second, and the mean throttle time in ms (NaN without any)."""
        for (kind, bearer), usage in self._usages.items():
            if not usage.rate.is_idle(now_ms):
                yield kind, bearer, usage.rate.per_second(now_ms), usage.waits.mean(now_ms)

    def _make_room(self, now_ms: float) -> None:
        """Drop rates without a recent event, and if too many are left, the oldest tenth: clients
        choose their ids, and each id may have a rate of its own."""
        usages = {key: kept for key, kept in self._usages.items() if not kept.rate.is_idle(now_ms)}
        if len(usages) >= RATES_MAX:
            usages = dict(islice(usages.items(), RATES_MAX // 10, None))
        self._usages = usages

    def _usage(self, kind: QuotaKind, bearer: Bearer, now_ms: float) -> _Usage:
        usage = self._usages.get((kind, bearer))
        if usage is None:
            if len(self._usages) >= RATES_MAX:
                self._make_room(now_ms)
            usage = _Usage(
                WindowedRate(self._window_count, self._window_ms),
                WindowedMean(self._window_count, self._window_ms),
            )
            self._usages[(kind, bearer)] = usage
        return usage
