"""The context of a decision's elections: who may lead, in which order, by which rules.

A decision makes one `ElectionContext` and hands it to whatever changes a partition. It is the view,
what the decision itself changes about brokers (the view does not say that yet), and per topic what
its configuration says: min ISR, strategy, election order. Resolved once per decision, at the time
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
    """Brokers that leave the ISRs, that join the electable, and that lost unflushed data.

    `doomed` are fenced by the decisions that follow in the same turn, so they get no leadership
    now. Nothing else may count a silent broker out: if it is heard of again before it is fenced,
    nobody would come back to the partitions it was passed over for.

    With `directories`, leaving brokers leave only the replicas that they have in one of those. What
    else they have there gets a new partition epoch: a leader that has proposed such a replica for
    the ISR meanwhile must not get it in.
    """

    leaving: frozenset[int] = NONE
    joining: frozenset[int] = NONE
    unclean: frozenset[int] = NONE
    doomed: frozenset[int] = NONE
    directories: frozenset[bytes] | None = None


NO_BROKER_CHANGE = BrokerChange()
AS_IT_IS = Target()
OFF: Final = LocalLogTable(((NO_LEADER, NO_LEADER),))
"""In place of what is known of local logs: nobody asks for it, and it goes."""
NOTHING: Final = Decided(b"", None, NOBODY, NO_LOCAL_LOGS)
_EPOCHS = PartitionImage._fields.index("leader_epoch")


class TopicRules(NamedTuple):
    """What holds for elections of one topic. `election` is the one that nobody asked for: it may be
    unclean only where the topic allows it. `treats_alike`: partitions of the same state are changed
    in the same way. `local_logs`: the order, where what replicas have locally counts (KIP-1303),
    and `short` and `too_little`: who has not enough at the time of the decision."""

    safety: Safety
    election: Election
    treats_alike: bool
    local_logs: LocalLogOrder | None
    short: Short | None
    too_little: TooLittle | None


class ElectionContext:
    """One decision's elections. `eligibility_of` has the view as it is once `change` has happened.

    A decision holds one view, so nothing in here grows old. A broker that is fenced may change ten
    thousand partitions, which are in a handful of states: what was decided for the first of a topic
    and state holds for the others.
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
        """What holds for `topic`."""
        rules = self._rules.get(topic.id)
        if rules is None:
            rules = self._rules[topic.id] = self._resolve(topic)
        return rules

    def candidates(
        self, topic: TopicImage, index: int, partition: PartitionImage
    ) -> tuple[int, ...]:
        """The replicas of a partition in election order; the first one is preferred."""
        rules = self.rules(topic)
        if rules.too_little is not None:
            return eligible_first(partition.replicas, rules.too_little(partition.local_logs))
        place = replicas_of(topic.id, index, partition)
        return rules.safety.order(place, partition.replicas, self.view.now_ms)

    def eligibility_in(
        self, topic: TopicImage, index: int, partition: PartitionImage
    ) -> ReplicaEligibility:
        """Which brokers may lead the partition."""
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
        told: LocalLogTable | None = None,
    ) -> PartitionChange | None:
        """What takes the partition to `target`; without an `election` by the topic's own. `told` is
        all that is known of local logs once a leader has said what it knows."""
        rules = self.rules(topic)
        election = rules.election if election is None else election
        table = partition.local_logs if told is None else told
        lives, short = table.lives, 0
        if lives:
            short_of = rules.short
            if short_of is None:
                table, lives = OFF, OFF.lives
            else:
                short = short_of(table)
        state = partition_state(partition)
        asked = topic.id, state, lives, short, target, election, cause
        # Neighbours are mostly alike, and comparing is cheaper than looking up.
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
                    told=told,
                )
                if not self._treats_alike(rules, partition, target, table):
                    return written(known, partition, index, told=told is not None, touch=touch)
                self._known[asked] = known
            self._asked_last, self._known_last = asked, known
        known = self._known_last
        record = None if known.record is None else known.record.replace(partition_id=index)
        if record is not None and table is partition.local_logs:
            return PartitionChange(record, known.elected)
        decided = Decided(topic.id, record, known.elected, NO_LOCAL_LOGS if table is OFF else table)
        return written(decided, partition, index, told=told is not None, touch=touch)

    def _treats_alike(
        self, rules: TopicRules, partition: PartitionImage, target: Target, table: LocalLogTable
    ) -> bool:
        """Whether partitions of this state, with these local logs, change in the same way. Where
        what is known of one may be dropped, that is the partition's own."""
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
        # The recovery manager compares logs first; `elections.recovery` then names the broker.
        allowed = strategy is RecoveryStrategy.AGGRESSIVE and not managed
        # `broker_eligibility` sees nothing of a partition but where its replicas are.
        election = Wish.UNCLEAN if allowed else Wish.ONLINE
        treats_alike = local_logs is not None or order is assignment_order
        if local_logs is None:
            return TopicRules(safety, election, treats_alike, None, None, None)
        short, too_little = local_logs.short_at(view.now_ms), local_logs.at(view.now_ms)
        return TopicRules(safety, election, treats_alike, local_logs, short, too_little)


def partition_state(partition: PartitionImage) -> tuple[object, ...]:
    """What elections go by, but for the local logs. Not by the epochs: a record does not say them,
    and who counts answers by the leader epoch looks at it besides."""
    return *partition[:_EPOCHS], partition.recovery_state


def election_order(view: ControllerView, topic: TopicImage) -> ElectionOrder:
    """The order in which candidates of this topic are tried; the one place that chooses it."""
    thresholds = local_log_thresholds(view, topic.name)
    if thresholds.on:
        return LocalLogOrder(thresholds, view.image.cluster.brokers)
    return assignment_order
