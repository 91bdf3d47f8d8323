"""KIP-599: created and deleted partitions count against the client's mutation rate."""

from __future__ import annotations

from typing import Any

import pytest

from controller.quotas import mutations
from controller.quotas.mutations import KEY, MutationQuotas, Spending
from controller.topics.change import (
    TopicKey,
    decide_create_partitions,
    decide_delete_topics,
)
from controller.topics.create import decide_create_topics
from metalog.image.replay import replay
from metalog.image.values import MetadataImage
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.metadata.client_quota_record import ClientQuotaRecord
from testkit.memory.controller import Cluster

REFUSED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


def image_with(rate: float, **parts: str | None) -> MetadataImage:
    record = ClientQuotaRecord(
        entity=[
            ClientQuotaRecord.EntityData(entity_type=kind.replace("_", "-"), entity_name=name)
            for kind, name in parts.items()
        ],
        key=KEY,
        value=rate,
    )
    return replay(Cluster().image, record)


def quotas(rate: float = 2.0, **parts: str | None) -> MutationQuotas:
    made = MutationQuotas(window_count=5, window_ms=1_000.0)
    made.publish(image_with(rate, **(parts or {"user": "u"})))
    return made


def change(made: MutationQuotas, count: int, now_ms: float, *, strict: bool) -> tuple[bool, int]:
    """Charge a change. Returns: whether it was accepted, and the client's throttle time in ms."""
    spending = made.begin("u", "c", strict=strict, now_ms=now_ms)
    assert spending is not None
    try:
        spending.charge(count)
    except ApiError as error:
        assert error.code is REFUSED
    return not spending.refused, made.settle(spending, now_ms)


def test_without_a_limit_nothing_is_counted() -> None:
    made = quotas(user="somebody")
    assert made.begin("u", "c", strict=True, now_ms=0.0) is None
    assert made.settle(None, 0.0) == 0


def test_a_strict_client_may_overdraw_once_and_is_then_refused() -> None:
    made = quotas(rate=2.0)  # the bucket holds 10
    assert change(made, 16, 0.0, strict=True) == (True, 0)  # 6 below zero
    assert change(made, 1, 0.0, strict=True) == (False, 3_000)
    assert change(made, 1, 2_000.0, strict=True) == (False, 1_000)
    assert change(made, 1, 3_000.0, strict=True) == (True, 0)  # exactly zero is not below zero


def test_a_refusal_costs_nothing() -> None:
    made = quotas(rate=2.0)
    change(made, 11, 0.0, strict=True)
    for _ in range(100):
        assert change(made, 50, 0.0, strict=True) == (False, 500)
    assert change(made, 1, 500.0, strict=True) == (True, 0)


def test_non_strict_client_over_quota_is_throttled() -> None:
    made = quotas(rate=2.0)
    assert change(made, 10, 0.0, strict=False) == (True, 0)
    assert change(made, 4, 0.0, strict=False) == (True, 2_000)
    assert change(made, 4, 0.0, strict=False) == (True, 4_000)


def test_a_full_bucket_grows_no_further() -> None:
    made = quotas(rate=2.0)
    change(made, 1, 0.0, strict=True)
    assert change(made, 11, 1e6, strict=True) == (True, 0)
    assert change(made, 1, 1e6, strict=True) == (False, 500)


def test_a_new_limit_counts_at_once_and_debts_stay() -> None:
    made = quotas(rate=2.0)
    change(made, 20, 0.0, strict=True)  # 10 below zero
    made.publish(image_with(10.0, user="u"))
    assert change(made, 1, 0.0, strict=True) == (False, 1_000)


def test_clients_with_same_entity_share_bucket() -> None:
    made = quotas(1.0, client_id=None)  # one bucket per client id, whatever its user
    first = made.begin("u", "a", strict=True, now_ms=0.0)
    other = made.begin("v", "a", strict=True, now_ms=0.0)
    second = made.begin("u", "b", strict=True, now_ms=0.0)
    assert first is not None
    assert other is not None
    assert second is not None
    assert first.bearer == other.bearer != second.bearer


def test_full_buckets_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutations, "BUCKETS_MAX", 3)
    made = quotas(1.0, client_id=None)
    for number in range(10):
        made.begin("u", f"idle-{number}", strict=True, now_ms=0.0)
        assert len(made._buckets) <= 3
    debtor = made.begin("u", "debtor", strict=True, now_ms=0.0)
    assert debtor is not None
    debtor.charge(100)
    made.settle(debtor, 0.0)
    for number in range(10):
        made.begin("u", f"more-{number}", strict=True, now_ms=0.0)
    again = made.begin("u", "debtor", strict=True, now_ms=0.0)
    assert again is not None
    assert again.left == -95.0


