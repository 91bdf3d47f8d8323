"""Explanations of elections as text."""

from __future__ import annotations

import pytest

from client.admin import ExplainedPartition
from controller.elections.recovery_rules import WaitsFor
from kraftbox.cli.explanation import _WAITS, headlines, waits
from kraftbox.cli.replica_logs import Replicas


def test_every_thing_that_is_waited_for_has_words():
    assert set(_WAITS) == {one.value for one in WaitsFor}


def test_a_partition_without_leader():
    found = ExplainedPartition(
        topic="t",
        partition=3,
        leader=-1,
        leader_epoch=7,
        elr=[2, 1],
        strategy="Balanced",
        strategy_key="unclean.recovery.strategy",
        strategy_place="the topic",
        manager=True,
        waits="clean-candidate",
        waits_for=[1, 2],
        since_ms=1_700_000_000_000,
    )
    assert headlines(found, Replicas((), {}), []) == [
        "t-3: no broker leads (leader epoch 7)",
        "ISR -   ELR 2,1   last known ELR -",
        "unclean recovery: Balanced (unclean.recovery.strategy of the topic), logs are compared",
        "waits for one of brokers 1,2 to return: no other broker is in the ISR or ELR"
        " (since 2023-11-14 22:13:20 UTC)",
    ]


@pytest.mark.parametrize(
    ("kind", "brokers", "said"),
    [
        ("last-known", [4], "broker 4 to return: no other replica may have every record"),
        ("operator", [], "an operator: kraftbox elect --type ..."),
        ("something-newer", [1], "something-newer"),
    ],
)
def test_explanation_names_the_awaited_event(kind, brokers, said):
    assert waits(ExplainedPartition(waits=kind, waits_for=brokers)) == said
