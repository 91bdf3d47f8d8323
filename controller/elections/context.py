"""Context of a decision's elections: the eligibility of brokers, election orders and topic rules.

A decision creates one `ElectionContext` and passes it to everything that changes a partition. It
holds the view, the broker changes that the decision itself makes (not in the view yet), and each
topic's rules: min ISR, strategy, election order. They are resolved once per decision, at the time
of the change and never earlier.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from controller.configs.topic_settings import (
    RecoveryStrategy,
    local_log_thresholds,
    min_isr_of,
    recovery_manager_enabled,
    recovery_strategy,
)
from controller.decision import ControllerView
from controller.elections.cause import Cause
from controller.elections.election import NOBODY, Election, Wish
from controller.elections.eligibility import (
    ElectionOrder,
    ReplicaEligibility,
    assignment_order,
    broker_eligibility,
)
from controller.elections.elr import LastKnownMode
from controller.elections.local_logs import (
    LocalLogOrder,
    Short,
    TooLittle,
    eligible_first,
)
from controller.elections.partition_change import (
    Decided,
    PartitionChange,
    Safety,
    Target,
    decide_change,
    replicas_of,
    written,
)
from metalog.image.local_log import NO_LOCAL_LOGS, LocalLogTable
from metalog.image.values import NO_LEADER, PartitionImage, TopicImage

NONE: frozenset[int] = frozenset()


class BrokerChange(NamedTuple):
    """Brokers that leave ISRs, become electable, or lost unflushed data in this decision.

    doomed: brokers that the following decisions of the same step fence, so they get no leadership
    now. No other silent broker may be excluded: if it sends a heartbeat before it is fenced, no
    later decision would return to the partitions for which it was passed over.

    directories: if given, leaving brokers leave only the replicas in these directories. Their other
    replicas in them get a new partition epoch: a leader that has proposed such a replica for the
    ISR in the meantime must not succeed.
    """

    leaving: frozenset[int] = NONE
    joining: frozenset[int] = NONE
    unclean: frozenset[int] = NONE
    doomed: frozenset[int] = NONE
    directories: frozenset[bytes] | None = None


NO_BROKER_CHANGE = BrokerChange()
AS_IT_IS = Target()
OFF: Final = LocalLogTable(((NO_LEADER, NO_LEADER),))
"""Marks that the topic has no threshold: existing local-log data is not read and is dropped."""
NOTHING: Final = Decided(b"", None, NOBODY, NO_LOCAL_LOGS)
_EPOCHS = PartitionImage._fields.index("leader_epoch")


class TopicRules(NamedTuple):
    """Election rules of one topic.

    election: the automatic one, unclean only if the topic allows it. treats_alike: whether
    partitions in the same state change in the same way. local_logs: the election order if local
    logs count (KIP-1303), else None. short and too_little: find the replicas with too little at the
    time of the decision.
    """

    safety: Safety
    election: Election
    treats_alike: bool
    local_logs: LocalLogOrder | None
    short: Short | None
    too_little: TooLittle | None


class ElectionContext:
    """The elections of one decision. `eligibility_of` is that after `change` has taken effect.

    A decision has one view, so results can be cached. Fencing a broker may change ten thousand
    partitions, which are in a few states. The result for the first partition of a topic and state
    is reused for the others.
    """

    __slots__ = (
        "_asked_last",
        "_known",
        "_known_last",
        "_rules",
        "change",
        "eligibility_of",
        "view",
    )

    def __init__(self, view: ControllerView, change: BrokerChange = NO_BROKER_CHANGE) -> None:
        self.view = view
        self.change = change
        self.eligibility_of = broker_eligibility(
            view.image.cluster.brokers,
            leaving=change.leaving,
            joining=change.joining,
            expired=change.doomed,
            unclean=change.unclean,
        )
        self._rules: dict[bytes, TopicRules] = {}
        self._known: dict[tuple[object, ...], Decided] = {}
        self._asked_last: tuple[object, ...] = ()
        self._known_last = NOTHING

    def rules(self, topic: TopicImage) -> TopicRules:
        """Return the election rules of `topic`."""
        rules = self._rules.get(topic.id)
        if rules is None:
            rules = self._rules[topic.id] = self._resolve(topic)
        return rules

    def candidates(
        self, topic: TopicImage, index: int, partition: PartitionImage
    ) -> tuple[int, ...]:
        """Return the replicas of a partition in election order; the first one is preferred."""
        rules = self.rules(topic)
        if rules.too_little is not None:
            return eligible_first(partition.replicas, rules.too_little(partition.local_logs))
        place = replicas_of(topic.id, index, partition)
        return rules.safety.order(place, partition.replicas, self.view.now_ms)

    def eligibility_in(
        self, topic: TopicImage, index: int, partition: PartitionImage
    ) -> ReplicaEligibility:
        """Return the eligibility of brokers to lead the partition."""
        return partial(self.eligibility_of, replicas_of(topic.id, index, partition))

    def change_partition(
        self,
        topic: TopicImage,
        index: int,
        partition: PartitionImage,
        cause: Cause,
        *,
        target: Target = AS_IT_IS,
        election: Election | None = None,
        touch: bool = False,
        reported_logs: LocalLogTable | None = None,
    ) -> PartitionChange | None:
        """Return the change that takes the partition to `target`, None if nothing changes.

        Args:
            election: None for the topic's automatic election.
            touch: write a record even if nothing changes, to move the partition epoch.
            `reported_logs`: all known local logs, after a leader's report; None without a report.
        """
        rules = self.rules(topic)
        election = rules.election if election is None else election
        table = partition.local_logs if reported_logs is None else reported_logs
        lives, short = table.lives, 0
        if lives:
            short_of = rules.short
            if short_of is None:
                table, lives = OFF, OFF.lives
            else:
                short = short_of(table)
        state = partition_state(partition)
        asked = topic.id, state, lives, short, target, election, cause
        # Consecutive partitions are mostly in one state; a comparison is cheaper than a lookup.
        if asked != self._asked_last:
            known = self._known.get(asked)
            if known is None:
                known = decide_change(
                    partition,
                    topic_id=topic.id,
                    partition_id=index,
                    target=target,
                    election=election,
                    cause=cause,
                    safety=rules.safety,
                    reported_logs=reported_logs,
                )
                if not self._treats_alike(rules, partition, target, table):
                    return written(
                        known, partition, index, is_report=reported_logs is not None, touch=touch
                    )
                self._known[asked] = known
            self._asked_last, self._known_last = asked, known
        known = self._known_last
        record = None if known.record is None else known.record.replace(partition_id=index)
        if record is not None and table is partition.local_logs:
            return PartitionChange(record, known.elected)
        decided = Decided(topic.id, record, known.elected, NO_LOCAL_LOGS if table is OFF else table)
        return written(decided, partition, index, is_report=reported_logs is not None, touch=touch)

    def _treats_alike(
        self, rules: TopicRules, partition: PartitionImage, target: Target, table: LocalLogTable
    ) -> bool:
        """Return whether partitions in this state, with these local logs, change in the same way.

        They do not if the change may drop local-log data, which differs between partitions.
        """
        if not (rules.treats_alike and table.lives):
            return rules.treats_alike
        return not (
            partition.adding
            or partition.removing
            or self.change.unclean
            or target.begun_anew
            or target.replicas is not None
            or target.directories is not None
        )

    def _resolve(self, topic: TopicImage) -> TopicRules:
        view = self.view
        strategy = recovery_strategy(view, topic.name)
        managed = recovery_manager_enabled(view)
        order = election_order(view, topic)
        local_logs = order if isinstance(order, LocalLogOrder) else None
        safety = Safety(
            min_isr=min_isr_of(view, topic.name),
            elr_enabled=view.elr_enabled,
            last_known_mode=LastKnownMode.WHOLE_SET if managed else LastKnownMode.LAST_LEADER,
            strategy=strategy,
            last_known_electable=view.settings.last_known_leader_election,
            unclean_shutdown=self.change.unclean,
            eligibility_of=self.eligibility_of,
            order=order,
            keeps_local_logs=local_logs is not None,
            now_ms=view.now_ms,
            metadata_version=view.metadata_version,
        )
        # The recovery manager compares logs first; then `elections.recovery` elects by broker id.
        allowed = strategy is RecoveryStrategy.AGGRESSIVE and not managed
        # `broker_eligibility` depends only on the replicas' directories, not on other partition
        # state.
        election = Wish.UNCLEAN if allowed else Wish.ONLINE
        treats_alike = local_logs is not None or order is assignment_order
        if local_logs is None:
            return TopicRules(safety, election, treats_alike, None, None, None)
        short, too_little = local_logs.short_at(view.now_ms), local_logs.at(view.now_ms)
        return TopicRules(safety, election, treats_alike, local_logs, short, too_little)


def partition_state(partition: PartitionImage) -> tuple[object, ...]:
    """Return the state that an election depends on, except for local logs and epochs.

    Records do not contain epochs. Code that matches answers by leader epoch checks it separately.
    """
    return *partition[:_EPOCHS], partition.recovery_state


def election_order(view: ControllerView, topic: TopicImage) -> ElectionOrder:
    """Return the election order of the topic's candidates. No other code chooses the order."""
    thresholds = local_log_thresholds(view, topic.name)
    if thresholds.on:
        return LocalLogOrder(thresholds, view.image.cluster.brokers)
    return assignment_order
