"""A replica that begins behind the tier, with failures at each step, on real processes (KIP-1023).

One cluster runs all rows. A row names a moment of the new replica's beginning, and an event. The
moment is a held request between its broker and the store, or a visible effect of a step on its
disk, which is slow then. In every case the replica is in sync in the end with the leader's data
(P17), and in no ISR before its log has begun (S5), by the controller's log.
tests/sim/test_last_tiered.py covers the steps that are not visible from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import pytest

from storage.tiered.layout import Kind
from testkit.processes.object_servers import Servers
from testkit.processes.quorum_cluster import NodeProcess, ProcessCluster
from testkit.processes.store_proxy import Operation, Point, StoreFault, StoreProxy
from testkit.processes.waiting import until
from tests.e2e.tier.new_replica import (
    EARLIEST,
    EARLIEST_PENDING_UPLOAD,
    RECORDS,
    SLOW_DISK,
    NewReplica,
)
from tests.e2e.tier.node import store_of, tier_settings

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("default")]

Happening: TypeAlias = Callable[[NewReplica], None]


class Seen(NamedTuple):
    """A step visible on the disk."""

    name: str
    is_so: Callable[[NewReplica], bool]

    def __str__(self) -> str:
        return self.name


MARKED = Seen("the marker is made", lambda one: one.has_marker and not one.bases(one.new)[0])
EMPTIED = Seen("the log is emptied", lambda one: one.has_marker and one.bases(one.new)[0] > 0)
WITH_EPOCHS = Seen("epochs are written", lambda one: one.has_marker and bool(one.epochs(one.new)))
UNMARKED = Seen("the marker is gone", lambda one: one.has_begun())


def asked_for(kind: Kind, *, answered: bool) -> Point:
    return Point("GET", kind.value, answered)


def new_is_killed(scene: NewReplica) -> None:
    scene.new.kill()


def leader_is_killed(scene: NewReplica) -> None:
    leader, other = leader_and_other(scene)
    leader.kill()
    scene.until_led_by(other)


def leader_is_replaced(scene: NewReplica) -> None:
    leader, other = leader_and_other(scene)
    scene.elect(other, leader, scene.new)


def chosen_segment_expires(scene: NewReplica) -> None:
    """Expire the segment and all before it; records produced later are in the tier as well."""
    gone = len(deleted_logs(scene))
    scene.delete_records(scene.offset(EARLIEST_PENDING_UPLOAD))
    until("segments are deleted", lambda: len(deleted_logs(scene)) > gone)
    scene.fill()


def deleted_logs(scene: NewReplica) -> list[str]:
    return [
        one.kind
        for one in list(scene.proxy.calls)
        if one.operation is Operation.DELETE and one.topic == scene.topic_id
    ]


def leader_and_other(scene: NewReplica) -> tuple[NodeProcess, NodeProcess]:
    leader = scene.leader()
    (other,) = (one for one in scene.old if one is not leader)
    return leader, other


class Row(NamedTuple):
    """An event at a moment."""

    moment: Point | Seen
    then: Happening

    def __str__(self) -> str:
        return f"{self.moment}: {self.then.__name__.replace('_', ' ')}"


SOME = [
    Row(asked_for(Kind.MANIFEST, answered=True), new_is_killed),
    Row(EMPTIED, new_is_killed),
    Row(WITH_EPOCHS, new_is_killed),
    Row(asked_for(Kind.LEADER_EPOCHS, answered=False), leader_is_killed),
    Row(EMPTIED, leader_is_killed),
    Row(asked_for(Kind.PRODUCER_SNAPSHOT, answered=True), leader_is_replaced),
    Row(asked_for(Kind.MANIFEST, answered=False), chosen_segment_expires),
]
READ = (Kind.MANIFEST, Kind.LEADER_EPOCHS, Kind.PRODUCER_SNAPSHOT)
ALL_MOMENTS: list[Point | Seen] = [
    *(asked_for(kind, answered=answered) for kind in READ for answered in (False, True)),
    *(MARKED, EMPTIED, WITH_EPOCHS, UNMARKED),
]
DEATHS: list[Happening] = [new_is_killed, leader_is_killed, leader_is_replaced]
ALL = [
    *(Row(moment, then) for moment in ALL_MOMENTS for then in DEATHS),
    Row(asked_for(Kind.LEADER_EPOCHS, answered=False), chosen_segment_expires),
    Row(asked_for(Kind.PRODUCER_SNAPSHOT, answered=True), chosen_segment_expires),
]


def undergo(scene: NewReplica, row: Row) -> None:
    leader, other = leader_and_other(scene)
    scene.fill()
    held = None
    if isinstance(row.moment, Point):
        held = scene.proxy.hold(row.moment, scene.topic_id)
    else:
        scene.slow_down()
    scene.move(leader, other, scene.new)
    if held is not None:
        scene.proxy.wait_until_held(held)
    else:
        seen = row.moment
        assert isinstance(seen, Seen)
        until(seen.name, lambda: seen.is_so(scene), every_s=0.005)
    if row.moment is not UNMARKED:
        scene.not_in_sync(scene.decided()[1])
        assert not scene.has_begun()
    row.then(scene)
    if held is not None:
        scene.proxy.release(held)
    scene.send(20)
    scene.revive()
    scene.until_in_sync(*scene.cluster.brokers)
    scene.same_history()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> Iterator[NewReplica]:
    store = store_of(servers, "versitygw")
    with StoreProxy(store["endpoint"]) as proxy:
        settings = {
            **tier_settings({**store, "endpoint": proxy.endpoint}, replicas=3, min_isr=1),
            "kraftbox.broker.connection.loss.fence.ms": "200",
            "log.flush.start.offset.checkpoint.interval.ms": "200",
            "follower.fetch.last.tiered.offset.enable": "true",
        }
        folder = tmp_path_factory.mktemp("cluster")
        with ProcessCluster(folder, controllers=1, brokers=3, settings=settings) as cluster:
            cluster.brokers[-1].settings.update(SLOW_DISK)
            cluster.start()
            scene = NewReplica(cluster, proxy)
            scene.prepare()
            yield scene


@pytest.fixture
def scene(brokers: NewReplica) -> NewReplica:
    """Reset the scene: the third broker has no replica."""
    brokers.begin_anew()
    return brokers


@pytest.mark.parametrize(
    "row",
    [*SOME, *(pytest.param(row, marks=pytest.mark.soak) for row in ALL if row not in SOME)],
    ids=str,
)
def test_a_beginning_that_is_disturbed_ends_in_sync(scene: NewReplica, row: Row) -> None:
    undergo(scene, row)


def test_a_store_that_is_down_holds_it_up_and_no_more(scene: NewReplica) -> None:
    leader, other = leader_and_other(scene)
    scene.fill()
    scene.proxy.fail(StoreFault.DOWN, Operation.MANIFEST, scene.topic_id)
    scene.move(leader, other, scene.new)
    until("the store is asked", lambda: scene.proxy.hits(Operation.MANIFEST, scene.topic_id) > 2)
    scene.send(RECORDS)
    assert not scene.has_begun()
    scene.not_in_sync(scene.decided()[1])
    scene.proxy.heal()
    scene.until_in_sync(*scene.cluster.brokers)
    scene.same_history()


def test_elected_it_serves_all_and_the_producer_goes_on(scene: NewReplica) -> None:
    """It uses an idempotent producer of librdkafka: no record is missing or there twice."""
    leader, other = leader_and_other(scene)
    scene.fill()
    scene.move(leader, scene.new, other)
    scene.until_in_sync(*scene.cluster.brokers)
    local_start = scene.bases(scene.new)[0]
    assert local_start > scene.bases(leader)[0] > 0
    scene.move(leader, scene.new)
    scene.until_in_sync(leader, scene.new)
    before = scene.acknowledged()
    scene.begin_to_send(RECORDS)
    until("some of them are acknowledged", lambda: scene.acknowledged() > before + RECORDS // 3)
    scene.begin_to_send(RECORDS)
    leader.kill()
    assert scene.acknowledged() < scene.produced
    scene.until_led_by(scene.new)
    scene.send(RECORDS)
    scene.serves_all()
    assert scene.leader() is scene.new and scene.offset(EARLIEST) < local_start
