"""Client quotas: accepted and refused alterations, and their records."""

from __future__ import annotations

import math
from typing import Any

import pytest

from controller.decision import Decision
from controller.quotas.limits import (
    QuotaAlteration,
    QuotaOperation,
    QuotaOutcome,
    decide_alter_client_quotas,
)
from metalog.image.replay import replay
from protocol.errors import ErrorCode
from testkit.memory.controller import Cluster

USER = (("user", "u"),)
PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"


def alteration(parts: Any, **values: float | None) -> QuotaAlteration:
    return QuotaAlteration(
        tuple(parts), tuple(QuotaOperation(key, value) for key, value in values.items())
    )


def decide(
    cluster: Cluster, *alterations: QuotaAlteration, validate_only: bool = False
) -> Decision[tuple[QuotaOutcome, ...]]:
    return decide_alter_client_quotas(cluster.view(), alterations, validate_only=validate_only)


def code(cluster: Cluster, parts: Any, **values: float | None) -> ErrorCode | None:
    decision = decide(cluster, alteration(parts, **values))
    (outcome,) = decision.reply
    assert outcome.parts == tuple(parts)
    if outcome.error is not None:
        assert decision.records == ()
        return outcome.error.code
    return None


def apply(cluster: Cluster, decision: Decision[Any]) -> None:
    for record in decision.records:
        cluster.image = replay(cluster.image, record)


def test_set_change_and_remove() -> None:
    cluster = Cluster()
    apply(cluster, decide(cluster, alteration(USER, **{PRODUCE: 1000.0, FETCH: 2000.0})))
    assert dict(cluster.image.client_quotas[USER]) == {PRODUCE: 1000.0, FETCH: 2000.0}
    same = decide(cluster, alteration(USER, **{PRODUCE: 1000.0, "request_percentage": None}))
    assert same.records == ()
    change = decide(cluster, alteration(USER, **{PRODUCE: 5.0, FETCH: None}))
    assert len(change.records) == 2
    apply(cluster, change)
    assert dict(cluster.image.client_quotas[USER]) == {PRODUCE: 5.0}
    apply(cluster, decide(cluster, alteration(USER, **{PRODUCE: None})))
    assert USER not in cluster.image.client_quotas


def test_the_order_of_the_parts_does_not_matter() -> None:
    cluster = Cluster()
    apply(
        cluster, decide(cluster, alteration([("user", "u"), ("client-id", None)], **{PRODUCE: 1.0}))
    )
    assert list(cluster.image.client_quotas) == [(("client-id", None), ("user", "u"))]
    removal = decide(cluster, alteration([("client-id", None), ("user", "u")], **{PRODUCE: None}))
    assert len(removal.records) == 1


def test_nothing_is_written_to_validate() -> None:
    cluster = Cluster()
    decision = decide(cluster, alteration(USER, **{PRODUCE: 1.0}), validate_only=True)
    assert decision.records == () and decision.reply[0].error is None


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("galaxy", "x")],
        [("", "x")],
        [("user", "")],
        [("client-id", "")],
        [("user", "a"), ("user", "b")],
        [("ip", "10.0.0.1"), ("user", "u")],
        [("ip", "10.0.0.1"), ("client-id", None)],
        [("ip", "no address")],
    ],
)
def test_entities_that_cannot_be(parts: Any) -> None:
    assert code(Cluster(), parts, **{PRODUCE: 1.0}) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "parts",
    [
        [("user", None)],
        [("client-id", "c")],
        [("client-id", "c"), ("user", "u")],
        [("user", "a/b\x00 é")],
    ],
)
def test_entities_that_can_be(parts: Any) -> None:
    assert code(Cluster(), parts, **{PRODUCE: 1.0}) is None


@pytest.mark.parametrize("name", ["10.0.0.1", "::1", None])
def test_addresses(name: str | None) -> None:
    assert code(Cluster(), [("ip", name)], connection_creation_rate=5.0) is None
    assert code(Cluster(), [("ip", name)], **{PRODUCE: 5.0}) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("speed", 1.0),
        ("", 1.0),
        ("connection_creation_rate", 1.0),
        (PRODUCE, 0.0),
        (PRODUCE, -1.0),
        (PRODUCE, 1.5),
        (PRODUCE, 0.0000001),
        (PRODUCE, 1e300),
        (PRODUCE, math.nan),
        ("request_percentage", math.inf),
        ("request_percentage", 0.0),
    ],
)
def test_values_that_cannot_be(key: str, value: float) -> None:
    assert code(Cluster(), USER, **{key: value}) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "value", "stored"),
    [
        (PRODUCE, 1.0000001, 1.0),
        ("request_percentage", 12.5, 12.5),
        ("controller_mutation_rate", 0.5, 0.5),
    ],
)
def test_values_that_can_be(key: str, value: float, stored: float) -> None:
    cluster = Cluster()
    apply(cluster, decide(cluster, alteration(USER, **{key: value})))
    assert cluster.image.client_quotas[USER][key] == stored


def test_each_entity_stands_alone_and_may_stand_once() -> None:
    cluster = Cluster()
    decision = decide(
        cluster,
        alteration(USER, **{PRODUCE: 1.0}),
        alteration([("user", "bad")], speed=1.0),
        alteration([("user", "twice")], **{PRODUCE: 1.0}),
        alteration([("user", "twice")], **{PRODUCE: 2.0}),
    )
    codes = [outcome.error and outcome.error.code for outcome in decision.reply]
    assert codes == [None, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
    assert len(decision.records) == 1
    twice = QuotaAlteration(USER, (QuotaOperation(PRODUCE, 1.0), QuotaOperation(PRODUCE, 2.0)))
    assert decide(cluster, twice).reply[0].error is not None
