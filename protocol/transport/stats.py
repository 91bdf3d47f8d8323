"""Counters of requests and connections: plain integers, read at scrape time.

Series carry the names that Strimzi's JMX rules give Kafka's `RequestMetrics` and socket server
MBeans. Kafka keeps exact percentiles of a sample; here a reply adds one to a bucket that is a power
of two wide and quantiles are interpolated inside it: rougher, for a hundredth of the cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from runtime.metrics import Family

if TYPE_CHECKING:
    from runtime.metrics import Sample

_BUCKETS = 33
"""Powers of two of microseconds: the last one holds everything above an hour."""

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class ApiStats:
    """What one API did. `time_buckets[n]` counts replies that took less than 2^n microseconds."""

    __slots__ = (
        "api_name",
        "bytes_in",
        "bytes_out",
        "errors",
        "requests",
        "time_buckets",
        "time_ms",
    )

    def __init__(self, api_name: str, version_max: int) -> None:
        self.api_name = "".join(word.capitalize() for word in api_name.split("_"))
        self.requests = [0] * (version_max + 1)
        self.errors: dict[str, int] = {}
        self.bytes_in = 0
        self.bytes_out = 0
        self.time_ms = 0.0
        self.time_buckets = [0] * _BUCKETS

    def add_time(self, elapsed_ms: float) -> None:
        """Count one reply."""
        self.time_ms += elapsed_ms
        bucket = int(elapsed_ms * 1000.0).bit_length()
        self.time_buckets[bucket if bucket < _BUCKETS else -1] += 1

    def add_error(self, name: str) -> None:
        """Count one request that ended in this error code."""
        self.errors[name] = self.errors.get(name, 0) + 1


class ConnectionStats:
    """What the connections of one listener did."""

    __slots__ = ("accepted", "bytes_in", "bytes_out", "closed_idle", "open", "refused")

    def __init__(self) -> None:
        self.open = 0
        self.accepted = 0
        self.refused = 0
        self.closed_idle = 0
        self.bytes_in = 0
        self.bytes_out = 0


def collect_requests(stats: Iterable[ApiStats]) -> Iterator[Family]:
    """Request metrics. Several entries of one API (from several listeners) are added up."""
    merged: dict[str, list[ApiStats]] = {}
    for one in stats:
        if any(one.requests):
            merged.setdefault(one.api_name, []).append(one)
    prefix = "kafka_network_requestmetrics_"
    versions: list[Sample] = []
    errors: list[Sample] = []
    times: list[Sample] = []
    sizes_in: list[Sample] = []
    sizes_out: list[Sample] = []
    for name, group in merged.items():
        versions += _by_version(name, group)
        for code in sorted({code for one in group for code in one.errors}):
            count = sum(one.errors.get(code, 0) for one in group)
            errors.append(({"request": name, "error": code}, count))
        times += _times(name, group, prefix + "totaltimems")
        sizes_in.append(({"request": name}, sum(one.bytes_in for one in group)))
        sizes_out.append(({"request": name}, sum(one.bytes_out for one in group)))
    yield Family(prefix + "requests_total", "Requests by API and version", "counter", versions)
    yield Family(prefix + "errors_total", "Requests answered with an error", "counter", errors)
    yield Family(prefix + "totaltimems", "Time from request to reply, ms", "summary", times)
    yield Family(prefix + "requestbytes_total", "Bytes of requests", "counter", sizes_in)
    yield Family(prefix + "responsebytes_total", "Bytes of responses", "counter", sizes_out)


def collect_connections(stats: Iterable[tuple[str, ConnectionStats]]) -> Iterator[Family]:
    """Connection metrics of (listener, stats)."""
    listed = list(stats)
    prefix = "kafka_server_socket_server_metrics_"
    for suffix, text, kind, attribute in (
        ("connection_count", "Open connections", "gauge", "open"),
        ("connection_creation_total", "Connections accepted", "counter", "accepted"),
        ("connection_refused_total", "Connections over a limit", "counter", "refused"),
        ("expired_connections_killed_count", "Idle connections closed", "counter", "closed_idle"),
        ("incoming_byte_total", "Bytes received", "counter", "bytes_in"),
        ("outgoing_byte_total", "Bytes sent", "counter", "bytes_out"),
    ):
        samples: list[Sample] = [
            ({"listener": listener}, getattr(one, attribute)) for listener, one in listed
        ]
        yield Family(prefix + suffix, text, "gauge" if kind == "gauge" else "counter", samples)


def _by_version(name: str, group: list[ApiStats]) -> Iterator[Sample]:
    for version in range(max(len(one.requests) for one in group)):
        count = sum(one.requests[version] for one in group if version < len(one.requests))
        if count:
            yield {"request": name, "version": str(version)}, count


def _times(name: str, group: list[ApiStats], series: str) -> Iterator[Sample]:
    buckets = [sum(column) for column in zip(*(one.time_buckets for one in group), strict=True)]
    total = sum(buckets)
    for quantile in QUANTILES:
        yield {"request": name, "quantile": str(quantile)}, _quantile_ms(buckets, total * quantile)
    labels = {"request": name}
    yield {"__name__": series + "_sum", **labels}, sum(one.time_ms for one in group)
    yield {"__name__": series + "_count", **labels}, total


def _quantile_ms(buckets: list[int], rank: float) -> float:
    """The value below which `rank` replies lie, interpolated inside its bucket."""
    below = 0
    for bucket, count in enumerate(buckets):
        if count and below + count >= rank:
            low = 0 if bucket == 0 else 1 << (bucket - 1)
            return (low + (max(low, 1) * (rank - below) / count)) / 1000.0
        below += count
    return 0.0
