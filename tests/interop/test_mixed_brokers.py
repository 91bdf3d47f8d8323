"""Replicas of one topic on Apache Kafka's brokers and ours, under our controllers or Kafka's.

An idempotent producer with acks=all runs all the time. At the end every acknowledged record is
there once and in order, and the replicas' logs are equal byte for byte up to the high watermark.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicPartition

from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from protocol.transport.client import Connection
from testkit.kafka.in_place import LEVELS, KafkaInPlace
from testkit.kafka.jars import ORACLE, PREVIOUS, kafka_libs
from testkit.processes.quorum_cluster import ProcessCluster
from testkit.processes.waiting import until
from tests.interop.mixed_cluster import (
    PARTITIONS,
    TOPIC,
    WAIT_S,
    Mixed,
    Writer,
    audited,
    check_logs,
    check_records,
    place_of,
    running,
)

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(
        kafka_libs() is None, reason="no Java or Maven to get Kafka's jars with (docs/gaps.md)"
    ),
]


def story(mixed: Mixed, ours: int, theirs: int, third: int) -> None:
    """Move leaders both ways between the sides, and kill leaders of either side."""
    mixed.create([ours, theirs, third], [theirs, ours, third])
    with Writer(mixed.bootstrap) as writer:
        mixed.wait_for_leaders(ours, theirs)
        writer.wait_for_more()
        mixed.order([theirs, ours, third], [ours, theirs, third])
        writer.wait_for_more()
        mixed.order([ours, theirs, third], [theirs, ours, third])
        writer.wait_for_more()
        for broker_id, leaders in ((ours, [theirs] * 2), (theirs, [ours] * 2)):
            mixed.wait_until_whole()
            mixed.order([ours, theirs, third], [theirs, ours, third])
            mixed.node(broker_id).kill()
            mixed.wait_for_leaders(*leaders)
            writer.wait_for_more()
            mixed.node(broker_id).start()
        mixed.wait_until_whole()
        writer.wait_for_more()
    check_records(writer, mixed.read())
    check_logs(mixed, mixed.marks())


def shut_down_in_good_order(mixed: Mixed, broker_id: int, successor: int) -> None:
    """Shut a broker down: its leaderships move before it ends, without a missed heartbeat."""
    mixed.node(broker_id).stop()
    mixed.wait_for_leaders(*[successor] * PARTITIONS)


def lose_a_directory(mixed: Mixed, broker_id: int, successor: int) -> None:
    """Fail a log directory of a Kafka broker that leads both partitions, each in a directory of its
    own."""
    mixed.order([broker_id, successor, 5], [broker_id, successor, 5])
    node = mixed.cluster.nodes[broker_id]
    places = [place_of(node, index).parent for index in range(PARTITIONS)]
    # The first also holds the metadata log: without that one a broker stops.
    lost = places.index(node.data.with_name("data2"))
    assert places[1 - lost] == node.data
    places[lost].rename(node.directory / "gone")
    mixed.wait_for_leaders(*(successor if i == lost else broker_id for i in range(PARTITIONS)))
    assert [broker_id in isr for _, isr in mixed.described()] == [lost == 1, lost == 0]


def eligible(mixed: Mixed) -> list[tuple[list[int], list[int]]]:
    """Return sorted ELR and LastKnownELR of each partition; all live brokers must agree."""
    told = [asyncio.run(_describe(address)) for address in mixed.bootstrap.split(",")]
    found = [one for one in told if one is not None]
    assert found and all(one == found[0] for one in found), found
    return found[0]


async def _describe(address: str) -> list[tuple[list[int], list[int]]] | None:
    host, port = address.split(":")
    try:
        connection = await Connection.connect(host, int(port), "test", 2000)
    except OSError:
        return None
    try:
        topic = DescribeTopicPartitionsRequest.TopicRequest(name=TOPIC)
        answer = await connection.request(DescribeTopicPartitionsRequest(topics=[topic]), 5000)
    finally:
        await connection.close()
    return [
        (sorted(p.eligible_leader_replicas or ()), sorted(p.last_known_elr or ()))
        for p in answer.topics[0].partitions
    ]


def eligible_replicas(mixed: Mixed, ours: int, theirs: int, third: int) -> None:
    """Check that cleanly stopped brokers of either kind are in the ELR and lead again, a killed one
    not.

    The last one in sync is killed and comes back first.
    """
    for stopped, killed in ((theirs, ours), (ours, theirs)):
        mixed.wait_until_whole()
        before = mixed.read()
        mixed.order(*[[killed, stopped, third]] * PARTITIONS)
        mixed.node(third).stop()
        mixed.node(stopped).stop()
        alone = [(killed, [killed])] * PARTITIONS
        until("the last in-sync replica", lambda a=alone: mixed.described() == a, WAIT_S)  # type: ignore[misc]
        assert eligible(mixed) == [([stopped], [])] * PARTITIONS
        mixed.node(killed).kill()
        mixed.node(killed).start()
        nobody = [(-1, [])] * PARTITIONS
        until("nobody leads", lambda n=nobody: mixed.described() == n, WAIT_S)  # type: ignore[misc]
        until(
            "the crash is known",
            lambda s=stopped, k=killed: eligible(mixed) == [([s], [k])] * PARTITIONS,  # type: ignore[misc]
            WAIT_S,
        )
        mixed.node(stopped).start()
        mixed.wait_for_leaders(*[stopped] * PARTITIONS)
        mixed.node(third).start()
        mixed.wait_until_whole()
        assert eligible(mixed) == [([], [])] * PARTITIONS
        assert mixed.read() == before


def eligible_after_a_standstill(mixed: Mixed, ours: int, theirs: int, third: int) -> None:
    """Check that our broker is in the ELR after a pause, and leads once it sends heartbeats again.

    It did not stop, so it does not register again. Kafka's leader is killed during the pause.
    """
    mixed.wait_until_whole()
    before = mixed.read()
    mixed.order(*[[theirs, ours, third]] * PARTITIONS)
    mixed.node(third).stop()
    ourselves = mixed.cluster.nodes[ours]
    ourselves.pause()
    alone = [(theirs, [theirs])] * PARTITIONS
    until("the last in-sync replica", lambda: mixed.described() == alone, WAIT_S)
    mixed.node(theirs).kill()
    ourselves.resume()
    mixed.wait_for_leaders(*[ours] * PARTITIONS)
    assert mixed.described() == [(ours, [ours])] * PARTITIONS
    mixed.node(theirs).start()
    mixed.node(third).start()
    mixed.wait_until_whole()
    assert mixed.read() == before


def come_back_empty(mixed: Mixed, broker_id: int, others: tuple[int, int]) -> int:
    """F22: replace all disks of a Kafka broker that alone is in sync in one partition.

    The others were killed, too: in the other partition the last leader leads. Kafka's broker
    reports the directories of its new replicas; the report is refused if an empty one would become
    the complete one.

    Returns: the partition with no other replica in sync.
    """
    (alone,) = (i for i, (leader, _) in enumerate(mixed.described()) if leader == broker_id)
    before = mixed.read()
    for other in others:
        mixed.node(other).kill()
    last = (broker_id, [broker_id])
    until("the last in-sync replica", lambda: mixed.described()[alone] == last, WAIT_S)
    mixed.node(broker_id).kill()
    mixed.theirs[broker_id].replace_disks()
    for node in map(mixed.node, (*others, broker_id)):
        node.start()
    until("its other replica in the ISR", lambda: _is_whole(mixed, 1 - alone), WAIT_S)
    # On another disk it is not eligible any more; a replica out of sync never was.
    assert mixed.described()[alone] == (-1, [])
    wanted = [TopicPartition(TOPIC, alone)]
    mixed.admin.elect_leaders(ElectionType.UNCLEAN, wanted).result(WAIT_S)
    mixed.wait_until_whole()
    assert mixed.leaders()[alone] in others
    assert mixed.read() == before
    return alone


def _is_whole(mixed: Mixed, partition: int) -> bool:
    leader, isr = mixed.described()[partition]
    return leader >= 0 and len(isr) == len(mixed.replicas)


SETTINGS = {"offsets.topic.num.partitions": "1"}


def test_kafkas_broker_under_our_controllers(tmp_path: Path) -> None:
    """Controllers 1-3 and brokers 4 and 5 are ours, broker 6 is Kafka's and has two directories.

    It reports with AssignReplicasToDirs which replica is in which, and when one fails. In the end
    both are replaced.
    """
    settings = {**SETTINGS, "kraftbox.broker.connection.loss.fence.ms": "200"}
    with ProcessCluster(tmp_path, brokers=3, settings=settings, features=LEVELS[ORACLE]) as cluster:
        place = cluster.nodes[6]
        second = {
            "log.dirs": f"{place.data},{place.data}2",
            "replica.high.watermark.checkpoint.interval.ms": "500",
        }
        theirs = {6: KafkaInPlace(place, second)}
        with running(cluster, theirs, (4, 5, 6)) as mixed:
            mixed.place_offsets(5)
            story(mixed, 4, 6, 5)
            lose_a_directory(mixed, 6, 4)
            alone = come_back_empty(mixed, 6, (5, 4))
            eligible_replicas(mixed, 4, 6, 5)
            shut_down_in_good_order(mixed, 6, 4)
            told = audited(mixed)
    lossy = [(e.partition, e.kind) for e in told if e.is_lossy]
    assert sorted(lossy) == sorted([(alone, "unclean"), (1 - alone, "last-known-leader")])
    assert {e.to_leader for e in told if e.kind == "elr"} >= {4, 6}


@pytest.mark.rest
def test_our_brokers_under_kafkas_controller(tmp_path: Path) -> None:
    """The controller and broker 2 are Kafka's, 3 and 4 are ours.

    Kafka's controller elects ours from the ELR, and removes it after a crash: our broker correctly
    reports its last shutdown.
    """
    with ProcessCluster(
        tmp_path, controllers=1, brokers=3, settings=SETTINGS, features=LEVELS[ORACLE]
    ) as cluster:
        theirs = {n: KafkaInPlace(cluster.nodes[n]) for n in (1, 2)}
        with running(cluster, theirs, (2, 3, 4)) as mixed:
            story(mixed, 3, 2, 4)
            eligible_replicas(mixed, 3, 2, 4)
            eligible_after_a_standstill(mixed, 3, 2, 4)
            shut_down_in_good_order(mixed, 2, 3)
            told = audited(mixed)
    assert [e for e in told if e.is_lossy] == []
    eligible_ones = Counter(e.to_leader for e in told if e.kind == "elr")
    assert eligible_ones == {2: PARTITIONS, 3: 2 * PARTITIONS}


@pytest.mark.rest
def test_brokers_of_both_releases_under_previous_controller(tmp_path: Path) -> None:
    """Controller and broker 2 are Kafka 4.3.1's, 3 is ours, 4 is Kafka 4.4.0's: level 30."""
    releases = {1: PREVIOUS, 2: PREVIOUS, 4: ORACLE}
    with ProcessCluster(
        tmp_path, controllers=1, brokers=3, settings=SETTINGS, features=LEVELS[PREVIOUS]
    ) as cluster:
        theirs = {n: KafkaInPlace(cluster.nodes[n], version=v) for n, v in releases.items()}
        with running(cluster, theirs, (2, 3, 4)) as mixed:
            story(mixed, 3, 2, 4)
            told = audited(mixed)
    assert [e for e in told if e.is_lossy] == []
