"""Unclean recovery: election of the longest log where no clean candidate can lead (KIP-966).

One state machine handles all leaderless partitions. It has one entry point, `step`: an event in,
the caller's work out (`recovery_events`). Its state are four values: the waiting list, the timers
with the grace for late answers, the operators' requests, and the queries to brokers. TRANSITIONS
has the transition of each event. `recovery_rules` decides the next step of one partition,
`recovery_examination` applies the rules to a view. Partitions are examined again after a change, a
bounded number per step.

The stages of a partition (see `recovery_waiting`), and the one after an event:

| event | not listed | waiting | querying | complete |
|---|---|---|---|---|
| a record with a leader | not listed | not listed | not listed | not listed |
| a record without one | queued | queued | queued | queued |
| a broker, ELR or setting changes | same | queued | queued | queued |
| a valid answer, others are missing | same | same | same | - |
| the last missing answer | same | same | complete | - |
| a valid answer after the timeout | same | - | queued | - |
| an older leader epoch in an answer | same | same | same | same |
| a newer leader epoch in an answer | same | queued | queued | queued |
| an operator's request | waiting, queued | queued | queued | queued |
| its withdrawal or deadline | same | queued | queued | queued |
| this controller is no longer active | not listed | not listed | not listed | not listed |

"Queued" means the same stage until the next `Due`, which examines the partition: it is then waiting
or querying, or its election is proposed. `Due` also queues the partitions whose timeout or grace
has ended.

Nothing is written before the election, so a new active controller starts over, with new timeouts.
`LogFacts` stores the brokers' answers. An answer counts only for the broker incarnation that gave
it, and only if the broker knew the partition's current leader epoch. With an older epoch its log
may still change, so the broker is queried again. A newer epoch means that another controller may
have written since. All answers about that partition are then dropped and requested again, once for
each newer epoch.

An answer changes only what is known of partitions that the request named and of which its broker is
a replica. It never stops or restarts a timeout. So a broker with absurd answers cannot delay a
decision that does not need it.

A partition may have several recoveries: one by the topic's strategy, while the manager is on, and
those of operators' requests, regardless of configuration. The first that can decide elects.

`Due` proposes election records; a partition is removed from the list by `Appended`, once they are
in the log. If the append is refused, the partition stays listed and is examined again. Operators
get their results once the records are committed (`Effects.decided`, `Committed`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from controller.configs.topic_settings import (
    ELECTION_KEYS,
    MIN_ISR,
    RECOVERY_TIMEOUT,
    RecoveryStrategy,
    recovery_timeout_ms,
)
from controller.elections.log_facts import LogFact, LogFacts, Replica
from controller.elections.recovery_events import (
    NO_EFFECTS,
    Activated,
    Answered,
    Appended,
    Committed,
    Deactivated,
    Due,
    Effects,
    Event,
    Requested,
    Unanswered,
    Withdrawn,
)
from controller.elections.recovery_examination import Examiner
from controller.elections.recovery_operators import WaitingRequests
from controller.elections.recovery_questions import PartitionKey, Question, Questions
from controller.elections.recovery_requests import RecoveryOutcome, RecoveryRequest
from controller.elections.recovery_rules import WaitsFor
from controller.elections.recovery_timers import Grace, Timers
from controller.elections.recovery_waiting import NO_VERDICTS, Leaderless, Waiting, WaitingList
from metalog.image.values import NO_LEADER, BrokerImage, ElectedAs, PartitionImage, TopicImage
from protocol.errors import ErrorCode
from protocol.messages.get_replica_log_info import GetReplicaLogInfoResponse
from protocol.metadata import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from runtime.log import get_logger
from runtime.marks import mark

LOOKS_PER_TURN: Final = 150
"""Partitions examined in one step: about 5 ms if each has an election, including the append."""
ELECTED: Final = RecoveryOutcome(ErrorCode.NONE)
DELETED: Final = RecoveryOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

_log = get_logger("controller")

_BROKER_RECORDS: Final = (
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
    BrokerRegistrationChangeRecord,
)
_WIDE_RECORDS: Final = (*_BROKER_RECORDS, ClearElrRecord, FeatureLevelRecord, RemoveTopicRecord)
_KEYS: Final = ELECTION_KEYS | {RECOVERY_TIMEOUT, MIN_ISR}


class RecoveryCounts:
    """Counts of recoveries. A recovery runs while it waits for answers."""

    __slots__ = ("finished", "given_up", "running", "waiting")

    def __init__(self) -> None:
        self.running = 0
        self.finished = 0
        """Recoveries that have elected the longest log."""
        self.given_up = 0
        """Recoveries that ended otherwise: a clean candidate appeared, the recovery is no longer
        requested, or a needed replica is gone."""
        self.waiting: Counter[WaitsFor] = Counter()
        """Leaderless partitions by what they wait for."""


class UncleanRecovery:
    """State machine of unclean recovery.

    facts: receives the answers that count. counts: kept up to date.
    """

    __slots__ = ("_counts", "_facts", "_grace", "_questions", "_requests", "_timers", "_waiting")

    def __init__(self, facts: LogFacts, counts: RecoveryCounts) -> None:
        self._facts = facts
        self._counts = counts
        self._waiting = WaitingList(counts.waiting)
        self._timers = Timers()
        self._grace = Grace()
        self._requests = WaitingRequests()
        self._questions = Questions()

    def step(self, event: Event, now_ms: float) -> Effects:
        """Make the transition of an event.

        Args:
            now_ms: monotonic time, never lower than in an earlier step.

        Returns: the work of the caller.
        """
        effects = TRANSITIONS[type(event)](self, event, now_ms)
        return effects._replace(
            decided=self._requests.take_decided(), due_ms=self._next_due_ms(now_ms)
        )

    def waits_for(self, topic_id: bytes, partition_id: int) -> Waiting | None:
        """Return what a leaderless partition waits for; None for others."""
        return self._waiting.waits_for((topic_id, partition_id))

    def _next_due_ms(self, now_ms: float) -> float | None:
        if self._waiting.is_due:
            return now_ms
        times = (
            self._questions.due_ms(),
            self._grace.due_ms(now_ms, others_come=self._questions.answers_come),
            self._timers.due_ms(),
            self._requests.due_ms(),
        )
        return min((time for time in times if time is not None), default=None)

    # --- the controller -----------------------------------------------------------------------

    def _activated(self, event: Activated, now_ms: float) -> Effects:
        self._deactivated(Deactivated(), now_ms)
        self._waiting.begin_scan()
        return NO_EFFECTS

    def _deactivated(self, event: Deactivated, now_ms: float) -> Effects:
        for key in self._waiting:
            self._counts.given_up += self._stop_running(key)
        self._facts.clear()
        for part in (self._waiting, self._timers, self._grace, self._requests, self._questions):
            part.clear()
        return NO_EFFECTS

    def _appended(self, event: Appended, now_ms: float) -> Effects:
        wide = False
        recovered: list[PartitionChangeRecord] = []
        first = ""
        for record in event.records:
            kind = type(record)
            if kind is PartitionChangeRecord or kind is PartitionRecord:
                key = record.topic_id, record.partition_id  # type: ignore[attr-defined]
                leader: int = record.leader  # type: ignore[attr-defined]
                if leader >= 0:
                    by_log = record.election_kind == ElectedAs.UNCLEAN_RECOVERY  # type: ignore[attr-defined]
                    state = self._waiting.get(key) if by_log else None
                    if state is not None:
                        first = first or f"{state.name}-{key[1]}"
                        recovered.append(record)  # type: ignore[arg-type]
                    self._waiting.unqueue(key)
                    self._close(key, ELECTED, by_log=by_log)
                elif key in self._waiting or leader == NO_LEADER:
                    self._waiting.queue((key,))
            elif self._waiting and not wide:
                wide = kind in _WIDE_RECORDS or (
                    kind is ConfigRecord and record.name in _KEYS  # type: ignore[attr-defined]
                )
                if kind in _BROKER_RECORDS:
                    self._questions.encourage()
        if wide:
            self._waiting.queue(self._waiting)
        if recovered:
            mark("controller.recovery-elected")
            _log.warning(
                "Replicas with the longest logs lead: committed records may be lost",
                partitions=len(recovered),
                first=first,
                first_leader=recovered[0].leader,
            )
        return NO_EFFECTS

    def _due(self, event: Due, now_ms: float) -> Effects:
        """Examine the partitions that have changed, a bounded number of them."""
        examiner = Examiner(event.view)
        self._timers.set_timeout(recovery_timeout_ms(event.view))
        self._waiting.scan(event.view)
        ended = self._timers.take_ended(now_ms)
        if ended:
            mark("controller.recovery-overdue")
            self._waiting.queue(ended)
        expired = self._expire_requests(now_ms)
        others_come = self._waiting.has_queued or self._questions.answers_come
        self._waiting.queue(self._grace.take(now_ms, others_come=others_come))
        records: list[PartitionChangeRecord] = []
        for key in self._waiting.take(LOOKS_PER_TURN):
            record = self._examine(key, examiner, now_ms)
            if record is not None:
                records.append(record)
        # `Appended` removes these; if the append is refused, they are examined again.
        self._waiting.queue((r.topic_id, r.partition_id) for r in records)
        questions = tuple(self._questions.take(now_ms))
        return Effects(records=tuple(records), questions=questions, complete=expired)

    # --- operators ----------------------------------------------------------------------------

    def _requested(self, event: Requested, now_ms: float) -> Effects:
        self._requests.add(event.request)
        for key in event.request.waiting:
            self._waiting.add(key)
        self._waiting.queue(event.request.waiting)
        return NO_EFFECTS

    def _withdrawn(self, event: Withdrawn, now_ms: float) -> Effects:
        self._waiting.queue(self._requests.remove(event.request))
        return NO_EFFECTS

    def _committed(self, event: Committed, now_ms: float) -> Effects:
        return Effects(complete=self._requests.commit(event.decided))

    def _expire_requests(self, now_ms: float) -> tuple[RecoveryRequest, ...]:
        """End the requests past their deadline. Returns: these requests."""
        expired = self._requests.expired(now_ms)
        for request in expired:
            for key in request.waiting:
                excuse = self._excuse(key, request.strategy)
                request.outcomes[key] = RecoveryOutcome(ErrorCode.REQUEST_TIMED_OUT, excuse)
            self._waiting.queue(self._requests.remove(request))
            request.waiting.clear()
        return expired

    def _excuse(self, key: PartitionKey, strategy: RecoveryStrategy) -> str | None:
        """Return why an election by this strategy is not decided, as text for the operator."""
        state = self._waiting.get(key)
        if state is None:
            return "it was decided, but not committed in time: it may be later"
        verdict = state.requested.get(strategy)
        if verdict is None or verdict.waits is None:
            return None
        brokers = ", ".join(map(str, state.still_waited_for(verdict)))
        return _EXCUSES[verdict.waits].format(brokers=brokers)

    # --- answers ------------------------------------------------------------------------------

    def _unanswered(self, event: Unanswered, now_ms: float) -> Effects:
        return self._end_question(event.question, now_ms, useful=False)

    def _answered(self, event: Answered, now_ms: float) -> Effects:
        question, response, view = event
        broker = view.image.cluster.brokers.get(question.broker_id)
        useful = False
        if broker is None or broker.epoch != response.broker_epoch:
            mark("controller.recovery-other-life")
        else:
            named = set(question.partitions)
            for answers in response.topic_partition_log_info_list:
                topic = view.image.topics.by_id.get(answers.topic_id)
                for info in () if topic is None else answers.partition_log_info:
                    assert topic is not None
                    partition = topic.partitions.get(info.partition)
                    is_named = (topic.id, info.partition) in named
                    if info.error_code or partition is None or not is_named:
                        continue
                    useful |= self._take(topic, partition, broker, info, now_ms)
        return self._end_question(question, now_ms, useful=useful)

    def _end_question(self, question: Question, now_ms: float, *, useful: bool) -> Effects:
        self._questions.settle(question, now_ms, useful=useful)
        broker_id = question.broker_id
        return NO_EFFECTS if self._questions.are_for(broker_id) else Effects(idle=(broker_id,))

    def _take(
        self,
        topic: TopicImage,
        partition: PartitionImage,
        broker: BrokerImage,
        info: GetReplicaLogInfoResponse.PartitionLogInfo,
        now_ms: float,
    ) -> bool:
        """Store the answer of a replica. Returns: True if it counts."""
        key = topic.id, info.partition
        state = self._waiting.get(key)
        if state is None or broker.id not in partition.replicas:
            return False
        if info.current_leader_epoch < partition.leader_epoch:
            mark("controller.recovery-answer-too-old")
            return False
        if info.current_leader_epoch > partition.leader_epoch:
            self._fall_behind(state, topic, partition, broker, info)
            return False
        if broker.id not in state.queried:
            return False
        if info.last_written_leader_epoch > partition.leader_epoch or info.log_end_offset < 0:
            # no valid log has such an end
            return False
        self._learn(key, state, broker, info, now_ms)
        return True

    def _learn(
        self,
        key: PartitionKey,
        state: Leaderless,
        broker: BrokerImage,
        info: GetReplicaLogInfoResponse.PartitionLogInfo,
        now_ms: float,
    ) -> None:
        fact = LogFact(
            info.last_written_leader_epoch, info.log_end_offset, info.current_leader_epoch, now_ms
        )
        self._facts.learn(Replica(*key, broker.id), broker.epoch, fact)
        self._questions.drop(broker.id, key)
        state.queried = state.queried.difference((broker.id,))
        # Before the timeout all answers are needed, so only the last one triggers an examination;
        # after it, each does.
        if self._timers.is_any_overdue(key, now_ms):
            self._waiting.queue((key,))
        elif not state.queried and self._timers.is_running(key):
            self._grace.add(key, now_ms)

    def _fall_behind(
        self,
        state: Leaderless,
        topic: TopicImage,
        partition: PartitionImage,
        broker: BrokerImage,
        info: GetReplicaLogInfoResponse.PartitionLogInfo,
    ) -> None:
        """Drop the answers about a partition of which a replica knows a newer leader epoch.

        This controller may no longer be active, and other answers may be out of date.
        """
        if info.current_leader_epoch <= state.newer_epoch:
            return
        state.newer_epoch = info.current_leader_epoch
        mark("controller.recovery-behind")
        _log.error(
            "a broker reports a newer leader epoch than this controller has; "
            "earlier answers about the partition are dropped",
            broker=broker.id,
            topic=topic.name,
            partition=info.partition,
            leader_epoch=partition.leader_epoch,
            broker_leader_epoch=info.current_leader_epoch,
        )
        self._facts.forget_partition(topic.id, info.partition)
        self._waiting.queue(((topic.id, info.partition),))

    # --- one partition ------------------------------------------------------------------------

    def _examine(
        self, key: PartitionKey, examiner: Examiner, now_ms: float
    ) -> PartitionChangeRecord | None:
        """Examine a partition. Returns: the record of its election, None if it has to wait."""
        found = examiner.find(key)
        if found is None or found[1].leader != NO_LEADER:
            self._close(key, DELETED if found is None else ELECTED)
            return None
        topic, partition = found
        state = self._waiting.add(key)
        if state.replicas != partition.replicas:
            for replica in {*state.replicas} - {*partition.replicas}:
                self._facts.forget(Replica(*key, replica))
            state.name, state.replicas = topic.name, partition.replicas
        requested = [request.strategy for request in self._requests.of(key)]
        result = examiner.examine(
            topic,
            key[1],
            requested,
            self._facts.told_of(*key),
            lambda strategy: self._timers.is_overdue(key, strategy, now_ms),
        )
        verdicts = result.verdicts
        state.requested = {s: verdicts[s] for s in requested} if requested else NO_VERDICTS
        if result.decided:
            return result.record
        self._run(key, [strategy for strategy, v in verdicts.items() if v.needed], now_ms)
        self._query(key, state, frozenset([b for v in verdicts.values() for b in v.queried]))
        assert result.shown is not None
        self._waiting.note(state, result.shown, now_ms)
        return None

    def _run(self, key: PartitionKey, needed: list[RecoveryStrategy], now_ms: float) -> None:
        """Start timeouts of strategies that wait for answers now, and stop those of others."""
        ran = self._timers.is_running(key)
        if needed and not ran:
            self._counts.running += 1
        elif ran and not needed:
            mark("controller.recovery-gone-back")
            self._counts.running -= 1
            self._counts.given_up += 1
        self._timers.keep(key, needed, now_ms)

    def _query(self, key: PartitionKey, state: Leaderless, wanted: frozenset[int]) -> None:
        for broker_id in state.queried - wanted:
            self._questions.drop(broker_id, key)
        for broker_id in wanted - state.queried:
            self._questions.want(broker_id, key)
        state.queried = wanted

    def _close(self, key: PartitionKey, outcome: RecoveryOutcome, *, by_log: bool = False) -> None:
        """Remove a partition that has a leader or was deleted."""
        state = self._waiting.remove(key)
        if state is None:
            return
        ran = self._stop_running(key)
        if ran and not by_log and outcome is ELECTED:
            mark("controller.recovery-clean-candidate")
        self._counts.finished += by_log
        self._counts.given_up += ran and not by_log
        for broker_id in state.queried:
            self._questions.drop(broker_id, key)
        self._facts.forget_partition(*key)
        self._requests.decide(key, outcome)

    def _stop_running(self, key: PartitionKey) -> bool:
        """Stop the recovery of a partition. Returns: True if one was running."""
        ran = self._timers.stop(key)
        self._counts.running -= ran
        return ran


_EXCUSES: Final[Mapping[WaitsFor, str]] = {
    WaitsFor.CLEAN_CANDIDATE: "one of brokers {brokers} has everything, and is waited for",
    WaitsFor.LAST_KNOWN: "brokers {brokers} may have everything, and are waited for",
    WaitsFor.ANYBODY: "none of brokers {brokers} can lead now",
    WaitsFor.ANSWERS: "brokers {brokers} have not said yet how far their logs reach",
    WaitsFor.OPERATOR: "it waits for an operator",
}

_Transition: TypeAlias = Callable[[UncleanRecovery, Any, float], Effects]

TRANSITIONS: Final[Mapping[type[Event], _Transition]] = {
    Activated: UncleanRecovery._activated,
    Deactivated: UncleanRecovery._deactivated,
    Appended: UncleanRecovery._appended,
    Due: UncleanRecovery._due,
    Requested: UncleanRecovery._requested,
    Withdrawn: UncleanRecovery._withdrawn,
    Committed: UncleanRecovery._committed,
    Answered: UncleanRecovery._answered,
    Unanswered: UncleanRecovery._unanswered,
}
"""The transition of each event, from any state."""
