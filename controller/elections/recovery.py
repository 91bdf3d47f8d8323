"""Unclean recovery: the longest log leads where nobody is sure to hold everything (KIP-966).

One machine for all partitions without leader. Records, answers, times and operators' requests go
in; questions for brokers and records of elections come out. `recovery_rules` say for one partition
what is next; this keeps who waits, for how long, and looks again where something has changed, a
bounded number of partitions at each turn.

Nothing is written before the election, so a new active controller starts over, with new timeouts.
What brokers have answered is in `LogFacts`. An answer counts for the life of the broker that gave
it, and if the broker knew the leader epoch that the partition has now: with an older one its log
may still move, and it is asked again. A newer one says that another controller may have written
since: all that was answered about that partition is dropped and requested again, once for each
newer epoch.

An answer changes nothing but what is known of partitions that the request named, of which its
broker is a replica. It never stops or restarts a timeout, so that a broker with absurd answers
holds up no decision without it.

A partition may be waited for more than once: by the topic's strategy, while the manager is on, and
by operators' requests, whatever is configured. The first that can decide does.

What a turn decides is not so before it is appended: that may be refused, and then everything is as
before, and looked at again. Operators hear of it when it is committed (`take_decided`, `settle`).
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
"""Partitions that are looked at before others have their turn: 5 ms where each elects and that is
written down."""
SCANNED_PER_TURN: Final = 2_000
"""Partitions that are searched for such without leader in one turn."""
TOGETHER_MS: Final = 500.0
"""So long partitions that could be decided wait for answers about others, while these come. New
leaders and followers have much to do: a broker that has begun answers many times slower."""
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
    """What a partition waits for, whom, and since when (monotonic)."""

    waits: WaitsFor
    brokers: tuple[int, ...]
    since_ms: float


class Turn(NamedTuple):
    """What a turn has decided: records to write, and requests whose time is over."""

    records: tuple[PartitionChangeRecord, ...]
    expired: tuple[RecoveryRequest, ...]


class Decided(NamedTuple):
    """What a request is to hear of a partition once everything that is appended is committed."""

    request: RecoveryRequest
    partition: PartitionKey
    outcome: Outcome


class RecoveryCounts:
    """Recoveries: a recovery runs while answers are waited for."""

    __slots__ = ("finished", "given_up", "running", "waiting")

    def __init__(self) -> None:
        self.running = 0
        self.finished = 0
        """Those that have elected the longest log."""
        self.given_up = 0
        """Those that ended otherwise: a clean candidate came, nobody wants it any more, a needed
        replica is gone."""
        self.waiting: Counter[WaitsFor] = Counter()
        """Partitions without leader by what they wait for."""


class _Leaderless:
    """One partition without leader."""

    __slots__ = (
        *("asked", "asked_for", "began", "name", "newer_epoch", "replicas", "requests"),
        *("since_ms", "verdict"),
    )

    def __init__(self) -> None:
        self.name = ""
        self.verdict: Verdict | None = None
        self.since_ms = 0.0
        self.asked: frozenset[int] = frozenset()
        # When each strategy that is in force began to ask.
        self.began: dict[RecoveryStrategy, float] = {}
        self.requests: list[RecoveryRequest] = []
        # How it stands by the strategies that operators have asked for.
        self.asked_for: Mapping[RecoveryStrategy, Verdict] = NOTHING
        self.replicas: tuple[int, ...] = ()
        self.newer_epoch = -1
        """The newest leader epoch beyond the controller's that a replica has reported."""


class _Rules(NamedTuple):
    """What one turn holds for all partitions."""

    view: ControllerView
    elections: ElectionContext
    managed: bool
    now_ms: float
    lives: Mapping[int, int]
    """Each broker's epoch now."""
    standings: dict[tuple[object, ...], Standing]
    """By topic and state: ten thousand partitions are in a handful of states."""


