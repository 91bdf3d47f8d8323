"""Metric series of every partition, cached as text between two scrapes.

Few of thousands of partitions change from one scrape to the next. They are divided into groups, and
a group's lines of a metric are written again only if one of its values differs from last time.
Reading and comparing the values costs a fifth of writing them. Metrics of a partition's state are
computed only if a field that they depend on has changed. Between two groups the caller may run
other work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from broker.replication.partition.partition import Partition
from runtime.metrics import Family, Labels, rendered, series_lines

GROUP: Final = 250
"""Partitions whose lines are written together: a quarter of a millisecond."""

Values: TypeAlias = Callable[[Sequence[Partition]], list[int]]


class _Gauge(NamedTuple):
    name: str
    help: str
    values: Values
    of_state: bool = False
    """True if the values come from `_STATE` alone."""


_STATE: Final = attrgetter("role", "isr", "replicas", "min_isr", "elr")
_GAUGES: Final = (
    _Gauge("kafka_log_log_size", "Bytes of the log", lambda ps: [p.log.size_bytes for p in ps]),
    _Gauge(
        "kafka_log_log_logstartoffset",
        "Log start offset",
        lambda ps: [p.log.log_start_offset for p in ps],
    ),
    _Gauge(
        "kafka_log_log_logendoffset",
        "Log end offset: that of the next record",
        lambda ps: [p.log.log_end_offset for p in ps],
    ),
    _Gauge(
        "kafka_log_log_numlogsegments",
        "Segments of the log",
        lambda ps: [len(p.log.segments) for p in ps],
    ),
    # On every replica: a partition without a leader needs it most.
    _Gauge(
        "kraftbox_partition_electable_replicas",
        "Replicas that can be elected without loss: ISR and ELR",
        lambda ps: [p.electable_count for p in ps],
        of_state=True,
    ),
)

_CLUSTER: Final = "kafka_cluster_partition_"
_LEADER_GAUGES: Final = (
    _Gauge(
        f"{_CLUSTER}underreplicated",
        "1 if in-sync replicas are missing",
        lambda ps: [p.under_replicated for p in ps],
        of_state=True,
    ),
    _Gauge(
        f"{_CLUSTER}underminisr",
        "1 if there are fewer in-sync replicas than the minimum",
        lambda ps: [p.under_min_isr for p in ps],
        of_state=True,
    ),
    _Gauge(
        f"{_CLUSTER}atminisr",
        "1 if one more lost replica falls below the minimum",
        lambda ps: [p.at_min_isr for p in ps],
        of_state=True,
    ),
    _Gauge(
        f"{_CLUSTER}replicascount",
        "Replicas of the partition",
        lambda ps: [len(p.replicas) for p in ps],
        of_state=True,
    ),
    _Gauge(
        f"{_CLUSTER}insyncreplicascount",
        "In-sync replicas of the partition",
        lambda ps: [len(p.isr) for p in ps],
        of_state=True,
    ),
    _Gauge(
        f"{_CLUSTER}laststableoffsetlag",
        "Records below the high watermark that read_committed consumers cannot see yet",
        lambda ps: [p.log.high_watermark - p.log.last_stable_offset for p in ps],
    ),
)


class _Group:
    """Some partitions and their lines of the last scrape; the partitions never change."""

    __slots__ = ("_labels", "_of_state", "_state", "_written", "partitions")

    def __init__(self, partitions: list[Partition]) -> None:
        self.partitions = partitions
        self._labels = [rendered(_labels(partition)) for partition in partitions]
        self._written: dict[str, tuple[list[int], list[str], bytes]] = {}
        self._state: list[Any] = []
        self._of_state: dict[str, bytes] = {}

    def look(self) -> None:
        """Discard the lines of state that has changed. Call it once in a scrape."""
        state = list(map(_STATE, self.partitions))
        if state != self._state:
            self._state = state
            self._of_state.clear()

    def text(self, gauge: _Gauge) -> bytes:
        """Return the lines of one metric."""
        if gauge.of_state:
            text = self._of_state.get(gauge.name)
            if text is None:
                values = gauge.values(self.partitions)
                text = "".join(series_lines(gauge.name, self._labels, values)).encode()
                self._of_state[gauge.name] = text
            return text
        values = gauge.values(self.partitions)
        written = self._written.get(gauge.name)
        if written is None:
            lines = series_lines(gauge.name, self._labels, values)
        else:
            before, lines, text = written
            if before == values:
                return text
            new = [at for at, value in enumerate(values) if value != before[at]]
            labels, changed = [self._labels[at] for at in new], [values[at] for at in new]
            for at, line in zip(new, series_lines(gauge.name, labels, changed), strict=True):
                lines[at] = line
        text = "".join(lines).encode()
        self._written[gauge.name] = values, lines, text
        return text


class PartitionSeries:
    """All groups. Scrapes may overlap: each iterates over the groups that it began with."""

    def __init__(self) -> None:
        self._groups: list[_Group] = []
        self._led: list[_Group] = []

    def families(self, partitions: list[Partition]) -> Iterator[Family | None]:
        """Yield the families of these partitions; those for leaders have series of the partitions
        that were led here when their group was checked."""
        before, led_before = self._groups, self._led
        groups: list[_Group] = []
        led_groups: list[_Group] = []
        for at in range(0, len(partitions), GROUP):
            some = partitions[at : at + GROUP]
            group = _same_or_new(before, len(groups), some)
            group.look()
            groups.append(group)
            led = [partition for partition in some if partition.is_leader]
            if led == some:
                led_groups.append(group)
            else:
                led_groups.append(_same_or_new(led_before, len(led_groups), led))
                led_groups[-1].look()
            yield None
        self._groups, self._led = groups, led_groups
        for gauge in _GAUGES:
            yield _family(gauge, groups)
        for gauge in _LEADER_GAUGES:
            yield _family(gauge, led_groups)


def _same_or_new(before: list[_Group], at: int, partitions: list[Partition]) -> _Group:
    if at < len(before) and before[at].partitions == partitions:
        return before[at]
    return _Group(partitions)


def _family(gauge: _Gauge, groups: list[_Group]) -> Family:
    texts = (group.text(gauge) for group in groups)
    return Family(gauge.name, gauge.help, "gauge", (), texts)


def _labels(partition: Partition) -> Labels:
    return {"topic": partition.topic, "partition": str(partition.index)}
