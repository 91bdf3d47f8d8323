"""Repeated registrations of one process, in each state of its broker (KAFKA-16952, P16).

The controller either carries over a field of the registration in the image or takes it from the new
request; `BrokerImage` must have no third kind.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.brokers.registration import BrokerState
from metalog.image.values import BrokerImage, Endpoint
from protocol.messages.broker_registration import BrokerRegistrationRequest
from testkit.memory.controller import Cluster, registration

ONE, TWO, THREE = b"first directory.", b"second directory", b"third directory."
BOTH = [ONE, TWO]
CARRIED_OVER = frozenset(
    {"id", "epoch", "incarnation_id", "fenced", "in_controlled_shutdown", "cordoned_directories"}
)
REQUESTED = frozenset({"endpoints", "features", "rack", "directories"})
NEVER_SET = frozenset({"is_migrating_zk_broker", "unknown_tags"})
"""The image refuses a migrating broker, and a request has no tagged fields of newer schemas."""


def fenced(cluster: Cluster) -> None:
    """Return a cluster whose broker is registered and still fenced."""


def unfenced(cluster: Cluster) -> None:
    cluster.heartbeat(1, cordoned_log_dirs=[TWO])


def fenced_later(cluster: Cluster) -> None:
    unfenced(cluster)
    cluster.fence(1)


def shutting_down(cluster: Cluster) -> None:
    """Return a cluster in a controlled shutdown: other brokers have not applied the leader changes
    yet."""
    unfenced(cluster)
    cluster.create_topic("led", [1, 2])
    reply = cluster.heartbeat(1, want_shut_down=True)
    assert reply.state is BrokerState.CONTROLLED_SHUTDOWN
    cluster.heartbeats.begin_shutdown(1, cluster.next_offset - 1)


def may_go(cluster: Cluster) -> None:
    """Return a cluster whose broker has ended its controlled shutdown, while its process still
    runs."""
    shutting_down(cluster)
    cluster.heartbeat(2)
    cluster.heartbeat(3)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


def shut_down_at_once(cluster: Cluster) -> None:
    """Return a cluster whose broker led nothing, so its first shutdown request is granted at
    once."""
    unfenced(cluster)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


STATES = (fenced, unfenced, fenced_later, shutting_down, may_go, shut_down_at_once)
State = Callable[[Cluster], None]


@pytest.fixture(params=STATES, ids=[state.__name__ for state in STATES])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    cluster = Cluster(elr=True)
    cluster.start(2, 3)
    cluster.register(1, log_dirs=BOTH, rack="r1")
    request.param(cluster)
    return cluster


def again(cluster: Cluster, **fields: object) -> tuple[BrokerImage, BrokerImage]:
    """Return the registration before and after the same process registers again."""
    before = cluster.image.cluster.brokers[1]
    assert cluster.register(1, **{"log_dirs": BOTH, "rack": "r1", **fields}) == before.epoch
    return before, cluster.image.cluster.brokers[1]


def test_every_field_is_carried_over_or_requested() -> None:
    assert frozenset(BrokerImage._fields) == CARRIED_OVER | REQUESTED | NEVER_SET


def test_the_same_request_changes_nothing(cluster: Cluster) -> None:
    before, after = again(cluster)
    assert after == before


@pytest.mark.parametrize("field", sorted(CARRIED_OVER))
def test_another_request_of_the_same_process_keeps(cluster: Cluster, field: str) -> None:
    before, after = again(
        cluster, rack="r2", log_dirs=[*BOTH, THREE], listeners=[], previous_broker_epoch=77
    )
    assert getattr(after, field) == getattr(before, field)


def test_another_request_of_the_same_process_replaces_what_it_names(cluster: Cluster) -> None:
    listener = BrokerRegistrationRequest.Listener(name="NEW", host="other", port=1)
    features = registration(1).features
    narrow = [one.replace(max_supported_version=30) for one in features]
    _, after = again(
        cluster, rack="r2", log_dirs=[*BOTH, THREE], listeners=[listener], features=narrow
    )
    assert after.rack == "r2"
    assert after.directories == (*BOTH, THREE)
    assert after.endpoints == (Endpoint("NEW", "other", 1, 0),)
    supported = {f.name: (f.min_supported_version, f.max_supported_version) for f in narrow}
    assert dict(after.features) == supported


def test_the_same_process_leaves_no_isr_and_no_elr(cluster: Cluster) -> None:
    """Whatever previous epoch it names, the process has not ended, so no ISR and ELR changes."""
    cluster.create_topic("t", [2, 3])
    before = cluster.image.topics
    again(cluster, rack="r2", previous_broker_epoch=-1)
    assert cluster.image.topics is before


def test_the_next_heartbeat_finds_the_state_as_it_was(cluster: Cluster) -> None:
    """The controlled shutdown continues, and is granted under the same condition as before
    (KIP-841)."""
    before = cluster.image.cluster.brokers[1]
    leaves = before.in_controlled_shutdown
    offset = cluster.heartbeats.shutdown_offset(1)
    again(cluster, rack="r2")
    assert cluster.heartbeats.shutdown_offset(1) == offset
    reply = cluster.heartbeat(1, want_shut_down=leaves)
    if not leaves:
        assert reply.state is BrokerState.UNFENCED
    elif before.fenced:
        assert reply.state is BrokerState.SHUTDOWN_NOW
    else:
        assert reply.state is BrokerState.CONTROLLED_SHUTDOWN
        cluster.heartbeat(2)
        cluster.heartbeat(3)
        assert cluster.heartbeat(1, want_shut_down=True).state is BrokerState.SHUTDOWN_NOW


def test_broker_in_shutdown_that_registers_again_leads_nothing() -> None:
    """A broker in controlled shutdown is no candidate, although it is not fenced."""
    cluster = Cluster(elr=True)
    cluster.start(2, 3)
    cluster.register(1, log_dirs=BOTH, rack="r1")
    shutting_down(cluster)
    again(cluster, rack="r2")
    cluster.fence(2)
    partition = cluster.partition("led")
    assert (partition.leader, partition.isr) == (-1, ())
