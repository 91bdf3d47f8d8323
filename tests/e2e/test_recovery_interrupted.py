"""F25, P21: an unclean recovery that is interrupted at each possible point.

All brokers fail in a power cut, with logs of three lengths, and come back together. A proxy between
controllers and brokers holds requests and answers. So the active controller fails before its
requests, between the answers, with all answers and before the record, and after the record but
before its commit. A broker fails that has answered; one comes back in another incarnation; one has
no such API. Only the longest log leads where it is available, acknowledged records are there, and
the audit finds no fault.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from client.admin import Admin, ConfigChange, ConfigOperation, ExplainedPartition, ResourceType
from client.cluster_client import ClusterClient
from client.elections import ElectionType
from client.errors import ClientError
from protocol.errors import ApiError, ErrorCode
from testkit.audits import elections_of, kinds_of
from testkit.processes.log_info_holds import LogInfoProxies, Stage
from testkit.processes.ports import free_port
from testkit.processes.quorum_cluster import HOST, NodeProcess, ProcessCluster
from testkit.processes.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("default"), pytest.mark.rest]

TOPIC = "t"
COUNT = 10
WAIT_S = 30.0
SETTINGS = {
    "unclean.recovery.manager.enabled": "true",
    "unclean.recovery.timeout.ms": "60000",
    "kraftbox.broker.connection.loss.fence.ms": "200",
    "broker.session.timeout.ms": "1500",
    "min.insync.replicas": "2",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
    "inter.broker.listener.name": "INNER",
}
ELECTED = "Replicas with the longest logs lead"


class Story:
    """Topic t at three brokers: `short`, `middle` and `long`, named by their log ends after
    `power_cut`.

    `end` is the longest log's end, `acknowledged` the acks=all position.
    """

    def __init__(self, cluster: ProcessCluster, log_info: LogInfoProxies) -> None:
        self.cluster = cluster
        self.log_info = log_info
        self.short, self.middle, self.long = cluster.brokers
        self.ids = [broker.id for broker in cluster.brokers]
        self.end = self.acknowledged = 0
        self.recoveries = 0

    # --- what is seen ---------------------------------------------------------------------------

    def explained(self) -> ExplainedPartition | None:
        """Return the explanation; None while no broker has an answer."""

        async def ask() -> ExplainedPartition:
            async with await ClusterClient.connect(self.bootstrap) as client:
                (found,) = await Admin(client, 5_000).explain_elections([(TOPIC, 0)])
                return found

        try:
            return asyncio.run(ask())
        except (ApiError, ClientError, OSError):
            return None

    @property
    def bootstrap(self) -> str:
        alive = [broker for broker in self.cluster.brokers if broker.process is not None]
        return ",".join(f"{HOST}:{broker.port}" for broker in alive)

    def wait_for(self, leader: int | None = None, isr: list[int] | None = None) -> None:
        def there() -> bool:
            found = self.explained()
            return (
                found is not None
                and (leader is None or found.leader == leader)
                and (isr is None or sorted(found.isr) == isr)
            )

        until(f"leader {leader} and ISR {isr}", there, WAIT_S, every_s=0.1)

    def waits(self, what: str, *brokers: int) -> None:
        def there() -> bool:
            found = self.explained()
            assert found is None or found.leader == -1
            return found is not None and (found.waits, found.waits_for) == (what, [*brokers])

        until(f"waiting: {what} {brokers}", there, WAIT_S, every_s=0.1)

    def fenced(self, broker: NodeProcess, wanted: bool = True) -> None:
        """Wait until the controller has fenced or unfenced the broker."""

        def there() -> bool:
            found = self.explained()
            return found is not None and any(
                one.broker == broker.id and (one.reason == "is fenced") is wanted
                for one in found.candidates
            )

        until(f"broker {broker.id} is fenced: {wanted}", there, WAIT_S, every_s=0.1)

    def came(self, stage: Stage, *brokers: NodeProcess, by: NodeProcess | None = None) -> None:
        """Wait until a request to or a response of each of these brokers has reached the proxy."""
        wanted = {broker.id for broker in brokers}

        def there() -> bool:
            seen = list(self.log_info.seen)
            return wanted <= {
                one.broker
                for one in seen
                if one.stage is stage and (by is None or one.controller == by.id)
            }

        until(f"{stage} of {wanted}", there, WAIT_S)

    def passed(self, broker: NodeProcess, by: NodeProcess | None = None) -> None:
        """Wait until a response of this broker has passed the proxy."""

        def there() -> bool:
            return any(
                (one.broker, one.stage) == (broker.id, Stage.RESPONSE)
                and (by is None or one.controller == by.id)
                for one in list(self.log_info.passed)
            )

        until("a response that was forwarded", there, WAIT_S)

    # --- what happens ---------------------------------------------------------------------------

    def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        new = NewTopic(TOPIC, 1, replica_assignment=[self.ids])
        admin.create_topics([new])[TOPIC].result(WAIT_S)

    def produce(self, acks: str) -> None:
        config = {"bootstrap.servers": self.bootstrap, "acks": acks, "log_level": 0}
        producer = Producer(config)
        for number in range(COUNT):
            producer.produce(TOPIC, str(self.end + number).encode(), partition=0)
        assert producer.flush(WAIT_S) == 0
        self.end += COUNT
        if acks == "all":
            self.acknowledged = self.end

    def is_led(self) -> bool:
        """Return whether every partition of the cluster has a leader."""

        async def ask() -> bool:
            async with await ClusterClient.connect(self.bootstrap) as client:
                topics = await Admin(client, 5_000).describe_topics()
                return all(p.leader_id >= 0 for topic in topics for p in topic.partitions)

        return asyncio.run(ask())

    def log_end(self) -> int:
        reader = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "r", "log_level": 0})

        def asked() -> tuple[int, int] | None:
            # A new leader does not know its last high watermark at first.
            with contextlib.suppress(KafkaException):
                return reader.get_watermark_offsets(TopicPartition(TOPIC, 0), WAIT_S)
            return None

        try:
            return until("a high watermark", asked, WAIT_S)[1]
        finally:
            reader.close()

    def power_cut(self) -> None:
        """Kill all brokers one after another, so that their logs differ in length; then start all.

        Requests are held.
        """
        self.produce("all")
        self.short.kill()
        self.wait_for(isr=[self.middle.id, self.long.id])
        self.produce("all")
        self.middle.kill()
        self.wait_for(self.long.id, [self.long.id])
        self.produce("1")
        self.long.kill()
        self.log_info.reset()
        self.log_info.hold(Stage.REQUEST, self.ids)
        for broker in self.cluster.brokers:
            broker.start()

    def recovery(
        self, strategy: str = "Balanced", without: NodeProcess | None = None
    ) -> NodeProcess:
        """After a power cut hold the requests to all brokers but `without`, which lacks the API.

        Returns: the active controller.
        """
        self.configure(strategy)
        if without is not None:
            self.log_info.hide(without.id)
        self.power_cut()
        self.came(Stage.REQUEST, *(b for b in self.cluster.brokers if b is not without))
        if without is not None:
            # No request shows its return; Aggressive would not wait for a broker that is not back
            # yet.
            self.fenced(without, False)
        return self.cluster.wait_for_leader()

    def configure(self, strategy: str) -> None:
        self.alter(ResourceType.TOPIC, TOPIC, "unclean.recovery.strategy", strategy)

    def alter(self, kind: ResourceType, name: str, key: str, value: str) -> None:
        async def write() -> None:
            async with await ClusterClient.connect(self.bootstrap) as client:
                change = ConfigChange(key, ConfigOperation.SET, value)
                await Admin(client, 5_000).alter_configs(kind, name, [change])

        asyncio.run(write())

    def elect(self) -> int:
        """Elect the longest log of all replicas that may have everything, as an operator."""

        async def ask() -> int:
            async with await ClusterClient.connect(self.bootstrap) as client:
                admin = Admin(client, WAIT_S * 1000)
                kind = ElectionType.LONGEST_LOG_BALANCED
                results = await admin.elect_leaders(kind, [(TOPIC, 0)])
                return results[TOPIC, 0].number

        return asyncio.run(ask())

    def ask(self) -> None:
        """Let requests and answers pass, except for the answer of `middle`; wait for all
        answers."""
        self.log_info.hold(Stage.RESPONSE, [self.middle.id])
        self.log_info.release(Stage.REQUEST, self.ids)
        self.came(Stage.RESPONSE, *self.cluster.brokers)

    def end_well(self, leader: NodeProcess) -> None:
        """Assert that this broker leads, all others follow, and its records are the topic's
        records."""
        for stage in Stage:
            self.log_info.release(stage, self.ids)
        self.recoveries += 1
        self.wait_for(leader.id)
        for node in self.cluster.nodes.values():
            if node.process is None:
                node.start()
        self.wait_for(isr=self.ids)
        end = self.log_end()
        assert end >= self.acknowledged
        assert leader is not self.long or end == self.end
        self.end = self.acknowledged = end


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    directory = tmp_path_factory.mktemp("interrupted")
    with (
        LogInfoProxies() as log_info,
        ProcessCluster(directory, controllers=3, brokers=3, settings=SETTINGS) as cluster,
    ):
        for broker in cluster.brokers:
            inner = free_port()
            proxy = log_info.add(broker.id, (HOST, inner))
            outer = f"PLAINTEXT://{HOST}:{broker.port}"
            broker.settings["listeners"] = f"{outer},INNER://{HOST}:{inner}"
            broker.settings["advertised.listeners"] = f"{outer},INNER://{HOST}:{proxy}"
        cluster.start()
        made = Story(cluster, log_info)
        made.create()
        yield made


def test_the_controller_dies_before_the_record(story: Story) -> None:
    """This happens three times in one recovery. A new controller starts without the earlier
    answers."""
    first = story.recovery()
    brokers = story.cluster.brokers
    first.kill()
    second = story.cluster.wait_for_leader(first)
    story.came(Stage.REQUEST, *brokers, by=second)
    first.start()
    # Between the answers.
    story.ask()
    until("three controllers", lambda: story.cluster.describe(first), WAIT_S)
    second.kill()
    third = story.cluster.wait_for_leader(second)
    story.came(Stage.RESPONSE, *brokers, by=third)
    second.start()
    # With all answers in its socket.
    until("three controllers", lambda: story.cluster.describe(second), WAIT_S)
    third.pause()
    story.log_info.release(Stage.RESPONSE, story.ids)
    story.passed(story.middle, by=third)
    story.log_info.reset()
    story.log_info.hold(Stage.RESPONSE, [story.middle.id])
    third.kill()
    fourth = story.cluster.wait_for_leader(third)
    story.came(Stage.RESPONSE, *brokers, by=fourth)
    story.end_well(story.long)


def test_the_controller_falls_between_the_record_and_its_commit(story: Story) -> None:
    """M18: an election that no other controller has is not reported to an operator."""
    story.configure("None")
    story.power_cut()
    story.waits("operator")
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(story.elect)
        story.ask()
        active = story.cluster.wait_for_leader()
        before = active.log_text.count(ELECTED)
        story.cluster.links.cut_off(active.id, [each.id for each in story.cluster.controllers])
        story.log_info.release(Stage.RESPONSE, story.ids)
        until("the record", lambda: active.log_text.count(ELECTED) > before, WAIT_S)
        story.log_info.hold(Stage.RESPONSE, [story.middle.id])
        later = story.cluster.wait_for_leader(active)
        story.came(Stage.RESPONSE, *story.cluster.brokers, by=later)
        assert not asked.done()
        story.log_info.release(Stage.RESPONSE, story.ids)
        assert asked.result(WAIT_S) == ErrorCode.NONE
    story.cluster.links.heal()
    story.end_well(story.long)


def test_recovery_after_restart_of_answered_broker_requests_again(story: Story) -> None:
    """Its answer of the incarnation before does not count: the controller sends another request."""
    story.recovery()
    story.ask()
    story.long.kill()
    story.waits("last-known", story.long.id)
    story.log_info.release(Stage.RESPONSE, story.ids)
    story.passed(story.middle)
    story.log_info.reset()
    story.log_info.hold(Stage.REQUEST, [story.long.id])
    story.waits("last-known", story.long.id)
    story.long.start()
    story.came(Stage.REQUEST, story.long)
    story.waits("answers", story.long.id)
    story.end_well(story.long)


def test_aggressive_elects_the_longest_of_those_that_are_left(story: Story) -> None:
    story.recovery("Aggressive")
    story.ask()
    story.long.kill()
    story.fenced(story.long)
    story.waits("answers", story.middle.id)
    story.end_well(story.middle)


def test_balanced_waits_for_a_member_without_the_api(story: Story) -> None:
    story.recovery(without=story.long)
    story.log_info.release(Stage.REQUEST, story.ids)
    story.waits("answers", story.long.id)
    story.log_info.show(story.long.id)
    story.end_well(story.long)


def test_aggressive_does_without_a_broker_that_has_no_such_api(story: Story) -> None:
    story.recovery("Aggressive", without=story.long)
    story.log_info.release(Stage.REQUEST, story.ids)
    story.waits("answers", story.long.id)
    # The timeout is over for a recovery that runs, too.
    story.alter(ResourceType.BROKER, "", "unclean.recovery.timeout.ms", "1000")
    story.end_well(story.middle)
    story.log_info.show(story.long.id)
    story.alter(ResourceType.BROKER, "", "unclean.recovery.timeout.ms", "60000")


def test_the_audit_finds_each_recovery_and_no_fault(story: Story) -> None:
    """It covers all tests before, by the logs of all controllers."""
    until("everything is led", story.is_led, WAIT_S)
    found = elections_of(*(node.metadata_dir for node in story.cluster.controllers))
    kinds = kinds_of(found, TOPIC)
    assert kinds["unclean-recovery"] == story.recoveries, found
    assert set(kinds) <= {"unclean-recovery", "isr", "elr"}
