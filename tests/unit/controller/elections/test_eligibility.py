"""Every reason for ineligibility, from a cluster image, and its message for operators."""

from __future__ import annotations

from functools import partial

import pytest
from immutables import Map

from controller.elections.eligibility import (
    ELIGIBLE,
    Ineligible,
    PartitionReplicas,
    Reason,
    assignment_order,
    broker_eligibility,
    explain,
    is_eligible,
)
from metalog.image.values import BrokerImage
from protocol.ids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED

NONE: frozenset[int] = frozenset()
OLD, NEW, OTHER = b"the old disk....", b"the new disk....", b"the second disk."


def broker(
    broker_id: int,
    *,
    fenced: bool = False,
    leaving: bool = False,
    directories: tuple[bytes, ...] = (),
) -> BrokerImage:
    return BrokerImage(
        id=broker_id,
        epoch=broker_id,
        incarnation_id=bytes(16),
        endpoints=(),
        features=Map(),
        rack=None,
        fenced=fenced,
        in_controlled_shutdown=leaving,
        directories=directories,
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
        9: broker(9, directories=(NEW, OTHER)),
        10: broker(10, fenced=True, directories=(NEW,)),
    }
)
PARTITION = PartitionReplicas(b"t" * 16, 0, (1, 2, 9, 10), (OLD, OLD, OLD, OLD))
BROKER_CHANGE = {
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
    9: Reason.DIRECTORY_OFFLINE,
    10: Reason.FENCED,
}


@pytest.mark.parametrize(("broker_id", "reason"), EXPECTED.items())
def test_reasons(broker_id: int, reason: Reason | None) -> None:
    eligibility = broker_eligibility(BROKERS, **BROKER_CHANGE)(PARTITION, broker_id)
    assert eligibility == (ELIGIBLE if reason is None else Ineligible(reason))
    assert is_eligible(eligibility) is (reason is None)


def test_every_reason_about_a_broker_is_covered() -> None:
    # AlterPartition's tests cover the reason about a member's broker epoch, which is for ISRs only.
    assert set(EXPECTED.values()) - {None} == set(Reason) - {Reason.OTHER_EPOCH}


def test_an_unclean_broker_may_not_lead_in_the_decision_that_unfences_it() -> None:
    eligibility_of = broker_eligibility(
        BROKERS, leaving=NONE, joining=frozenset({7}), expired=NONE, unclean=frozenset({7})
    )
    assert eligibility_of(PARTITION, 7) == Ineligible(Reason.UNCLEAN_SHUTDOWN)


def test_explain_names_the_reason_of_each_ineligible_broker() -> None:
    text = explain((1, 2, 8, 9), partial(broker_eligibility(BROKERS, **BROKER_CHANGE), PARTITION))
    assert text == (
        "broker 2 is fenced, broker 8 is not registered, "
        "broker 9 does not have the log directory of its replica online"
    )
    assert str(ELIGIBLE) == "is eligible"


def test_assignment_order_is_the_assignment() -> None:
    assert assignment_order(PARTITION, (3, 1, 2), 0) == (3, 1, 2)


# Directory on record, registered directories, whether the replica may lead: Kafka's DirectoryId.
DIRECTORIES = [
    (NEW, (NEW,), True),
    (OTHER, (NEW, OTHER), True),
    (OLD, (NEW,), False),
    (OLD, (NEW, OTHER), False),
    (DIRECTORY_LOST, (NEW,), False),
    (DIRECTORY_LOST, (), False),
    (DIRECTORY_UNASSIGNED, (NEW,), True),
    (DIRECTORY_UNASSIGNED, (NEW, OTHER), True),
    # records from before KIP-858, and registrations from then
    (DIRECTORY_MIGRATING, (NEW,), True),
    (OLD, (), True),
]


@pytest.mark.parametrize(("recorded", "registered", "eligible"), DIRECTORIES)
def test_f22_a_replica_is_where_its_directory_is(
    recorded: bytes, registered: tuple[bytes, ...], eligible: bool
) -> None:
    partition = PartitionReplicas(b"t" * 16, 0, (1,), (recorded,))
    for fenced in (False, True):
        brokers = Map({1: broker(1, fenced=fenced, directories=registered)})
        joining = frozenset({1}) if fenced else NONE
        eligibility = broker_eligibility(
            brokers, leaving=NONE, joining=joining, expired=NONE, unclean=NONE
        )(partition, 1)
        assert eligibility == (ELIGIBLE if eligible else Ineligible(Reason.DIRECTORY_OFFLINE))


def test_replica_without_its_directory_leaves_other_replicas_of_the_broker_eligible() -> None:
    eligibility_of = broker_eligibility(
        Map({1: broker(1, directories=(NEW,))}),
        leaving=NONE,
        joining=NONE,
        expired=NONE,
        unclean=NONE,
    )
    assert not is_eligible(eligibility_of(PARTITION, 1))
    assert is_eligible(eligibility_of(PARTITION._replace(directories=(NEW,) * 4), 1))
    assert not is_eligible(eligibility_of(PARTITION, 1))
