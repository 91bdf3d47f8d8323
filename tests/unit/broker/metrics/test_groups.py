"""The counts of groups under both of their names."""

from __future__ import annotations

from collections.abc import Iterator

from broker.coordinators.group.states import GroupState
from broker.metrics.groups import GroupMetrics
from runtime.metrics import Family

OLD = "kafka_coordinator_group_groupmetadatamanager_num"
NEW = "kafka_server_group_coordinator_metrics_"


def counted() -> Iterator[Family | None]:
    """Yield what a coordinator yields: a different count for each state."""
    yield None
    yield Family(f"{OLD}groups", "Groups", "gauge", [({}, 15)])
    yield Family(f"{OLD}offsets", "Committed offsets", "gauge", [({}, 70)])
    yield Family(f"{NEW}offset_commit_count", "Offsets committed", "counter", [({}, 90)])
    for number, state in enumerate(GroupState, 1):
        name = f"{OLD}groups{state.value.lower()}"
        yield Family(name, f"Groups in state {state.value}", "gauge", [({}, number)])


def test_group_counts_have_the_names_of_4_4_in_addition() -> None:
    """Kafka 4.4 adds classic-group-count{state} and offset-count; the states are Kafka's names."""
    found = list(GroupMetrics(counted).collect())
    count = len(list(counted()))
    assert found[:count] == list(counted())
    added = {family.name: list(family.samples) for family in found[count:] if family is not None}
    assert added == {
        f"{NEW}group_count": [({"protocol": "classic"}, 15)],
        f"{NEW}offset_count": [({}, 70)],
        f"{NEW}classic_group_count": [
            ({"state": state.value}, number) for number, state in enumerate(GroupState, 1)
        ],
    }
