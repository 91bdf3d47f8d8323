"""Every reason, from a cluster image, and the sentence that a person reads."""

from __future__ import annotations

import pytest
from immutables import Map

from controller.elections.eligibility import (
    ELIGIBLE,
    Ineligible,
    Reason,
    assignment_order,
    broker_eligibility,
    explain,
    is_eligible,
)
from metalog.image.values import BrokerImage

NONE: frozenset[int] = frozenset()


def broker(broker_id: int, *, fenced: bool = False, leaving: bool = False) -> BrokerImage:
    return BrokerImage(
        id=broker_id,
        epoch=broker_id,
        incarnation_id=bytes(16),
        endpoints=(),
        features=Map(),
        rack=None,
        fenced=fenced,
        in_controlled_shutdown=leaving,
        directories=(),
    )


BROKERS = Map(
    {
        1: broker(1),
        2: broker(2, fenced=True),
        3: broker(3, leaving=True),
        4: broker(4),
        5: broker(5),
        6: broker(6),
        7: broker(7, fenced=True),
    }
)
SHIFT = {
    "leaving": frozenset({4}),
    "joining": frozenset({7}),
    "expired": frozenset({5}),
    "unclean": frozenset({6}),
}
EXPECTED = {
    1: None,
    2: Reason.FENCED,
    3: Reason.SHUTTING_DOWN,
    4: Reason.LEAVING,
    5: Reason.SESSION_EXPIRED,
    6: Reason.UNCLEAN_SHUTDOWN,
    7: None,
    8: Reason.NOT_REGISTERED,
}


@pytest.mark.parametrize(("broker_id", "reason"), EXPECTED.items())
def test_reasons(broker_id: int, reason: Reason | None) -> None:
    eligibility = broker_eligibility(BROKERS, **SHIFT)(broker_id)
    assert eligibility == (ELIGIBLE if reason is None else Ineligible(reason))
    assert is_eligible(eligibility) is (reason is None)


def test_every_reason_about_a_broker_is_covered() -> None:
    # The one about a member's epoch is for ISRs and is tested with AlterPartition.
    assert set(EXPECTED.values()) - {None} == set(Reason) - {Reason.OTHER_EPOCH}


def test_an_unclean_broker_may_not_lead_in_the_decision_that_unfences_it() -> None:
    eligibility_of = broker_eligibility(
        BROKERS, leaving=NONE, joining=frozenset({7}), expired=NONE, unclean=frozenset({7})
    )
    assert eligibility_of(7) == Ineligible(Reason.UNCLEAN_SHUTDOWN)


def test_the_message_says_what_the_rule_says() -> None:
    text = explain((1, 2, 8), broker_eligibility(BROKERS, **SHIFT))
    assert text == "broker 2 is fenced, broker 8 is not registered"
    assert str(ELIGIBLE) == "is eligible"


def test_assignment_order_is_the_assignment() -> None:
    assert assignment_order((3, 1, 2), 0) == (3, 1, 2)
