"""Counts of groups and offsets under the names that Kafka 4.4 prefers.

Kafka 4.4 deprecates the MBeans of GroupMetadataManager, and reports their counts in
`group-coordinator-metrics`, next to the rates of the coordinator. Dashboards use either, so both
are written. They have the same values, because the second names copy the first: the groups of a
broker are counted once for each scrape.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from runtime.metrics import Collector, Family, Labels, Sample

_OLD: Final = "kafka_coordinator_group_groupmetadatamanager_num"
_NEW: Final = "kafka_server_group_coordinator_metrics_"
_STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")


class _Count(NamedTuple):
    name: str
    help: str
    labels: Labels


_COUNTS: Final = {
    f"{_OLD}groups": _Count("group_count", "Groups by protocol", {"protocol": "classic"}),
    f"{_OLD}offsets": _Count("offset_count", "Committed offsets", {}),
    **{
        f"{_OLD}groups{state.lower()}": _Count(
            "classic_group_count", "Groups of the classic protocol by state", {"state": state}
        )
        for state in _STATES
    },
}


class GroupMetrics:
    """Collector of the series of groups; `coordinator` is the group coordinator's collector."""

    def __init__(self, coordinator: Collector) -> None:
        self._coordinator = coordinator

    def collect(self) -> Iterable[Family | None]:
        """Yield the coordinator's families, then its counts under their second names."""
        samples: dict[tuple[str, str], list[Sample]] = {}
        for family in self._coordinator():
            yield family
            if family is not None and family.name in _COUNTS:
                count = _COUNTS[family.name]
                ((_, value),) = family.samples
                samples.setdefault((count.name, count.help), []).append((count.labels, value))
        for (name, text), found in samples.items():
            yield Family(_NEW + name, text, "gauge", found)
