"""Examination of leaderless partitions against one view: pure, and without a memory.

Values that ten thousand partitions share are computed once per `Examiner`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from controller.configs.topic_settings import RecoveryStrategy, recovery_manager_enabled
from controller.decision import ControllerView
from controller.elections.cause import Cause
from controller.elections.context import ElectionContext, partition_state
from controller.elections.election import ThisBroker
from controller.elections.eligibility import is_eligible
from controller.elections.elr import effective_min_isr, standing_elr
from controller.elections.log_facts import Known, LogFact, counted
from controller.elections.recovery_questions import PartitionKey
from controller.elections.recovery_rules import Standing, Verdict, judge, without_recovery
from metalog.image.values import NO_LEADER, ElectedAs, PartitionImage, TopicImage
from protocol.metadata import PartitionChangeRecord

NO_ANSWERS: Final[Mapping[int, LogFact]] = {}


class Examined(NamedTuple):
    """The result of an examination.

    Attributes:
        verdicts: by strategy in force: those of operators' requests, and the configured one.
        decided: a strategy has a winner.
        record: its election; None if the winner cannot lead.
        shown: without a winner, the verdict to report.
    """

    verdicts: Mapping[RecoveryStrategy, Verdict]
    decided: bool
    record: PartitionChangeRecord | None = None
    shown: Verdict | None = None


class Examiner:
    """Examines partitions of one view."""

    __slots__ = ("_brokers", "_elections", "_managed", "_standings", "_view")

    def __init__(self, view: ControllerView) -> None:
        self._view = view
        self._elections = ElectionContext(view)
        self._managed = recovery_manager_enabled(view)
        # The current epoch of each broker.
        self._brokers = {id_: broker.epoch for id_, broker in view.image.cluster.brokers.items()}
        # By topic and state: ten thousand partitions are in a few states.
        self._standings: dict[tuple[object, ...], Standing] = {}

    def find(self, key: PartitionKey) -> tuple[TopicImage, PartitionImage] | None:
        """Return the topic and the partition; None if it does not exist."""
        topic = self._view.image.topics.by_id.get(key[0])
        partition = None if topic is None else topic.partitions.get(key[1])
        return None if topic is None or partition is None else (topic, partition)

    def examine(
        self,
        topic: TopicImage,
        index: int,
        requested: Sequence[RecoveryStrategy],
        known: Mapping[int, Known],
        is_overdue: Callable[[RecoveryStrategy], bool],
    ) -> Examined:
        """Decide the next step of a leaderless partition.

        Args:
            requested: the strategies of operators' requests, in their order.
            known: all answers about the partition, by broker.
            is_overdue: returns whether the timeout of a strategy has ended.
        """
        partition = topic.partitions[index]
        standing = self._standing(topic, index, partition)
        answers = self._valid(known, standing, partition.leader_epoch)
        safety = self._elections.rules(topic).safety
        configured = safety.strategy
        verdicts: dict[RecoveryStrategy, Verdict] = {}
        for strategy in [*requested, configured] if self._managed else requested:
            overdue = is_overdue(strategy)
            verdicts[strategy] = judge(strategy, standing, answers, overdue=overdue)
        for strategy, verdict in verdicts.items():
            if verdict.winner is not None:
                by_itself = self._managed and strategy is configured
                cause = Cause.UNCLEAN_RECOVERY if by_itself else Cause.OPERATOR_REQUEST
                record = self._elect(topic, index, partition, verdict.winner, cause)
                return Examined(verdicts, True, record)
        shown = next((v for v in verdicts.values() if v.needed), verdicts.get(configured))
        shown = shown or next(iter(verdicts.values()), None)
        if shown is None:
            shown = without_recovery(
                configured, standing, last_known_electable=safety.last_known_electable
            )
        return Examined(verdicts, False, None, shown)

    def _elect(
        self,
        topic: TopicImage,
        index: int,
        partition: PartitionImage,
        winner: int,
        cause: Cause,
    ) -> PartitionChangeRecord | None:
        election = ThisBroker(winner, ElectedAs.UNCLEAN_RECOVERY)
        change = self._elections.change_partition(topic, index, partition, cause, election=election)
        return None if change is None or change.elected.leader == NO_LEADER else change.record

    def _valid(
        self, known: Mapping[int, Known], standing: Standing, leader_epoch: int
    ) -> Mapping[int, LogFact]:
        """Return the answers that count now."""
        if not known:
            return NO_ANSWERS
        found = {}
        for replica in standing.alive:
            fact = counted(known.get(replica), self._brokers[replica])
            if fact is not None and fact.leader_epoch == leader_epoch:
                found[replica] = fact
        return found

    def _standing(self, topic: TopicImage, index: int, partition: PartitionImage) -> Standing:
        state = topic.id, *partition_state(partition)
        standing = self._standings.get(state)
        if standing is None:
            standing = _resolve(self._elections, topic, index, partition)
            self._standings[state] = standing
        return standing


def _resolve(
    elections: ElectionContext, topic: TopicImage, index: int, partition: PartitionImage
) -> Standing:
    safety = elections.rules(topic).safety
    eligibility_of = elections.eligibility_in(topic, index, partition)
    elr: tuple[int, ...] = ()
    if safety.elr_enabled:
        elr = standing_elr(
            partition,
            partition.replicas,
            partition.isr,
            min_isr=safety.min_isr,
            unclean_shutdown=frozenset(),
        )
    return Standing(
        replicas=partition.replicas,
        alive=tuple(r for r in partition.replicas if is_eligible(eligibility_of(r))),
        isr=partition.isr,
        elr=elr,
        last_known=partition.last_known_elr if safety.elr_enabled else (),
        min_isr=effective_min_isr(safety.min_isr, len(partition.replicas)),
    )
