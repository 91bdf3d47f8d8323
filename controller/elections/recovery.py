"""Unclean recovery: election of the longest log where no clean candidate can lead (KIP-966).

One state machine handles all leaderless partitions. Its inputs are records, brokers' answers, times
and operators' requests; its outputs are requests to brokers and election records. `recovery_rules`
decides the next step of one partition. This module tracks what each partition waits for and since
when. It examines partitions again after a change, a bounded number per turn.

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

turn() proposes election records; a partition is closed in appended(), once they are in the log. If
the append is refused, the partition stays open and is examined again. Operators get their results
once the records are committed (`take_decided`, `settle`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from controller.configs.topic_settings import (
    ELECTION_KEYS,
    MIN_ISR,
    RECOVERY_TIMEOUT,
    RecoveryStrategy,
    recovery_manager_enabled,
    recovery_timeout_ms,
)
from controller.decision import ControllerView
from controller.elections.cause import Cause
from controller.elections.context import ElectionContext, partition_state
from controller.elections.election import ThisBroker
from controller.elections.eligibility import is_eligible
from controller.elections.elr import effective_min_isr, standing_elr
from controller.elections.log_facts import LogFact, LogFacts, Replica, counted
from controller.elections.recovery_questions import PartitionKey, Question, Questions
from controller.elections.recovery_requests import Outcome, RecoveryRequest
from controller.elections.recovery_rules import (
    Standing,
    Verdict,
    WaitsFor,
    judge,
    without_recovery,
)
from metalog.image.values import (
    NO_LEADER,
    BrokerImage,
    ElectedAs,
    PartitionImage,
    TopicImage,
)
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
from protocol.schema import MetadataRecord
from runtime.log import get_logger
from runtime.marks import mark

LOOKS_PER_TURN: Final = 150
"""Partitions examined in one turn: about 5 ms if each has an election, including the append."""
SCANNED_PER_TURN: Final = 2_000
"""Partitions scanned for missing leaders in one turn."""
TOGETHER_MS: Final = 500.0
"""How long partitions that could be decided wait for answers about others while these arrive. New
leaders and followers have much work, so a broker answers many times slower once they start."""
NOTHING: Final[Mapping[RecoveryStrategy, Verdict]] = {}
NO_ANSWERS: Final[Mapping[int, LogFact]] = {}
LED: Final = Outcome(ErrorCode.NONE)

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


class Waiting(NamedTuple):
    """The kind of wait of a partition, the brokers it waits for, and its monotonic begin."""

    waits: WaitsFor
    brokers: tuple[int, ...]
    since_ms: float


class Turn(NamedTuple):
    """The result of a turn: records to append, and operators' requests that have timed out."""

    records: tuple[PartitionChangeRecord, ...]
    expired: tuple[RecoveryRequest, ...]


class Decided(NamedTuple):
    """The outcome of one partition of a request, to report once the appended records are
    committed."""

    request: RecoveryRequest
    partition: PartitionKey
    outcome: Outcome


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


class _Leaderless:
    """State of one leaderless partition."""

    __slots__ = (
        *("asked", "asked_for", "began", "name", "newer_epoch", "replicas", "requests"),
        *("since_ms", "verdict"),
    )

    def __init__(self) -> None:
        self.name = ""
        self.verdict: Verdict | None = None
        self.since_ms = 0.0
        self.asked: frozenset[int] = frozenset()
        # Start of the queries, by strategy in force.
        self.began: dict[RecoveryStrategy, float] = {}
        self.requests: list[RecoveryRequest] = []
        # Verdicts by the strategies that operators requested.
        self.asked_for: Mapping[RecoveryStrategy, Verdict] = NOTHING
        self.replicas: tuple[int, ...] = ()
        self.newer_epoch = -1
        """The newest leader epoch beyond the controller's that a replica has reported."""


