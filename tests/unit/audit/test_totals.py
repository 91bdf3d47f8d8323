"""Totals of a whole log: informational findings, not promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from audit.checks.totals.base import Totals
from audit.checks.totals.isr_churn import IsrChurn
from audit.checks.totals.leader_skew import LeaderSkew
from audit.findings.finding import Severity

RACKS = {1: "a", 2: "a", 3: "b"}


def totals(*, shrinks: int = 0, expands: int = 0, **end: Any) -> Totals:
    return Totals(100, shrinks, expands, (), (), end, 100)


def skew(
    leaders: Mapping[str, int], preferred: Mapping[str, int], racks: Mapping[int, str | None]
) -> list[str]:
    brokers = [{"id": broker, "rack": rack} for broker, rack in racks.items()]
    given = totals(leaders=leaders, preferred=preferred, brokers=brokers)
    return [
        complaint.message.split(" partitions")[0] for complaint in LeaderSkew().on_totals(given)
    ]


EVEN = {"1": 20, "2": 20, "3": 20}


def test_leader_skew_reports_nothing_near_the_assignment() -> None:
    assert skew(EVEN, EVEN, RACKS) == []
    assert skew({"1": 21, "2": 22, "3": 17}, EVEN, RACKS) == []


def test_skew_by_broker_and_by_rack() -> None:
    assert skew({"1": 40, "2": 20}, EVEN, RACKS) == [
        "broker 1 leads 40",
        "broker 3 leads 0",
        "rack a leads 60",
        "rack b leads 0",
    ]


def test_brokers_of_one_rack_make_up_for_each_other() -> None:
    said = skew({"1": 40, "3": 20}, EVEN, RACKS)
    assert said == ["broker 1 leads 40", "broker 2 leads 0"]


def test_leader_skew_without_racks_reports_only_brokers() -> None:
    said = skew({"1": 40, "2": 20}, EVEN, dict.fromkeys(RACKS))
    assert said == ["broker 1 leads 40", "broker 3 leads 0"]


def test_few_partitions_and_partitions_without_leader_are_no_skew() -> None:
    few = {"1": 6, "2": 6, "3": 6}
    assert skew({"1": 9, "-1": 9}, few, dict.fromkeys(RACKS)) == []


@pytest.mark.parametrize(("shrinks", "expands"), [(3, 2), (1, 0)])
def test_isr_churn_is_reported_as_information(shrinks: int, expands: int) -> None:
    (fact,) = IsrChurn().on_totals(totals(shrinks=shrinks, expands=expands))
    assert fact.message == f"ISRs shrank {shrinks} times and grew {expands} times"
    assert IsrChurn.severity is Severity.INFO


def test_isr_churn_of_zero_is_not_reported() -> None:
    assert list(IsrChurn().on_totals(totals())) == []
