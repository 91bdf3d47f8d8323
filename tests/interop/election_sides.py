"""A cluster on which stories are played: Apache Kafka's processes, or ours.

One controller, and brokers from 2 on. A side's partition states come from its controller's metadata
log, which contains each change, and from a broker, whose answer must agree.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from client.admin import Admin, ConfigChange, ConfigOperation, ResourceType
from client.cluster_client import ClusterClient
from client.elections import ElectionType
from metalog.image.replay import Replayer
from metalog.image.values import MetadataImage
from metalog.quorum.batches import read_batches
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from protocol.messages.update_features import UpdateFeaturesRequest
from protocol.metadata.partition_change_record import PartitionChangeRecord
from testkit.kafka.in_place import LEVELS, KafkaInPlace
from testkit.kafka.jars import ORACLE
from testkit.processes.quorum_cluster import HOST, NodeProcess, ProcessCluster
from testkit.processes.waiting import until

T = TypeVar("T")

CONTROLLER = 1
NO_CHANGE = -2
FEATURE = "eligible.leader.replicas.version"
UPGRADE, SAFE_DOWNGRADE = 1, 2
QUIET_S = 0.4
"""A step counts as over after this time without a new record."""
SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.retry.backoff.ms": "200",
    "offsets.topic.num.partitions": "1",
    "replica.fetch.backoff.ms": "200",
}


class Topic(NamedTuple):
    """A topic of one partition, to be created."""

    name: str
    replicas: tuple[int, ...]
    configs: Mapping[str, str]


class State(NamedTuple):
    """A partition's state for the comparison of both sides; sets are sorted.

    `changes` is the partition epoch without changes that only report the end of recovery.
    """

    leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known: tuple[int, ...]
    leader_epoch: int
    changes: int


class Side:
    """One of the two clusters; `theirs` are the nodes that are Kafka's, all or none."""

    def __init__(self, name: str, cluster: ProcessCluster, theirs: Mapping[int, KafkaInPlace]):
        self.name = name
        self.cluster = cluster
        self.theirs = theirs
        self.brokers = frozenset(broker.id for broker in cluster.brokers)
        self.live = set(self.brokers)

    # --- processes -----------------------------------------------------------------------------

    def node(self, node_id: int) -> KafkaInPlace | NodeProcess:
        return self.theirs.get(node_id, self.cluster.nodes[node_id])

    def begin(self) -> None:
        for kafka in self.theirs.values():
            kafka.begin()
        if not self.theirs:
            for node in self.cluster.nodes.values():
                node.start()
        until(f"{self.name} is up", self.all_as_expected, 120, every_s=0.2)

    def kill(self, broker: int) -> None:
        self.live.discard(broker)
        self.node(broker).kill()

    def stop(self, broker: int) -> None:
        self.live.discard(broker)
        self.node(broker).stop()

    def start(self, broker: int) -> None:
        self.live.add(broker)
        node = self.node(broker)
        if isinstance(node, KafkaInPlace):
            node.begin()
        else:
            node.start()

    def pause(self, broker: int) -> None:
        self.live.discard(broker)
        os.kill(self._pid(broker), signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        self.live.add(broker)
        os.kill(self._pid(broker), signal.SIGCONT)

    def _pid(self, broker: int) -> int:
        node = self.node(broker)
        if isinstance(node, KafkaInPlace):
            return node.node.pid
        assert node.process is not None
        return node.process.pid

    # --- what an operator does -----------------------------------------------------------------

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [(HOST, self.cluster.nodes[b].port) for b in sorted(self.live)]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.addresses)

    def ask(self, do: Callable[[ClusterClient], Awaitable[T]]) -> T:
        async def main() -> T:
            async with await ClusterClient.connect(self.addresses) as client:
                return await do(client)

        return asyncio.run(main())

    def create(self, topics: Sequence[Topic]) -> None:
        request = CreateTopicsRequest(topics=[_creatable(topic) for topic in topics])
        answer = self.ask(lambda c: c.request_any(request))
        assert {one.error_code for one in answer.topics} == {0}, answer

    def feature(self, level: int) -> None:
        update = UpdateFeaturesRequest.FeatureUpdateKey(
            feature=FEATURE,
            max_version_level=level,
            upgrade_type=UPGRADE if level else SAFE_DOWNGRADE,
        )
        answer = self.ask(lambda c: c.request_any(UpdateFeaturesRequest(feature_updates=[update])))
        assert answer.error_code == 0, answer

    def min_isr(self, topic: str, value: int) -> None:
        change = ConfigChange("min.insync.replicas", ConfigOperation.SET, str(value))
        kind, name = (ResourceType.BROKER, "") if topic == "-" else (ResourceType.TOPIC, topic)
        self.ask(lambda c: Admin(c).alter_configs(kind, name, [change]))

    def move(self, topic: str, replicas: tuple[int, ...]) -> None:
        self.ask(lambda c: Admin(c).reassign((topic, 0), replicas))

    def cancel(self, topic: str) -> None:
        """Cancel a reassignment; a refusal, too, shows in the states."""
        try:
            self.ask(lambda c: Admin(c).reassign((topic, 0), None))
        except ApiError as error:
            if error.code != ErrorCode.INVALID_REPLICA_ASSIGNMENT:
                raise

    def elect(self, kind: ElectionType, topic: str) -> None:
        found = self.ask(lambda c: Admin(c).elect_leaders(kind, [(topic, 0)]))
        (outcome,) = found.values()
        assert outcome.number in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED), outcome

    # --- its state --------------------------------------------------------------------------------

    def read(self) -> tuple[MetadataImage, Counter[bytes]]:
        """Replay the controller's metadata log.

        Returns: the image, and for each topic id the number of records that only end a leader's
        recovery.
        """
        replayer, recovered = Replayer(), Counter[bytes]()
        place = self.cluster.nodes[CONTROLLER].metadata_dir
        data = b"".join(path.read_bytes() for path in sorted(place.glob("*.log")))
        for batch in _whole_batches(data):
            for record in batch.records:
                if _only_recovered(replayer.image, record):
                    recovered[record.topic_id] += 1
            if batch.records:
                replayer.apply_batch(
                    batch.records,
                    base_offset=batch.base_offset,
                    epoch=batch.epoch,
                    timestamp_ms=batch.append_timestamp_ms,
                )
        return replayer.image, recovered

    def states(self) -> dict[str, State]:
        """Return the state of each topic's only partition."""
        image, recovered = self.read()
        return {
            name: State(
                p.leader,
                tuple(sorted(p.isr)),
                tuple(sorted(p.elr)),
                tuple(sorted(p.last_known_elr)),
                p.leader_epoch,
                p.partition_epoch - recovered[topic.id],
            )
            for name, topic in image.topics.by_name.items()
            for p in topic.partitions.values()
        }

    def all_as_expected(self) -> bool:
        """Return whether the controller knows the live brokers, and each ISR has all live
        replicas."""
        image, _ = self.read()
        brokers = image.cluster.brokers
        if any(b not in brokers or brokers[b].fenced is (b in self.live) for b in self.brokers):
            return False
        for topic in image.topics.by_name.values():
            for p in topic.partitions.values():
                if p.leader >= 0 and set(p.isr) != set(p.replicas) & self.live:
                    return False
                if p.leader >= 0 and (p.adding or p.removing) and set(p.adding) <= self.live:
                    return False
        return True

    def settle(self) -> dict[str, State]:
        """Wait until nothing changes any more, and return the states."""
        until(f"{self.name} settles: {self.live}", self._is_quiet, 60, every_s=0.1)
        return self.states()

    def _is_quiet(self) -> bool:
        if not self.all_as_expected():
            return False
        before = self.states()
        time.sleep(QUIET_S)
        return self.all_as_expected() and self.states() == before

    def told(self) -> dict[str, tuple[int, ...]]:
        """Return a live broker's answer to DescribeTopicPartitions: leader, and the sets after a -1
        each."""
        answer = self.ask(
            lambda c: c.request_any(DescribeTopicPartitionsRequest(response_partition_limit=2000))
        )
        return {
            topic.name or "": (
                p.leader_id,
                *(-1, *sorted(p.isr_nodes)),
                *(-1, *sorted(p.eligible_leader_replicas or ())),
                *(-1, *sorted(p.last_known_elr or ())),
            )
            for topic in answer.topics
            for p in topic.partitions
        }