class _Rules(NamedTuple):
    """Inputs of one turn, common to all partitions."""

    view: ControllerView
    elections: ElectionContext
    managed: bool
    now_ms: float
    lives: Mapping[int, int]
    """Current epoch of each broker."""
    standings: dict[tuple[object, ...], Standing]
    """By topic and state: ten thousand partitions are in a few states."""


class UncleanRecovery:
    """State machine of unclean recovery. After each call, `due_ms` returns when `turn` is due."""

    def __init__(self, facts: LogFacts, counts: RecoveryCounts) -> None:
        self._facts = facts
        self._counts = counts
        self._questions = Questions()
        self._open: dict[PartitionKey, _Leaderless] = {}
        self._to_look: dict[PartitionKey, None] = {}
        # Partitions with all answers, and the time until which they wait at most for others.
        self._answered: dict[PartitionKey, None] = {}
        self._together_until_ms = 0.0
        self._scan: Iterator[None] | None = None
        self._must_scan = False
        self._timeout_ms: float = 0.0
        # Starts of running timeouts, in order: the first one ends first.
        self._timers: dict[tuple[PartitionKey, RecoveryStrategy], float] = {}
        self._requests: dict[RecoveryRequest, None] = {}
        self._decided: list[Decided] = []

    # --- events -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start as a newly active controller: nothing is known, and all partitions are examined."""
        self.end()
        self._must_scan = True

    def end(self) -> None:
        """End all recoveries: this controller is no longer active.

        The caller, which keeps the waiting requests, has to fail them.
        """
        for key, state in self._open.items():
            self._counts.given_up += self._stop_running(key, state)
        self._counts.waiting.clear()
        self._facts.clear()
        self._questions.clear()
        self._open.clear()
        self._to_look.clear()
        self._answered.clear()
        self._timers.clear()
        self._requests.clear()
        self._decided.clear()
        self._scan, self._must_scan = None, False

    def appended(self, records: Iterable[MetadataRecord]) -> None:
        """Note records that were appended and replayed; the view of the next turn includes them."""
        wide = False
        recovered: list[PartitionChangeRecord] = []
        first = ""
        for record in records:
            kind = type(record)
            if kind is PartitionChangeRecord or kind is PartitionRecord:
                key = record.topic_id, record.partition_id  # type: ignore[attr-defined]
                leader: int = record.leader  # type: ignore[attr-defined]
                if leader >= 0:
                    by_log = record.election_kind == ElectedAs.UNCLEAN_RECOVERY  # type: ignore[attr-defined]
                    if by_log and key in self._open:
                        first = first or f"{self._open[key].name}-{key[1]}"
                        recovered.append(record)  # type: ignore[arg-type]
                    self._to_look.pop(key, None)
                    self._close(key, LED, by_log=by_log)
                elif key in self._open or leader == NO_LEADER:
                    self._to_look[key] = None
            elif self._open and not wide:
                wide = kind in _WIDE_RECORDS or (
                    kind is ConfigRecord and record.name in _KEYS  # type: ignore[attr-defined]
                )
                if kind in _BROKER_RECORDS:
                    self._questions.encourage()
        if wide:
            self._to_look.update(dict.fromkeys(self._open))
        if recovered:
            mark("controller.recovery-elected")
            _log.warning(
                "Replicas with the longest logs lead: committed records may be lost",
                partitions=len(recovered),
                first=first,
                first_leader=recovered[0].leader,
            )

    def take_decided(self) -> list[Decided]:
        """Return the outcomes since the last call; `settle` them once all appended records are
        committed."""
        decided, self._decided = self._decided, []
        return decided

    def settle(self, decided: Iterable[Decided]) -> list[RecoveryRequest]:
        """Add committed outcomes to their requests. Returns: the requests that are complete now."""
        for request, partition, outcome in decided:
            if request in self._requests:
                request.waiting.pop(partition, None)
                request.outcomes[partition] = outcome
        whole = [request for request in self._requests if not request.waiting]
        for request in whole:
            del self._requests[request]
        return whole

    def request(self, request: RecoveryRequest) -> None:
        """Start an operator's elections by the longest log, regardless of configuration."""
        self._requests[request] = None
        for key in request.waiting:
            self._state_of(key).requests.append(request)
            self._to_look[key] = None

    def withdraw(self, request: RecoveryRequest) -> None:
        """End a request whose caller no longer waits; it elects nothing later."""
        self._requests.pop(request, None)
        for key in request.waiting:
            state = self._open.get(key)
            if state is not None and request in state.requests:
                state.requests.remove(request)
                self._to_look[key] = None

    def unanswered(self, question: Question, now_ms: float) -> None:
        """Note that no answer will come: closed port, lost connection, or a broker without the
        API."""
        self._questions.settle(question, now_ms, useful=False)

    def answered(
        self,
        question: Question,
        response: GetReplicaLogInfoResponse,
        view: ControllerView,
        now_ms: float,
    ) -> None:
        """Process a broker's answer and store it if it counts."""
        broker = view.image.cluster.brokers.get(question.broker_id)
        useful = False
        if broker is None or broker.epoch != response.broker_epoch:
            mark("controller.recovery-other-life")
        else:
            named = set(question.partitions)
            for told in response.topic_partition_log_info_list:
                topic = view.image.topics.by_id.get(told.topic_id)
                for info in () if topic is None else told.partition_log_info:
                    assert topic is not None
                    key = topic.id, info.partition
                    partition = topic.partitions.get(info.partition)
                    if info.error_code or partition is None or key not in named:
                        continue
                    useful |= self._take(key, topic, partition, broker, info, now_ms)
        self._questions.settle(question, now_ms, useful=useful)

    def _take(
        self,
        key: PartitionKey,
        topic: TopicImage,
        partition: PartitionImage,
        broker: BrokerImage,
        info: GetReplicaLogInfoResponse.PartitionLogInfo,
        now_ms: float,
    ) -> bool:
        """Store the answer of a replica. Returns: True if it counts."""
        state = self._open.get(key)
        if state is None or broker.id not in partition.replicas:
            return False
        if info.current_leader_epoch < partition.leader_epoch:
            mark("controller.recovery-answer-too-old")
            return False
        if info.current_leader_epoch > partition.leader_epoch:
            self._fall_behind(key, state, topic, partition, broker, info)
            return False
        if broker.id not in state.asked:
            return False
        if info.last_written_leader_epoch > partition.leader_epoch or info.log_end_offset < 0:
            # no valid log has such an end
            return False
        self._learn(key, state, broker, info, now_ms)
        return True

    def _learn(
        self,
        key: PartitionKey,
        state: _Leaderless,
        broker: BrokerImage,
        info: GetReplicaLogInfoResponse.PartitionLogInfo,
        now_ms: float,
    ) -> None:
        fact = LogFact(
            info.last_written_leader_epoch, info.log_end_offset, info.current_leader_epoch, now_ms
        )
        self._facts.learn(Replica(*key, broker.id), broker.epoch, fact)
        self._questions.drop(broker.id, key)
        state.asked = state.asked.difference((broker.id,))
        # Before the timeout all answers are needed, so only the last one triggers an examination;
        # after it, each does.
        if self._is_any_overdue(state, now_ms):
            self._to_look[key] = None
        elif not state.asked and state.began:
            if not self._answered:
                self._together_until_ms = now_ms + TOGETHER_MS
            self._answered[key] = None

    def _fall_behind(
        self,
        key: PartitionKey,
        state: _Leaderless,
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
        self._facts.forget_partition(*key)
        self._to_look[key] = None

    # --- turns --------------------------------------------------------------------------------

    def due_ms(self, now_ms: float) -> float | None:
        """Return the monotonic time of the next turn; None until the next event."""
        if self._to_look or self._must_scan:
            return now_ms
        times = [self._questions.due_ms()]
        if self._answered:
            times.append(self._together_until_ms if self._questions.answers_come else now_ms)
        if self._timers:
            times.append(next(iter(self._timers.values())) + self._timeout_ms)
        times += [request.deadline_ms for request in self._requests]
        return min((time for time in times if time is not None), default=None)

    def turn(self, view: ControllerView, now_ms: float) -> Turn:
        """Examine the partitions that have changed, a bounded number of them."""
        managed = recovery_manager_enabled(view)
        lives = {broker_id: one.epoch for broker_id, one in view.image.cluster.brokers.items()}
        rules = _Rules(view, ElectionContext(view), managed, now_ms, lives, {})
        self._take_timeout(recovery_timeout_ms(view))
        self._search(view)
        expired = self._expire(now_ms)
        if now_ms >= self._together_until_ms or not (self._to_look or self._questions.answers_come):
            self._to_look.update(self._answered)
            self._answered.clear()
        records: list[PartitionChangeRecord] = []
        for key in list(islice(self._to_look, LOOKS_PER_TURN)):
            del self._to_look[key]
            record = self._look(key, rules)
            if record is not None:
                records.append(record)
        # `appended` removes these; if the append is refused, they are examined again.
        self._to_look.update(dict.fromkeys((r.topic_id, r.partition_id) for r in records))
        return Turn(tuple(records), tuple(expired))

    def questions(self, now_ms: float) -> list[Question]:
        """Return the requests to send to brokers now; each has to end in `answered` or
        `unanswered`."""
        return self._questions.take(now_ms)

    def asks(self, broker_id: int) -> bool:
        """Return whether there is a query for this broker, now or later."""
        return self._questions.are_for(broker_id)

    def _search(self, view: ControllerView) -> None:
        if self._must_scan and self._scan is None:
            self._scan = self._leaderless(view)
        if self._scan is not None and next(self._scan, self) is self:
            self._scan, self._must_scan = None, False

    def _leaderless(self, view: ControllerView) -> Iterator[None]:
        """Queue the leaderless partitions of this view, in steps. Later changes come as records."""
        seen = 0
        for _, topic in sorted(view.image.topics.by_name.items()):
            for index, partition in topic.partitions.items():
                if partition.leader == NO_LEADER:
                    self._to_look[topic.id, index] = None
            seen += len(topic.partitions)
            if seen >= SCANNED_PER_TURN:
                seen = 0
                yield

    def _take_timeout(self, timeout_ms: float) -> None:
        if timeout_ms == self._timeout_ms:
            return
        self._timeout_ms = timeout_ms
        running = [
            ((key, strategy), began_ms)
            for key, state in self._open.items()
            for strategy, began_ms in state.began.items()
        ]
        self._timers = dict(sorted(running, key=lambda timer: timer[1]))

    def _expire(self, now_ms: float) -> list[RecoveryRequest]:
        """Queue partitions whose recovery timed out; end requests past their deadline and return
        them."""
        while self._timers:
            timer, began_ms = next(iter(self._timers.items()))
            if began_ms + self._timeout_ms > now_ms:
                break
            mark("controller.recovery-overdue")
            del self._timers[timer]
            self._to_look[timer[0]] = None
        expired = [r for r in self._requests if r.deadline_ms <= now_ms and r.waiting]
        for request in expired:
            for key in list(request.waiting):
                excuse = self._excuse(key, request.strategy)
                request.outcomes[key] = Outcome(ErrorCode.REQUEST_TIMED_OUT, excuse)
            self.withdraw(request)
            request.waiting.clear()
        return expired

    def _excuse(self, key: PartitionKey, strategy: RecoveryStrategy) -> str | None:
        """Return why an election by this strategy is not decided, as text for the operator."""
        state = self._open.get(key)
        if state is None:
            return "it was decided, but not committed in time: it may be later"
        verdict = state.asked_for.get(strategy)
        if verdict is None or verdict.waits is None:
            return None
        brokers = ", ".join(map(str, _still_waited_for(state, verdict)))
        return _EXCUSES[verdict.waits].format(brokers=brokers)

    # --- one partition ------------------------------------------------------------------------

    def _look(self, key: PartitionKey, rules: _Rules) -> PartitionChangeRecord | None:
        topic = rules.view.image.topics.by_id.get(key[0])
        partition = None if topic is None else topic.partitions.get(key[1])
        if topic is None or partition is None:
            self._close(key, Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return None
        if partition.leader != NO_LEADER:
            self._close(key, LED)
            return None
        state = self._state_of(key)
        if state.replicas != partition.replicas:
            for replica in {*state.replicas} - {*partition.replicas}:
                self._facts.forget(Replica(*key, replica))
            state.name, state.replicas = topic.name, partition.replicas
        standing = _standing(topic, key[1], partition, rules)
        answers = self._answers(key, standing, partition.leader_epoch, rules.lives)
        safety = rules.elections.rules(topic).safety
        configured = safety.strategy
        verdicts: dict[RecoveryStrategy, Verdict] = {}
        strategies = [request.strategy for request in state.requests]
        for strategy in [*strategies, configured] if rules.managed else strategies:
            overdue = self._is_overdue(state, strategy, rules.now_ms)
            verdicts[strategy] = judge(strategy, standing, answers, overdue=overdue)
        state.asked_for = {s: verdicts[s] for s in strategies} if strategies else NOTHING
        for strategy, verdict in verdicts.items():
            if verdict.winner is not None:
                by_itself = rules.managed and strategy is configured
                cause = Cause.UNCLEAN_RECOVERY if by_itself else Cause.OPERATOR_REQUEST
                return _elect(key, topic, partition, verdict.winner, cause, rules)
        needed = {strategy: v for strategy, v in verdicts.items() if v.needed}
        self._run(key, state, needed, rules.now_ms)
        self._ask(key, state, frozenset([b for v in verdicts.values() for b in v.asked]))
        shown = next(iter(needed.values()), verdicts.get(configured))
        shown = shown or next(iter(verdicts.values()), None)
        if shown is None:
            shown = without_recovery(
                configured, standing, last_known_electable=safety.last_known_electable
            )
        self._note(state, shown, rules.now_ms)
        return None

    def _state_of(self, key: PartitionKey) -> _Leaderless:
        state = self._open.get(key)
        if state is None:
            state = self._open[key] = _Leaderless()
        return state

    def _answers(
        self, key: PartitionKey, standing: Standing, leader_epoch: int, lives: Mapping[int, int]
    ) -> Mapping[int, LogFact]:
        """Return the answers that count now."""
        told = self._facts.told_of(*key)
        if not told:
            return NO_ANSWERS
        found = {}
        for replica in standing.alive:
            fact = counted(told.get(replica), lives[replica])
            if fact is not None and fact.leader_epoch == leader_epoch:
                found[replica] = fact
        return found

    def _run(
        self,
        key: PartitionKey,
        state: _Leaderless,
        asking: Collection[RecoveryStrategy],
        now_ms: float,
    ) -> None:
        """Start timeouts of strategies that wait for answers now, and stop those of others."""
        if not state.began and asking:
            self._counts.running += 1
        elif state.began and not asking:
            mark("controller.recovery-gone-back")
            self._counts.running -= 1
            self._counts.given_up += 1
        for strategy in list(state.began):
            if strategy not in asking:
                del state.began[strategy]
                self._timers.pop((key, strategy), None)
        for strategy in asking:
            if strategy not in state.began:
                state.began[strategy] = self._timers[key, strategy] = now_ms

    def _ask(self, key: PartitionKey, state: _Leaderless, wanted: frozenset[int]) -> None:
        for broker_id in state.asked - wanted:
            self._questions.drop(broker_id, key)
        for broker_id in wanted - state.asked:
            self._questions.want(broker_id, key)
        state.asked = wanted

    def _note(self, state: _Leaderless, verdict: Verdict, now_ms: float) -> None:
        before = state.verdict
        assert verdict.waits is not None, "who has won is elected, and waits for nothing"
        if before is None or before.waits is not verdict.waits:
            state.since_ms = now_ms
            self._uncount(state)
            self._counts.waiting[verdict.waits] += 1
        state.verdict = verdict

    def _uncount(self, state: _Leaderless) -> None:
        if state.verdict is not None and state.verdict.waits is not None:
            self._counts.waiting[state.verdict.waits] -= 1

    def _close(self, key: PartitionKey, outcome: Outcome, *, by_log: bool = False) -> None:
        """Close a partition that has a leader or was deleted."""
        state = self._open.pop(key, None)
        if state is None:
            return
        ran = self._stop_running(key, state)
        if ran and not by_log and outcome.error is ErrorCode.NONE:
            mark("controller.recovery-clean-candidate")
        self._counts.finished += by_log
        self._counts.given_up += ran and not by_log
        self._uncount(state)
        for broker_id in state.asked:
            self._questions.drop(broker_id, key)
        self._facts.forget_partition(*key)
        self._decided += (Decided(request, key, outcome) for request in state.requests)

    def _stop_running(self, key: PartitionKey, state: _Leaderless) -> bool:
        """Stop the recovery of a partition. Returns: True if one was running."""
        ran = bool(state.began)
        self._counts.running -= ran
        for strategy in state.began:
            self._timers.pop((key, strategy), None)
        state.began.clear()
        return ran

    def _is_overdue(self, state: _Leaderless, strategy: RecoveryStrategy, now_ms: float) -> bool:
        began_ms = state.began.get(strategy) if state.began else None
        return began_ms is not None and now_ms >= began_ms + self._timeout_ms

    def _is_any_overdue(self, state: _Leaderless, now_ms: float) -> bool:
        over_ms = now_ms - self._timeout_ms
        return bool(state.began) and min(state.began.values()) <= over_ms

    def waits_for(self, topic_id: bytes, partition_id: int) -> Waiting | None:
        """Return what a leaderless partition waits for; None for others."""
        state = self._open.get((topic_id, partition_id))
        if state is None or state.verdict is None or state.verdict.waits is None:
            return None
        brokers = _still_waited_for(state, state.verdict)
        return Waiting(state.verdict.waits, brokers, state.since_ms)


def _elect(
    key: PartitionKey,
    topic: TopicImage,
    partition: PartitionImage,
    winner: int,
    cause: Cause,
    rules: _Rules,
) -> PartitionChangeRecord | None:
    election = ThisBroker(winner, ElectedAs.UNCLEAN_RECOVERY)
    change = rules.elections.change_partition(topic, key[1], partition, cause, election=election)
    return None if change is None or change.elected.leader == NO_LEADER else change.record


def _still_waited_for(state: _Leaderless, verdict: Verdict) -> tuple[int, ...]:
    """Return the brokers that the verdict waits for, without those that have answered since."""
    if verdict.waits is not WaitsFor.ANSWERS:
        return verdict.brokers
    return tuple(b for b in verdict.brokers if b in state.asked)


_EXCUSES: Final[Mapping[WaitsFor, str]] = {
    WaitsFor.CLEAN_CANDIDATE: "one of brokers {brokers} has everything, and is waited for",
    WaitsFor.LAST_KNOWN: "brokers {brokers} may have everything, and are waited for",
    WaitsFor.ANYBODY: "none of brokers {brokers} can lead now",
    WaitsFor.ANSWERS: "brokers {brokers} have not said yet how far their logs reach",
    WaitsFor.OPERATOR: "it waits for an operator",
}


def _standing(topic: TopicImage, index: int, partition: PartitionImage, rules: _Rules) -> Standing:
    state = topic.id, *partition_state(partition)
    standing = rules.standings.get(state)
    if standing is None:
        standing = rules.standings[state] = _resolve(topic, index, partition, rules)
    return standing


def _resolve(topic: TopicImage, index: int, partition: PartitionImage, rules: _Rules) -> Standing:
    safety = rules.elections.rules(topic).safety
    eligibility_of = rules.elections.eligibility_in(topic, index, partition)
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
