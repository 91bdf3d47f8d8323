"""Metrics of client quotas, under the names of the JMX exporter's rules for Kafka's sensors.

Only users and clients with a limit and recent requests have series: at most as many as rates are
kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.quota.quotas import ClientQuotas, QuotaKind
from runtime.clock import Clock
from runtime.metrics import Family, Sample
from serving.quota_limits import Bearer

_RESOURCES = {
    QuotaKind.PRODUCE: "Produce",
    QuotaKind.FETCH: "Fetch",
    QuotaKind.REQUEST: "Request",
}
_BYTES = (QuotaKind.PRODUCE, QuotaKind.FETCH)


class QuotaMetrics:
    """Collector that reads the rates at each scrape."""

    def __init__(self, quotas: ClientQuotas, clock: Clock) -> None:
        self._quotas = quotas
        self._clock = clock

    def collect(self) -> Iterator[Family]:
        """Yield all families, for the metrics registry."""
        rates: list[Sample] = []
        shares: list[Sample] = []
        waits: list[Sample] = []
        for kind, bearer, per_second, wait_ms in self._quotas.in_use(self._clock.monotonic_ms()):
            labels = _labels(kind, bearer)
            (rates if kind in _BYTES else shares).append((labels, per_second))
            waits.append((labels, wait_ms))
        for name, text, samples in (
            ("byte_rate", "Bytes per second of limited clients", rates),
            ("request_time", "Percent of a CPU used by limited clients", shares),
            ("throttle_time", "Mean throttle time of clients over a limit in ms", waits),
        ):
            yield Family(f"kafka_server_quota_{name}", text, "gauge", samples)
        yield Family(
            "kraftbox_quota_throttled_total",
            "Throttled requests",
            "counter",
            [
                ({"resource": resource}, self._quotas.throttled[kind])
                for kind, resource in _RESOURCES.items()
            ],
        )


def _labels(kind: QuotaKind, bearer: Bearer) -> dict[str, str]:
    user, client_id = bearer
    return {"resource": _RESOURCES[kind], "user": user or "", "clientId": client_id or ""}
