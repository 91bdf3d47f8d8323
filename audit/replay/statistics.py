"""Numbers of a replay: ISR churn, times under min ISR and without leader, sizes over time.

Each interval of the log has its own counts, and the counts of intervals add up. A state that lasts
across a boundary is clipped there; it counts as one episode of the interval in which it began.
"""

from __future__ import annotations

from typing import Any

from audit.state.cluster import ClusterState, PartitionState
from audit.state.shapes import NO_LEADER, ShapeKey

SERIES_POINTS_MAX = 400


class Episodes:
    """How long, and how often, partitions were in some state."""

    def __init__(self) -> None:
        self.total_ms: dict[tuple[str, int], int] = {}
        self.count: dict[tuple[str, int], int] = {}

    def begin(self, partition: PartitionState) -> None:
        key = (partition.topic.name, partition.index)
        self.count[key] = self.count.get(key, 0) + 1
        self.total_ms.setdefault(key, 0)

    def add(self, partition: PartitionState, lasted_ms: int) -> None:
        key = (partition.topic.name, partition.index)
        self.total_ms[key] = self.total_ms.get(key, 0) + max(0, lasted_ms)

    def rows(self) -> list[list[Any]]:
        """Return [topic, partition, milliseconds, episodes that began] per partition."""
        return [[*key, ms, self.count.get(key, 0)] for key, ms in sorted(self.total_ms.items())]


class Series:
    """Sums over all partitions at points in time, thinned out as they arrive."""

    def __init__(self) -> None:
        self.points: list[list[int]] = []
        self.isr = self.elr = self.under = self.leaderless = 0
        self._last: list[int] | None = None
        self._step_ms = 1

    def add(self, shape: ShapeKey, sign: int) -> None:
        self.isr += sign * len(shape.isr)
        self.elr += sign * len(shape.elr)
        if shape.leader == NO_LEADER:
            self.leaderless += sign

    def point(self, timestamp_ms: int) -> None:
        """Add a point at the end of a batch, unless the values are unchanged."""
        values = [self.isr, self.elr, self.under, self.leaderless]
        if values == self._last:
            return
        self._last = values
        self._put([timestamp_ms, *values])
        if len(self.points) > 2 * SERIES_POINTS_MAX:
            points, self.points = self.points, []
            self._step_ms = max(1, (timestamp_ms - points[0][0]) // SERIES_POINTS_MAX)
            for point in points:
                self._put(point)

    def _put(self, point: list[int]) -> None:
        """Keep the last point per time step, so that a long log is thinned evenly."""
        if self.points and self.points[-1][0] // self._step_ms == point[0] // self._step_ms:
            self.points[-1] = point
        else:
            self.points.append(point)


class Statistics:
    """All numbers of one replay."""

    def __init__(self, cluster: ClusterState) -> None:
        self.cluster = cluster
        self.under = Episodes()
        self.leaderless = Episodes()
        self.series = Series()
        self.records = 0
        self.batches = 0
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.elections: dict[str, int] = {}
        self.causes: dict[str, int] = {}
        self.record_types: dict[str, int] = {}

    def count_election(self, kind: str, cause: str) -> None:
        self.elections[kind] = self.elections.get(kind, 0) + 1
        self.causes[cause] = self.causes.get(cause, 0) + 1

    def enter(self, partition: PartitionState, now_ms: int, *, fresh: bool) -> None:
        """Count a partition that was created (`fresh`), or whose state is known from here on."""
        self.series.add(partition.shape.key, 1)
        self.changed(partition, now_ms, counted=fresh)

    def leave(self, partition: PartitionState, now_ms: int) -> None:
        """Stop counting a partition that was removed."""
        self.series.add(partition.shape.key, -1)
        self._end_under(partition, now_ms)
        self._end_leaderless(partition, now_ms)

    def changed(self, partition: PartitionState, now_ms: int, *, counted: bool = True) -> None:
        """Begin and end episodes for the partition's new shape."""
        shape = partition.shape
        if not shape.under:
            self._end_under(partition, now_ms)
        elif partition.under_since_ms is None:
            partition.under_since_ms = now_ms
            self.series.under += 1
            if counted:
                self.under.begin(partition)
        if not shape.leaderless:
            self._end_leaderless(partition, now_ms)
        elif partition.leaderless_since_ms is None:
            partition.leaderless_since_ms = now_ms
            if counted:
                self.leaderless.begin(partition)

    def _end_under(self, partition: PartitionState, now_ms: int) -> None:
        if partition.under_since_ms is not None:
            self.under.add(partition, now_ms - partition.under_since_ms)
            partition.under_since_ms = None
            self.series.under -= 1

    def _end_leaderless(self, partition: PartitionState, now_ms: int) -> None:
        if partition.leaderless_since_ms is not None:
            self.leaderless.add(partition, now_ms - partition.leaderless_since_ms)
            partition.leaderless_since_ms = None

    def close(self, now_ms: int) -> None:
        """Count lasting states up to the end of the interval."""
        for partition in self.cluster.each_partition():
            if partition.under_since_ms is not None:
                self.under.add(partition, now_ms - partition.under_since_ms)
            if partition.leaderless_since_ms is not None:
                self.leaderless.add(partition, now_ms - partition.leaderless_since_ms)

    def as_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "batches": self.batches,
            "isr_shrinks": self.isr_shrinks,
            "isr_expands": self.isr_expands,
            "elections": self.elections,
            "causes": self.causes,
            "record_types": self.record_types,
            "under_min_isr": self.under.rows(),
            "leaderless": self.leaderless.rows(),
            "series": self.series.points,
        }