class UncleanRecovery:
    """The machine. After each call `due_ms` says when `turn` wants to be called next."""

    def __init__(self, facts: LogFacts, counts: RecoveryCounts) -> None:
        self._facts = facts
        self._counts = counts
        self._questions = Questions()
        self._open: dict[PartitionKey, _Leaderless] = {}
        self._to_look: dict[PartitionKey, None] = {}
        # Whose answers are all here, and until when they wait for others at most.
        self._answered: dict[PartitionKey, None] = {}
        self._together_until_ms = 0.0
        self._scan: Iterator[None] | None = None
        self._must_scan = False
        self._timeout_ms: float = 0.0
        # When timeouts run: in the order in which they began, so the first ends first.
        self._timers: dict[tuple[PartitionKey, RecoveryStrategy], float] = {}
        self._requests: dict[RecoveryRequest, None] = {}
        self._decided: list[Decided] = []

    # --- events -------------------------------------------------------------------------------

    def begin(self) -> None:
        """This controller has become active: it knows nothing and looks at everything."""
        self.end()
        self._must_scan = True

    def end(self) -> None:
        """It is active no longer. Who waits is told by whoever keeps the requests."""
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
        """Records were appended and replayed; they show in the view of the next turn."""
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
        """What has been decided since: to be `settle`d when all that is appended is committed."""
        decided, self._decided = self._decided, []
        return decided

    def settle(self, decided: Iterable[Decided]) -> list[RecoveryRequest]:
        """This is committed. Requests that are whole with it, which end here."""
        for request, partition, outcome in decided:
            if request in self._requests:
                request.waiting.pop(partition, None)
                request.outcomes[partition] = outcome
        whole = [request for request in self._requests if not request.waiting]
        for request in whole:
            del self._requests[request]
        return whole

    def request(self, request: RecoveryRequest) -> None:
        """An operator asks for elections by the longest log, whatever is configured."""
        self._requests[request] = None
        for key in request.waiting:
            self._state_of(key).requests.append(request)
            self._to_look[key] = None

    def withdraw(self, request: RecoveryRequest) -> None:
        """Nobody waits for the request any more: it elects nothing later."""
        self._requests.pop(request, None)
        for key in request.waiting:
            state = self._open.get(key)
            if state is not None and request in state.requests:
                state.requests.remove(request)
                self._to_look[key] = None

    def unanswered(self, question: Question, now_ms: float) -> None:
        """There will be no answer: a closed port, a lost connection, a broker without the API."""
        self._questions.settle(question, now_ms, useful=False)

    def answered(
        self,
        question: Question,
        response: GetReplicaLogInfoResponse,
        view: ControllerView,
        now_ms: float,
    ) -> None:
        """A broker has answered."""
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
        """Take over what a replica has answered. Returns: True if it counts."""
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
            return False  # no log can be like that
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
        # Before the timeout all answers are needed, so the last one is worth a look; later any is.
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
        """A replica knows a newer leader epoch than this controller, which may be active no longer:
        what others have answered about the partition may be of the past."""
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
        """When the next turn is due; None: not before something happens."""
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
        """Look at what has changed, a bounded part of it."""
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
        # `appended` takes these away: where it is refused, they are looked at again.
        self._to_look.update(dict.fromkeys((r.topic_id, r.partition_id) for r in records))
        return Turn(tuple(records), tuple(expired))

    def questions(self, now_ms: float) -> list[Question]:
        """What is to be sent to brokers now. Each has to be `answered` or `unanswered`."""
        return self._questions.take(now_ms)

    def asks(self, broker_id: int) -> bool:
        """Whether anything is to be asked of this broker, now or later."""
        return self._questions.are_for(broker_id)

    def _search(self, view: ControllerView) -> None:
        if self._must_scan and self._scan is None:
            self._scan = self._leaderless(view)
        if self._scan is not None and next(self._scan, self) is self:
            self._scan, self._must_scan = None, False

    def _leaderless(self, view: ControllerView) -> Iterator[None]:
        """Finds what has no leader in this view; what changes later is told by records."""
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
        """Look at recoveries whose timeout is over; the requests whose time is."""
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
        """What an election by this strategy waits for."""
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
        """The answers that count now."""
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
        """Time runs while answers are waited for."""
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
        """It has a leader, or is gone."""
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
        """Whether it ran."""
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
        """What a partition without leader waits for; None for others."""
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
    """Without those that have answered since."""
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
