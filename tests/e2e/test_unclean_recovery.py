"""F25, P21: every broker of a cluster is killed, and the one with the short log is back first.

Three topics in one run. With Aggressive it leads, and records that only the others had are lost.
With Balanced the controller waits for all replicas that may have everything, the longest log leads
and nothing is lost. With None an operator decides.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from client.admin import Admin
from client.cluster_client import ClusterClient
from client.elections import ElectionType
from kraftbox.cli.explanation import document
from protocol.errors import ApiError, ErrorCode
from testkit.audits import elections_of
from testkit.processes.listing import listed
from testkit.processes.quorum_cluster import NodeProcess, ProcessCluster
from testkit.processes.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("default")]

WAIT_S = 30
RECORDS = 100
STRATEGIES = ("Aggressive", "Balanced", "None")
SETTINGS = {
    "unclean.recovery.manager.enabled": "true",
    "unclean.recovery.timeout.ms": "2000",
    "kraftbox.broker.connection.loss.fence.ms": "200",
    "min.insync.replicas": "2",
}


def end_of(bootstrap: str, topic: str) -> int:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    try:
        return reader.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S)[1]
    finally:
        reader.close()


def elect(bootstrap: str, kind: ElectionType, topic: str, timeout_ms: float) -> int:
    async def asked() -> int:
        async with await ClusterClient.connect(bootstrap) as client:
            results = await Admin(client, timeout_ms).elect_leaders(kind, [(topic, 0)])
            return results[topic, 0].number

    return asyncio.run(asked())


def test_all_brokers_are_killed_and_the_shortest_log_is_back_first(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, controllers=1, brokers=3, settings=SETTINGS) as cluster:
        cluster.start()
        short, *others = cluster.brokers
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        ids = [broker.id for broker in cluster.brokers]
        new = [
            NewTopic(
                name.lower(),
                1,
                replica_assignment=[ids],
                config={"unclean.recovery.strategy": name},
            )
            for name in STRATEGIES
        ]
        topics = [topic.topic for topic in new]
        for created in admin.create_topics(new).values():
            created.result(WAIT_S)

        def state(topic: str) -> tuple[int, list[int]]:
            # A broker that has just started may not know the topic yet.
            found = until(
                "a broker that knows the topic",
                lambda: listed(admin, topic).topics[topic].partitions,
            )
            return found[0].leader, sorted(found[0].isrs)

        def produce(first: int) -> None:
            servers = ",".join(f"127.0.0.1:{broker.port}" for broker in cluster.brokers)
            producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
            for topic in topics:
                for number in range(first, first + RECORDS):
                    producer.produce(topic, str(number).encode(), partition=0)
            assert producer.flush(WAIT_S) == 0

        produce(0)
        short.kill()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for topic in topics:
            until("an ISR of two", lambda t=topic: len(state(t)[1]) == 2)  # type: ignore[misc]
        produce(RECORDS)
        for broker in others:
            broker.kill()

        # The broker without the second half is back alone. If librdkafka sends a request while no
        # broker listens, it may sleep through its whole timeout, even when a broker starts to
        # listen.
        short.start()
        until("a broker that is ready", lambda: short.log_text.count("to RUNNING") == 2)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        until("a short log leads", lambda: state("aggressive") == (short.id, [short.id]))
        assert state("balanced")[0] == -1
        assert elect(cluster.bootstrap, ElectionType.LONGEST_LOG_BALANCED, "none", 1000) == (
            ErrorCode.REQUEST_TIMED_OUT
        )
        others[0].start()
        until("two brokers", lambda: len(listed(admin).brokers) == 2)
        assert state("balanced")[0] == -1
        others[1].start()
        until("the longest log leads", lambda: state("balanced")[0] in ids[1:])
        for topic, count in (("balanced", 2 * RECORDS), ("aggressive", RECORDS)):
            until("the whole ISR", lambda t=topic: state(t)[1] == ids)  # type: ignore[misc]
            assert end_of(cluster.bootstrap, topic) == count
        # Whichever brokers live, none leads before an operator's request.
        assert state("none")[0] == -1
        assert elect(cluster.bootstrap, ElectionType.LONGEST_LOG_BALANCED, "none", 20_000) == (
            ErrorCode.NONE
        )
        until("the whole ISR", lambda: state("none")[1] == ids)
        assert state("none")[0] in ids[1:]
        assert end_of(cluster.bootstrap, "none") == 2 * RECORDS
        told = elections_of(cluster.controllers[0].metadata_dir)
        for topic in topics:
            lossy = [e.kind for e in told if e.topic == topic and e.is_lossy]
            assert lossy == ["unclean-recovery"], topic


def waits(broker: NodeProcess) -> tuple[str | None, list[int]]:
    """Return what topic t waits for, and the brokers; nothing if the broker that is queried is
    paused."""

    async def ask() -> dict[str, Any]:
        bootstrap = f"127.0.0.1:{broker.port}"
        async with await ClusterClient.connect(bootstrap, timeout_ms=1000) as client:
            (found,) = await Admin(client, 1000).explain_elections([("t", 0)])
            return document(found)

    try:
        told = asyncio.run(ask())
    except (ApiError, OSError):
        return None, []
    return told["waits"], told["waits_for"]


def test_controllers_end_and_a_broker_that_has_answered_dies(tmp_path: Path) -> None:
    """One active controller ends before the requests, one between answers.

    A broker that has answered and fails is awaited again, and gets a request in its new
    incarnation.
    """
    settings = {
        **SETTINGS,
        "unclean.recovery.timeout.ms": "600000",
        "broker.session.timeout.ms": "60000",
    }
    with ProcessCluster(tmp_path, controllers=3, brokers=3, settings=settings) as cluster:
        cluster.start()
        short, first, second = cluster.brokers
        ids = [broker.id for broker in cluster.brokers]
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for created in admin.create_topics([NewTopic("t", 1, replica_assignment=[ids])]).values():
            created.result(WAIT_S)
        servers = ",".join(f"127.0.0.1:{broker.port}" for broker in cluster.brokers)
        producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
        for end in (0, RECORDS):
            for number in range(end, end + RECORDS):
                producer.produce("t", str(number).encode(), partition=0)
            assert producer.flush(WAIT_S) == 0
            if end == 0:
                short.kill()
        for broker in (first, second):
            broker.kill()

        asking = cluster.wait_for_leader()
        asking.kill()
        cluster.wait_for_leader(but=asking)
        asking.start()
        short.start()
        first.start()
        unfenced = "broker is unfenced"
        until("the short one", lambda: short.log_text.count(unfenced) == 2, WAIT_S)
        clean = "clean-candidate", [second.id]  # as far as is known before it is back
        until("one is missed", lambda: waits(first) == clean, WAIT_S)
        short.pause()
        second.start()
        until("answers are missed", lambda: waits(second) == ("answers", [short.id]), WAIT_S)
        first.kill()
        until("one is missed again", lambda: waits(second) == ("last-known", [first.id]), WAIT_S)
        asking = cluster.wait_for_leader()
        asking.kill()
        cluster.wait_for_leader(but=asking)
        until("the new one waits, too", lambda: waits(second)[0] == "last-known", WAIT_S)
        short.resume()
        first.start()

        def leader_of_all() -> int | None:
            """Return the leader; None while not all are in sync, or the broker does not know the
            topic yet."""
            told = AdminClient({"bootstrap.servers": servers, "log_level": 0})
            partitions = listed(told, "t").topics["t"].partitions
            full = bool(partitions) and sorted(partitions[0].isrs) == ids
            return partitions[0].leader if full else None

        assert until("all are in sync", leader_of_all, WAIT_S) != short.id
        assert end_of(servers, "t") == 2 * RECORDS
        alive = next(one for one in cluster.controllers if one is not asking)
        told = [e.kind for e in elections_of(alive.metadata_dir) if e.topic == "t" and e.is_lossy]
        assert told == ["unclean-recovery"]
