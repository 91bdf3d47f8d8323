"""Quantiles of recent durations, for events too rare for buckets."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Sequence

from runtime.metrics import QUANTILES, Family, Sample

SAMPLES_MAX = 1024


class RecentTimes:
    """The last durations in ms, for quantiles at scrape time."""

    __slots__ = ("_samples", "count")

    def __init__(self) -> None:
        self.count = 0
        self._samples: deque[float] = deque(maxlen=SAMPLES_MAX)

    def add(self, duration_ms: float) -> None:
        self.count += 1
        self._samples.append(duration_ms)

    def family(self, name: str, text: str) -> Family:
        """Return a summary without a sum, as the JMX exporter writes histograms."""
        ordered: list[float] = []
        for sample in self._samples:
            insort(ordered, sample)
        return summary(name, text, [_at(ordered, float(q)) for q in QUANTILES], self.count)


def summary(name: str, text: str, values: Sequence[float], count: int) -> Family:
    """Return a summary whose `values` correspond to QUANTILES, in that order."""
    samples: list[Sample] = [
        ({"quantile": quantile}, value) for quantile, value in zip(QUANTILES, values, strict=True)
    ]
    samples.append(({"__name__": f"{name}_count"}, count))
    return Family(name, text, "summary", samples)


def _at(ordered: list[float], quantile: float) -> float:
    if not ordered:
        return 0.0
    return ordered[min(int(quantile * len(ordered)), len(ordered) - 1)]
