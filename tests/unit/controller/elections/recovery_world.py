"""A cluster with unclean recovery: its state machine, brokers that answer, and operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controller.configs.topic_settings import RecoveryStrategy
from controller.elections.log_facts import LogFacts
from controller.elections.recovery import (
    RecoveryCounts,
    UncleanRecovery,
)
from controller.elections.recovery_events import (
    Activated,
    Answered,
    Appended,
    Committed,
    Decided,
    Due,
    Effects,
    Event,
    Requested,
    Unanswered,
)
from controller.elections.recovery_questions import PartitionKey, Question
from controller.elections.recovery_requests import RecoveryRequest
from controller.elections.recovery_rules import WaitsFor
from metalog.image.values import NO_LEADER
from protocol.messages.get_replica_log_info import GetReplicaLogInfoResponse
from protocol.metadata import (
    ConfigRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
)
from testkit.memory.controller import Cluster

AGGRESSIVE, BALANCED, NONE = RecoveryStrategy
TIMEOUT_MS = 300_000
TOPIC, BROKER = 2, 4


class World(Cluster):
    """Brokers 1 to 3 with logs; topic t on 1, 2, 3 with min ISR 2.

    `turns` runs all events that need no passage of time; brokers in `silent` do not answer.
    """

    def __init__(self, partitions: int = 1, *, elr: bool = True, **properties: str) -> None:
        self.facts = LogFacts()
        self.counts = RecoveryCounts()
        self.recovery = UncleanRecovery(self.facts, self.counts)
        self.answered: list[RecoveryRequest] = []
        self.decided: list[Decided] = []
        self.due_ms: float | None = None
        properties = {"unclean_recovery_manager_enabled": "true", **properties}
        super().__init__(elr=elr, min_insync_replicas="2", **properties)
        self.logs: dict[int, tuple[int, int]] = {1: (0, 10), 2: (0, 20), 3: (0, 15)}
        self.silent: set[int] = set()
        self.asked: list[Question] = []
        self.pending: list[Question] = []
        self.written: list[Any] = []
        self.refuses, self.commits = False, True
        self.lives = {1: 1, 2: 1, 3: 1}
        self.start(1, 2, 3)
        self.create_topic("t", *[[1, 2, 3]] * partitions)
        self.happen(Activated())
        self.turns()

    def happen(self, event: Event) -> Effects:
        effects = self.recovery.step(event, self.monotonic_ms)
        self.due_ms = effects.due_ms
        self.answered += effects.complete
        self.decided += effects.decided
        return effects

    def apply(self, records: Sequence[Any]) -> None:
        super().apply(records)
        self.happen(Appended(records))

    # --- what happens -----------------------------------------------------------------------------

    def down(self, *brokers: int) -> None:
        for broker_id in brokers:
            self.fence(broker_id)
        self.turns()

    def back(self, *brokers: int) -> None:
        """Register brokers after an unclean shutdown."""
        for broker_id in brokers:
            self.lives[broker_id] += 1
            self.register(broker_id, life=self.lives[broker_id])
            self.heartbeat(broker_id)
        self.turns()

    def configure(self, key: str, value: str | None, topic: str | None = None) -> None:
        kind, name = (BROKER, "") if topic is None else (TOPIC, topic)
        self.apply([ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)])
        self.turns()

    def fence_only(self, broker_id: int) -> None:
        """Fence brokers without a new incarnation."""
        epoch = self.image.cluster.brokers[broker_id].epoch
        self.apply([FenceBrokerRecord(id=broker_id, epoch=epoch)])
        self.turns()

    def unfence(self, broker_id: int) -> None:
        epoch = self.image.cluster.brokers[broker_id].epoch
        self.apply([UnfenceBrokerRecord(id=broker_id, epoch=epoch)])
        self.turns()

    def wait(self, by_ms: float) -> None:
        pending, self.pending = self.pending, []
        for question in pending:
            self.happen(Unanswered(question))
        self.advance(by_ms)
        self.turns()

    def turns(self) -> None:
        """Run the machine until nothing is due."""
        for _ in range(1000):
            if self.due_ms is None or self.due_ms > self.monotonic_ms:
                return
            self.turn()
        raise AssertionError("it does not come to rest")

    def turn(self) -> None:
        effects = self.happen(Due(self.view()))
        self.written += effects.records
        if effects.records and not self.refuses:
            self.apply(effects.records)
        if self.commits:
            self.commit()
        for question in effects.questions:
            self.asked.append(question)
            if question.broker_id in self.silent:
                self.pending.append(question)
            else:
                self.answer(question)

    def commit(self) -> None:
        decided, self.decided = self.decided, []
        self.happen(Committed(decided))

    def answer(self, question: Question, **fields: Any) -> None:
        self.happen(Answered(question, self.response(question, **fields), self.view()))

    def response(self, question: Question, **fields: Any) -> GetReplicaLogInfoResponse:
        broker_epoch = fields.pop(
            "broker_epoch", self.image.cluster.brokers[question.broker_id].epoch
        )
        epoch, end = self.logs[question.broker_id]
        topics: dict[bytes, list[int]] = {}
        for topic_id, index in question.partitions:
            topics.setdefault(topic_id, []).append(index)
        return GetReplicaLogInfoResponse(
            broker_epoch=broker_epoch,
            topic_partition_log_info_list=[
                GetReplicaLogInfoResponse.TopicPartitionLogInfo(
                    topic_id=topic_id,
                    partition_log_info=[
                        GetReplicaLogInfoResponse.PartitionLogInfo(
                            partition=index,
                            last_written_leader_epoch=epoch,
                            log_end_offset=end,
                            current_leader_epoch=self.leader_epoch_of(topic_id, index),
                        ).replace(**fields)
                        for index in indexes
                    ],
                )
                for topic_id, indexes in topics.items()
            ],
        )

    def leader_epoch_of(self, topic_id: bytes, index: int) -> int:
        partition = self.image.topics.partition(topic_id, index)
        return -1 if partition is None else partition.leader_epoch

    # --- what is seen -----------------------------------------------------------------------------

    @property
    def leader(self) -> int:
        return self.partition("t").leader

    def key(self, index: int = 0) -> PartitionKey:
        return self.image.topics.by_name["t"].id, index

    def waits(self, index: int = 0) -> tuple[WaitsFor, tuple[int, ...]] | None:
        waiting = self.recovery.waits_for(*self.key(index))
        return None if waiting is None else (waiting.waits, waiting.brokers)

    def ask(self, strategy: RecoveryStrategy, time_ms: float = 1e6) -> RecoveryRequest:
        deadline_ms = self.monotonic_ms + time_ms
        partitions = self.partition_keys()
        request = RecoveryRequest(strategy, partitions, deadline_ms)
        self.happen(Requested(request))
        self.turns()
        return request

    def partition_keys(self) -> list[PartitionKey]:
        topic = self.image.topics.by_name["t"]
        return [(topic.id, index) for index in topic.partitions]


def power_cut(world: World) -> World:
    """End all brokers at once: LastKnownELR is 3, 2 and 1, and no broker is back."""
    world.down(1, 2, 3)
    for broker_id in (1, 2, 3):
        world.lives[broker_id] += 1
        world.register(broker_id, life=world.lives[broker_id])
    world.turns()
    partition = world.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (NO_LEADER, (), ())
    return world