def test_mutation_quota_metrics() -> None:
    made = quotas(rate=2.0)
    change(made, 12, 0.0, strict=False)
    tokens, throttled = made.collect(0.0)
    whose = {"resource": "ControllerMutation", "user": "u", "clientId": ""}
    assert list(tokens.samples) == [(whose, -2.0)]
    assert list(throttled.samples) == [({}, 1)]
    assert list(next(iter(made.collect(60_000.0))).samples) == []


# --- what operations charge -----------------------------------------------------------------


def three_brokers() -> Cluster:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    return cluster


def wish(name: str, partitions: int) -> Any:
    return CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=2
    )


class Account:
    """A factory of spendings, one for each decision of the cluster; the last one counts."""

    def __init__(self, left: float, *, strict: bool = True) -> None:
        self._left = left
        self._strict = strict

    def open(self) -> Spending:
        self.last = Spending(("u", None), self._left, strict=self._strict)
        return self.last


def test_topics_are_charged_by_partition_and_refused_one_by_one() -> None:
    cluster, account = three_brokers(), Account(5)
    request = CreateTopicsRequest(topics=[wish("a", 4), wish("bad", 0), wish("b", 2), wish("c", 1)])
    outcomes = cluster.run(lambda view: decide_create_topics(view, request, account.open()))
    codes = [getattr(outcome.result, "code", None) for outcome in outcomes]
    assert codes == [None, ErrorCode.INVALID_PARTITIONS, None, REFUSED]
    assert (account.last.spent, account.last.refused) == (6, True)
    assert set(cluster.image.topics.by_name) == {"a", "b"}


def test_validation_is_charged_too() -> None:
    account = Account(5)
    request = CreateTopicsRequest(topics=[wish("a", 4)], validate_only=True)
    three_brokers().run(lambda view: decide_create_topics(view, request, account.open()))
    assert account.last.spent == 4


def test_only_added_partitions_are_charged() -> None:
    cluster, account = three_brokers(), Account(5)
    cluster.create_topic("t", [1, 2], [2, 3])
    added = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=5, assignments=None)
    request = CreatePartitionsRequest(topics=[added])
    (outcome,) = cluster.run(lambda view: decide_create_partitions(view, request, account.open()))
    assert (outcome.error, account.last.spent) == (None, 3)
    empty = Account(-1)
    more = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=6, assignments=None)
    request = CreatePartitionsRequest(topics=[more])
    (outcome,) = cluster.run(lambda view: decide_create_partitions(view, request, empty.open()))
    assert outcome.error is not None
    assert outcome.error.code is REFUSED
    assert len(cluster.image.topics.by_name["t"].partitions) == 5


def test_deletions_are_charged_by_partition() -> None:
    cluster, account = three_brokers(), Account(1)
    for name in ("a", "b"):
        cluster.create_topic(name, [1, 2], [2, 3])
    keys = [TopicKey("a"), TopicKey("b")]
    outcomes = cluster.run(lambda view: decide_delete_topics(view, keys, account.open()))
    assert [each.error and each.error.code for each in outcomes] == [None, REFUSED]
    assert (account.last.spent, set(cluster.image.topics.by_name)) == (2, {"b"})


def test_non_strict_client_is_never_refused() -> None:
    cluster, account = three_brokers(), Account(-100, strict=False)
    request = CreateTopicsRequest(topics=[wish("a", 4)])
    (outcome,) = cluster.run(lambda view: decide_create_topics(view, request, account.open()))
    assert not isinstance(outcome.result, ApiError)
    assert account.last.spent == 4


def test_buckets_of_clients_in_debt_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client chooses its ids, so the number of buckets is bounded even if none is full."""
    monkeypatch.setattr(mutations, "BUCKETS_MAX", 50)
    quotas = MutationQuotas()
    quotas.publish(image_with(1.0, **{"client-id": None}))
    for n in range(200):
        spending = quotas.begin("u", f"c{n}", strict=False, now_ms=0.0)
        assert spending is not None
        spending.charge(1_000)
        quotas.settle(spending, 0.0)
    assert len(quotas._buckets) <= 50