def _creatable(topic: Topic) -> CreateTopicsRequest.CreatableTopic:
    assignment = CreateTopicsRequest.CreatableReplicaAssignment(
        partition_index=0, broker_ids=list(topic.replicas)
    )
    return CreateTopicsRequest.CreatableTopic(
        name=topic.name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[assignment],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
            for key, value in topic.configs.items()
        ],
    )


def as_told(state: State) -> tuple[int, ...]:
    """Return a state in the form of `Side.told`."""
    return (state.leader, -1, *state.isr, -1, *state.elr, -1, *state.last_known)


def _only_recovered(image: MetadataImage, record: Any) -> bool:
    """Return whether a record only ends a leader's recovery."""
    if not isinstance(record, PartitionChangeRecord) or record.leader_recovery_state != 0:
        return False
    before = image.topics.by_id[record.topic_id].partitions[record.partition_id]
    same_isr = record.isr is None or set(record.isr) == set(before.isr)
    return same_isr and record.leader == NO_CHANGE and record.eligible_leader_replicas is None


def _whole_batches(data: bytes) -> Iterator[Any]:
    """Yield batches up to one that is being written."""
    try:
        yield from read_batches(data)
    except ProtocolError:
        # A torn tail: the next read finds it complete.
        return


@contextmanager
def running(
    name: str,
    directory: Path,
    *,
    kafka: bool,
    brokers: int = 4,
    settings: Mapping[str, str] = MappingProxyType({}),
    of_kafka: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Side]:
    """Start a cluster in directories formatted by us; `of_kafka` are settings that our nodes
    lack."""
    given = {**SETTINGS, **settings}
    with ProcessCluster(
        directory, controllers=1, brokers=brokers, settings=given, features=LEVELS[ORACLE]
    ) as cluster:
        cluster.format()
        nodes = cluster.nodes.items() if kafka else ()
        theirs = {n: KafkaInPlace(node, of_kafka) for n, node in nodes}
        side = Side(name, cluster, theirs)
        try:
            side.begin()
            yield side
        finally:
            for node in theirs.values():
                node.kill()
