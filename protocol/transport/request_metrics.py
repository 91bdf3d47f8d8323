"""Metric families of the transport's counters.

Series have the names that Strimzi's JMX rules give Kafka's `RequestMetrics` and socket server
MBeans; series without a counterpart begin with `kraftbox_`. Kafka computes exact percentiles of a
sample of the last minutes. Here quantiles of the last one to two minutes are interpolated within
buckets whose bounds are powers of two: less exact, for a hundredth of the cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.transport.stats import ApiStats, ConnectionStats
from runtime.metrics import QUANTILES, Family

if TYPE_CHECKING:
    from runtime.metrics import Sample

WINDOW_MS = 60_000.0

REQUESTS = "kafka_network_requestmetrics_"
SOCKETS = "kafka_server_socket_server_metrics_"

PHASES = (
    ("requestqueuetimems", "request_queue", "Time a request waited for those read with it, ms"),
    ("localtimems", "local", "Time in the handler, ms"),
    ("remotetimems", "remote", "Time until the result that the handler waited for, ms"),
    ("responsequeuetimems", "response_queue", "Time behind answers to earlier requests, ms"),
    ("responsesendtimems", "response_send", "Time to encode and write the answer, ms"),
    ("totaltimems", "total", "Time from the arrival of a request to its answer, ms"),
)

_Key = tuple[str, str]


class RecentBuckets:
    """Computes the counts of the last one to two minutes from cumulative buckets.

    It stores the buckets of a scrape at least a minute ago; nothing runs between two scrapes. A
    series without new counts since then has all its counts, as Kafka's samples do.
    """

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._base: dict[_Key, list[int]] = {}
        self._next: dict[_Key, list[int]] = {}
        self._next_ms = now_ms()
        self._turning = False

    def begin(self) -> None:
        """Start a scrape: note the time, and replace the stored buckets if they are too old."""
        now_ms = self._now_ms()
        self._turning = now_ms - self._next_ms >= WINDOW_MS
        if self._turning:
            self._base, self._next, self._next_ms = self._next, {}, now_ms

    def of(self, key: _Key, buckets: list[int]) -> list[int]:
        """Return the recent counts of a series.

        Args:
            key: API name and phase.
            buckets: the cumulative counts, which the caller must not change afterwards.
        """
        if self._turning:
            self._next[key] = buckets
        base = self._base.get(key)
        if base is None or base == buckets:
            return buckets
        return [now - then for now, then in zip(buckets, base, strict=True)]


class TransportMetrics:
    """The metric families of a node: counters of an API are added over its listeners."""

    def __init__(
        self,
        now_ms: Callable[[], float],
        apis: Callable[[], Iterable[ApiStats]],
        connections: Callable[[], Iterable[tuple[str, ConnectionStats]]],
    ) -> None:
        """`connections` returns the name and counters of each listener."""
        self._recent = RecentBuckets(now_ms)
        self._apis = apis
        self._connections = connections

    def collect(self) -> Iterator[Family]:
        """Yield the metric families for the registry."""
        yield from self._requests()
        yield from _connections(self._connections())

    def _requests(self) -> Iterator[Family]:
        groups: dict[str, list[ApiStats]] = {}
        for one in self._apis():
            if any(one.requests):
                groups.setdefault(one.api_name, []).append(one)
                if one.parent_name:
                    groups.setdefault(one.parent_name, []).append(one)
        yield _counters(REQUESTS + "requests_total", "Requests", groups, _by_version)
        yield _counters(REQUESTS + "errors_total", "Error codes in answers", groups, _by_error)
        self._recent.begin()
        for suffix, attribute, text in PHASES:
            samples: list[Sample] = []
            for name, group in groups.items():
                samples += self._times(name, group, attribute, REQUESTS + suffix)
            yield Family(REQUESTS + suffix, text, "summary", samples)
        for direction, text in (("in", "requests"), ("out", "responses")):
            yield Family(
                f"kraftbox_request_bytes_{direction}_total",
                f"Bytes of {text}",
                "counter",
                [
                    ({"request": name}, sum(getattr(one, f"bytes_{direction}") for one in group))
                    for name, group in groups.items()
                ],
            )

    def _times(self, name: str, group: list[ApiStats], phase: str, series: str) -> Iterator[Sample]:
        buckets = _sum(getattr(one, phase) for one in group)
        total = sum(sum(one.total) for one in group)
        buckets[0] += total - sum(buckets)  # the replies without this phase
        recent = self._recent.of((name, phase), buckets)
        ranked = sum(recent)
        for quantile in QUANTILES:
            labels = {"request": name, "quantile": quantile}
            yield labels, quantile_ms(recent, ranked * float(quantile))
        labels = {"request": name}
        if phase == "total":
            yield {"__name__": series + "_sum", **labels}, sum(one.total_ms for one in group)
        yield {"__name__": series + "_count", **labels}, total


def _counters(
    name: str,
    text: str,
    groups: dict[str, list[ApiStats]],
    split: Callable[[str, list[ApiStats]], Iterator[Sample]],
) -> Family:
    samples = [sample for api, group in groups.items() for sample in split(api, group)]
    return Family(name, text, "counter", samples)


def _by_version(name: str, group: list[ApiStats]) -> Iterator[Sample]:
    for version in range(max(len(one.requests) for one in group)):
        count = sum(one.requests[version] for one in group if version < len(one.requests))
        if count:
            yield {"request": name, "version": str(version)}, count


def _by_error(name: str, group: list[ApiStats]) -> Iterator[Sample]:
    for code in sorted({code for one in group for code in one.errors}):
        count = sum(one.errors.get(code, 0) for one in group)
        yield {"request": name, "error": ErrorCode(code).name}, count


def _connections(stats: Iterable[tuple[str, ConnectionStats]]) -> Iterator[Family]:
    listed = [({"listener": name, "networkProcessor": "0"}, one) for name, one in stats]
    for suffix, text, attribute in (
        ("connection_count", "Open connections", "open"),
        ("connection_creation_total", "Connections accepted", "accepted"),
        ("connection_refused_total", "Connections over a limit", "refused"),
        ("expired_connections_killed_count", "Idle connections closed", "closed_idle"),
        ("incoming_byte_total", "Bytes received", "bytes_in"),
        ("outgoing_byte_total", "Bytes sent", "bytes_out"),
    ):
        samples: list[Sample] = [(labels, getattr(one, attribute)) for labels, one in listed]
        kind = "gauge" if attribute == "open" else "counter"
        yield Family(SOCKETS + suffix, text, "gauge" if kind == "gauge" else "counter", samples)


def _sum(columns: Iterable[list[int]]) -> list[int]:
    return [sum(column) for column in zip(*columns, strict=True)]


def quantile_ms(buckets: list[int], rank: float) -> float:
    """Return the time in ms below which `rank` replies are, interpolated in its bucket."""
    below = 0
    for bucket, count in enumerate(buckets):
        if count and below + count >= rank:
            low = 0 if bucket == 0 else 1 << (bucket - 1)
            return (low + (max(low, 1) * (rank - below) / count)) / 1000.0
        below += count
    return 0.0
