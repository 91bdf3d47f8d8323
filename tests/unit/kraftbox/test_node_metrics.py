"""A node's metrics of request memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from kraftbox.node_metrics import NodeMetrics
from runtime.config.schema import LONG_MAX


def told(*servers: Any) -> dict[str, float]:
    """Return the families about request memory of a broker with these servers."""
    metrics = NodeMetrics(
        monotonic_ms=lambda: 0.0,
        servers=lambda: servers,
        quorum=lambda: None,
        loader=lambda: None,
        supervisor=cast(Any, None),
        is_broker=True,
        is_controller=False,
    )
    families = metrics._request_memory()
    return {family.name: float(list(family.samples)[0][1]) for family in families}


def server(memory: Any) -> Any:
    return SimpleNamespace(memory=memory)


def memory(limit_bytes: int) -> Any:
    return SimpleNamespace(used_bytes=30, limit_bytes=limit_bytes, waiting=2, waits=5, cut_off=3)


def test_a_budget_that_listeners_share_counts_once() -> None:
    shared = memory(100)
    assert told(server(shared), server(shared)) == {
        "kafka_network_socketserver_memorypoolused": 30,
        "kafka_network_socketserver_memorypoolavailable": 70,
        "kraftbox_request_memory_waiting": 2,
        "kraftbox_request_memory_waits_total": 5,
        "kraftbox_request_memory_cut_off_total": 3,
    }


def test_budgets_are_added_up() -> None:
    found = told(server(memory(100)), server(memory(25)))
    assert found["kafka_network_socketserver_memorypoolused"] == 60
    assert found["kafka_network_socketserver_memorypoolavailable"] == 70
    assert found["kraftbox_request_memory_waits_total"] == 10


def test_without_a_limit_there_is_always_room() -> None:
    found = told(server(memory(0)))
    assert found["kafka_network_socketserver_memorypoolavailable"] == float(LONG_MAX)
    assert found["kafka_network_socketserver_memorypoolused"] == 30
