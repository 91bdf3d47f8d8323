"""Unclean recovery: the brokers queried, the replicas awaited, and the leader elected."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.configs.topic_settings import RecoveryStrategy
from controller.elections import recovery_waiting
from controller.elections.context import ElectionContext
from controller.elections.explanation import UNHEARD, explain_partition
from controller.elections.log_facts import LogFact
from controller.elections.recovery import (
    LOOKS_PER_TURN,
)
from controller.elections.recovery_events import (
    Activated,
    Answered,
    Committed,
    Deactivated,
    Requested,
    Unanswered,
    Withdrawn,
)
from controller.elections.recovery_questions import PAUSE_MAX_MS, Question
from controller.elections.recovery_requests import RecoveryOutcome, RecoveryRequest
from controller.elections.recovery_rules import Standing, Verdict, WaitsFor, judge
from controller.elections.recovery_timers import TOGETHER_MS
from metalog.image.values import NO_LEADER, ElectedAs, LeaderRecoveryState
from protocol.errors import ErrorCode
from protocol.messages.get_replica_log_info import GetReplicaLogInfoResponse
from protocol.metadata import (
    PartitionChangeRecord,
    RemoveTopicRecord,
    UnfenceBrokerRecord,
)
from tests.unit.controller.elections.recovery_world import (
    AGGRESSIVE,
    BALANCED,
    NONE,
    TIMEOUT_MS,
    World,
    power_cut,
)

# --- Balanced -------------------------------------------------------------------------------------


def test_balanced_waits_for_all_that_may_have_everything_and_elects_the_longest() -> None:
    w = power_cut(World())
    # 1 left while the ISR still had min ISR
    assert sorted(w.partition("t").last_known_elr) == [2, 3]
    assert w.waits() == (WaitsFor.LAST_KNOWN, (2, 3))
    w.unfence(3)
    w.unfence(1)
    w.wait(10 * TIMEOUT_MS)
    # Answers count until the next incarnation: no broker is queried twice, and no timeout runs.
    assert [q.broker_id for q in w.asked] == [3, 1]
    assert (w.waits(), w.counts.running) == ((WaitsFor.LAST_KNOWN, (2,)), 0)
    w.unfence(2)
    assert [q.broker_id for q in w.asked] == [3, 1, 2]
    (record,) = w.written
    assert (record.leader, record.isr) == (2, [2])
    assert record.election_kind == ElectedAs.UNCLEAN_RECOVERY
    assert record.leader_recovery_state == LeaderRecoveryState.RECOVERING
    assert record.election_cause == "unclean-recovery"
    assert sorted(w.partition("t").last_known_elr) == [3]
    assert (w.counts.running, w.counts.finished, w.counts.given_up) == (0, 1, 0)
    assert w.waits() is None
    assert +w.counts.waiting == {}
    assert len(w.facts) == 0


def test_answer_counts_only_for_the_broker_epoch_that_gave_it() -> None:
    w = power_cut(World())
    w.logs[3] = (0, 30)
    w.unfence(3)
    assert [q.broker_id for q in w.asked] == [3]
    w.down(3)
    w.logs[3] = (0, 5)  # broker 3 returns with a shorter log
    w.back(3)
    assert [q.broker_id for q in w.asked] == [3, 3]
    w.unfence(1)
    w.unfence(2)
    assert w.leader == 2


def test_others_are_waited_for_until_the_timeout_members_without_end() -> None:
    w = power_cut(World())
    w.logs[1] = (5, 1)
    w.silent = {1, 3}
    for broker_id in (1, 2, 3):
        w.unfence(broker_id)
    assert w.waits() == (WaitsFor.ANSWERS, (1, 3))
    assert w.counts.running == 1
    w.wait(TIMEOUT_MS)
    assert w.waits() == (WaitsFor.ANSWERS, (3,))
    w.silent = {1}
    w.wait(10_000)
    assert w.leader == 2


def test_a_member_that_is_fenced_sends_it_back_to_waiting_with_a_new_timeout() -> None:
    w = power_cut(World())
    w.silent = {1, 3}
    for broker_id in (1, 2, 3):
        w.unfence(broker_id)
    w.wait(TIMEOUT_MS / 2)
    w.fence_only(3)
    assert w.waits() == (WaitsFor.LAST_KNOWN, (3,))
    assert (w.counts.running, w.counts.given_up) == (0, 1)
    w.silent = {1}
    w.unfence(3)
    w.wait(100)
    assert w.waits() == (WaitsFor.ANSWERS, (1,))  # 2's answer still counts
    w.wait(TIMEOUT_MS - 101)
    assert w.leader == NO_LEADER
    w.wait(1)
    assert w.leader == 2


def test_an_elr_member_that_comes_back_first_ends_it_cleanly() -> None:
    w = World(unclean_recovery_strategy="Aggressive")
    w.down(1, 2, 3)
    assert w.partition("t").elr
    w.silent = {1}
    member = w.partition("t").elr[0]
    assert member != 1
    w.lives[1] += 1
    w.register(1, life=w.lives[1])
    w.heartbeat(1)
    w.turns()
    assert w.waits() == (WaitsFor.ANSWERS, (1,))
    w.heartbeat(member)
    w.turns()
    assert w.leader == member
    assert w.written == []
    assert (w.counts.running, w.counts.finished, w.counts.given_up) == (0, 0, 1)


def test_balanced_waits_for_a_clean_candidate() -> None:
    w = World()
    w.down(1, 2, 3)
    w.back(1)
    assert w.waits() == (WaitsFor.CLEAN_CANDIDATE, w.partition("t").replicas[1:])
    assert w.asked == []


def test_a_set_that_is_not_whole_waits_for_every_replica() -> None:
    w = World(unclean_recovery_manager_enabled="false")
    power_cut(w)
    assert len(w.partition("t").last_known_elr) == 1
    w.configure("kraftbox.no.such", "x")
    w.configure("unclean.recovery.manager.enabled", "true")
    assert w.waits() == (WaitsFor.LAST_KNOWN, (1, 2, 3))
    w.unfence(1)
    w.unfence(2)
    assert w.leader == NO_LEADER
    assert w.waits() == (WaitsFor.LAST_KNOWN, (3,))


# --- Aggressive -----------------------------------------------------------------------------------


def test_aggressive_elects_of_those_that_are_alive() -> None:
    w = power_cut(World(unclean_recovery_strategy="Aggressive"))
    assert w.waits() == (WaitsFor.ANYBODY, (1, 2, 3))
    w.unfence(1)
    assert w.leader == 1
    assert w.counts.finished == 1


def test_aggressive_waits_for_all_that_are_alive_until_the_timeout() -> None:
    w = power_cut(World(unclean_recovery_strategy="Aggressive"))
    w.silent = {1, 2, 3}
    w.unfence(1)
    w.unfence(3)
    w.wait(TIMEOUT_MS + 5_000)
    assert w.waits() == (WaitsFor.ANSWERS, (1, 3))
    w.silent = {3}
    w.happen(Answered(w.asked[-1], w.response(w.asked[-1]), w.view()))
    w.wait(5_000)
    assert w.leader in (1, 3)


def test_aggressive_does_not_wait_for_a_broker_fenced_during_recovery() -> None:
    w = power_cut(World(unclean_recovery_strategy="Aggressive"))
    w.silent = {1, 3}
    for broker_id in (1, 3):
        w.unfence(broker_id)
    w.silent = {3}
    w.wait(10_000)
    assert w.waits() == (WaitsFor.ANSWERS, (3,))
    w.fence_only(3)
    assert w.leader == 1


# --- which answers count --------------------------------------------------------------------------


def asking(**properties: str) -> tuple[World, dict[int, Question]]:
    """Return a world in which all brokers are alive and queried, and none has answered."""
    w = power_cut(World(**properties))
    w.silent = {1, 2, 3}
    for broker_id in (1, 2, 3):
        w.unfence(broker_id)
    return w, {question.broker_id: question for question in w.asked}


def test_answer_with_another_broker_epoch_is_ignored() -> None:
    w, questions = asking()
    w.answer(questions[1])
    w.answer(questions[3])
    w.answer(questions[2], broker_epoch=w.image.cluster.brokers[2].epoch - 1)
    w.turns()
    assert w.waits() == (WaitsFor.ANSWERS, (2,))
    # Broker 2 answers; before its election, broker 3 registers again.
    w.silent = set()
    w.logs[2] = (0, 1)
    w.lives[3] += 1
    w.fence_only(3)
    w.register(3, life=w.lives[3])
    w.wait(5_000)
    assert w.waits() == (WaitsFor.LAST_KNOWN, (3,))
    w.heartbeat(3)
    w.wait(5_000)
    assert w.leader == 3


def test_answer_at_an_older_leader_epoch_is_requested_again() -> None:
    w, questions = asking()
    before = w.partition("t").leader_epoch - 1
    w.answer(questions[1])
    w.answer(questions[3])
    w.answer(questions[2], current_leader_epoch=before)
    w.turns()
    assert w.waits() == (WaitsFor.ANSWERS, (2,))
    w.silent = set()
    w.wait(5_000)
    assert w.leader == 2


def test_an_answer_of_before_a_new_leader_epoch_does_not_count() -> None:
    w, questions = asking()
    w.answer(questions[2])
    w.answer(questions[3])
    before = w.partition("t").leader_epoch
    w.apply([PartitionChangeRecord(topic_id=w.key()[0], partition_id=0, leader=NO_LEADER)])
    assert w.partition("t").leader_epoch == before + 1
    w.turns()
    assert w.waits() == (WaitsFor.ANSWERS, (1, 2, 3))
    w.silent = {2, 3}
    w.wait(TIMEOUT_MS)
    assert w.leader == NO_LEADER


@pytest.mark.parametrize(
    "error", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_LIMIT_REACHED, ErrorCode(-1)]
)
def test_answer_with_an_error_is_still_awaited(error: ErrorCode) -> None:
    w, questions = asking()
    for broker_id in (1, 3):
        w.answer(questions[broker_id])
    w.answer(questions[2], error_code=error)
    w.turns()
    assert w.waits() == (WaitsFor.ANSWERS, (2,))


def test_missing_answer_is_requested_again_with_backoff() -> None:
    w, questions = asking()
    w.happen(Unanswered(questions[2]))
    count = len(w.asked)
    for _ in range(100):
        w.wait(100)
        for question in [q for q in w.asked[count:] if q.broker_id == 2]:
            w.happen(Unanswered(question))
        count = len(w.asked)
    assert 5 < len([q for q in w.asked if q.broker_id == 2]) < 15


def test_a_newer_leader_epoch_drops_what_was_answered_about_that_partition() -> None:
    w, questions = asking()
    w.answer(questions[1])
    w.answer(questions[3])
    w.answer(questions[2], current_leader_epoch=w.partition("t").leader_epoch + 1)
    assert len(w.facts) == 0
    w.silent = set()
    w.turns()
    assert w.leader == NO_LEADER
    w.wait(PAUSE_MAX_MS)
    assert w.leader == 2
    assert {q.broker_id for q in w.asked[3:]} == {1, 2, 3}


EPOCH_MAX, END_MAX = 2**31 - 1, 2**63 - 1


class TwoTopics(World):
    """A world with topic u on brokers 1 and 2 next to t, so that broker 3 has no replica of it."""

    def __init__(self, **properties: str) -> None:
        super().__init__(**properties)
        self.create_topic("u", [1, 2])
        self.turns()

    @property
    def leader_of_u(self) -> int:
        return self.partition("u").leader


ABSURD: list[dict[str, int]] = [
    {"current_leader_epoch": EPOCH_MAX},
    {"last_written_leader_epoch": EPOCH_MAX, "log_end_offset": END_MAX},
    {"current_leader_epoch": EPOCH_MAX, "log_end_offset": END_MAX},
    {"current_leader_epoch": -(2**31), "last_written_leader_epoch": -(2**31)},
    {"log_end_offset": -1},
]


def absurd(w: World, question: Question, fields: dict[str, int], name: str = "u") -> None:
    """Send an answer about every partition, whatever was requested."""
    response = w.response(question, **fields)
    for one in response.topic_partition_log_info_list:
        for info in list(one.partition_log_info):
            one.partition_log_info.append(info.replace(partition=7))
    topic = w.image.topics.by_name[name]
    response.topic_partition_log_info_list.append(
        GetReplicaLogInfoResponse.TopicPartitionLogInfo(
            topic_id=topic.id,
            partition_log_info=[
                GetReplicaLogInfoResponse.PartitionLogInfo(
                    partition=0,
                    last_written_leader_epoch=5,
                    log_end_offset=7,
                    current_leader_epoch=w.partition(name).leader_epoch,
                ).replace(**fields)
            ],
        )
    )
    w.happen(Answered(question, response, w.view()))


@pytest.mark.parametrize("fields", ABSURD)
@pytest.mark.parametrize("strategy", ["Aggressive", "Balanced"])
def test_an_absurd_answer_holds_up_no_partition_without_that_broker(
    fields: dict[str, int], strategy: str
) -> None:
    """P21: a broker without a replica of u cannot delay u with invalid answers.

    u is elected when brokers 1 and 2 have answered, or at the timeout, which no answer restarts.
    """
    w = power_cut(TwoTopics(unclean_recovery_strategy=strategy))
    w.silent = {1, 2, 3}
    for broker_id in (1, 2, 3):
        w.unfence(broker_id)
    questions = {question.broker_id: question for question in w.asked}
    began_ms = w.monotonic_ms
    w.answer(questions[1])
    w.pending.clear()
    while w.monotonic_ms < began_ms + TIMEOUT_MS / 2:
        absurd(w, questions[3], fields)
        w.advance(2_000)
        w.turns()
        w.pending.clear()
        questions[3] = [question for question in w.asked if question.broker_id == 3][-1]
        assert w.leader_of_u == NO_LEADER
    if strategy == "Balanced":
        w.answer(questions[2])
    else:
        w.advance(TIMEOUT_MS - (w.monotonic_ms - began_ms))
    w.turns()
    w.advance(TOGETHER_MS)
    w.turns()
    assert w.leader_of_u == (2 if strategy == "Balanced" else 1)


@pytest.mark.parametrize("fields", ABSURD)
def test_an_absurd_answer_of_one_replica_does_not_stop_the_timeout_of_the_others(
    fields: dict[str, int],
) -> None:
    """P21: an invalid answer counts as none; at most, valid answers of other brokers are requested
    again."""
    w = power_cut(World(unclean_recovery_strategy="Aggressive"))
    w.silent = {3}
    for broker_id in (3, 1, 2):
        w.unfence(broker_id)
    began_ms = w.monotonic_ms
    while w.monotonic_ms < began_ms + TIMEOUT_MS:
        assert w.leader == NO_LEADER
        for question in w.pending:
            w.answer(question, **fields)
        w.pending.clear()
        w.advance(1_000)
        w.turns()
    assert w.leader == 2
    asked = [question for question in w.asked if question.broker_id == 3]
    assert len(asked) < 2 * TIMEOUT_MS / 1_000
    assert len(w.asked) - len(asked) <= 4, "each of the others twice at most"


def test_an_answer_about_what_was_not_requested_counts_for_nothing() -> None:
    """Broker 3 has replicas of both topics, and is queried about t alone."""
    w, questions = asking()
    others = [Question(question.broker_id, ()) for question in questions.values()]
    for question in others:
        absurd(w, question, {}, "t")
    assert len(w.facts) == 0


def test_a_new_controller_starts_over() -> None:
    w, questions = asking()
    w.wait(TIMEOUT_MS / 2)
    w.answer(questions[2])
    w.happen(Deactivated())
    assert w.due_ms is None
    assert w.counts.running == 0
    w.happen(Activated())
    w.silent = {1}
    w.turns()
    assert w.waits() == (WaitsFor.ANSWERS, (1,))
    w.answer(questions[1])  # an answer to the earlier request counts like any other
    w.turns()
    assert w.leader == 2
    w, _ = asking()
    w.happen(Activated())
    w.silent = {1}
    w.turns()
    w.wait(TIMEOUT_MS - 1)
    assert w.leader == NO_LEADER
    w.wait(1)
    assert w.leader == 2


# --- other events in between ----------------------------------------------------------------------


def test_recovery_after_reassignment_queries_the_new_replicas() -> None:
    w, questions = asking()
    w.silent = {1, 2}
    w.start(4)
    w.logs[4] = (0, 0)
    w.answer(questions[3])
    topic_id, index = w.key()
    first, second, third = w.partition("t").directories
    moved = PartitionChangeRecord(
        topic_id=topic_id,
        partition_id=index,
        replicas=[1, 2, 4],
        directories=[first, second, third[:-1] + b"\4"],
        leader=NO_LEADER,
    )
    w.apply([moved])
    w.turns()
    assert len(w.facts) == 1  # 4's answer; 3 is no longer a replica
    assert w.waits() == (WaitsFor.ANSWERS, (1, 2))
    w.silent = set()
    w.wait(5_000)
    assert w.leader == 2
    assert len(w.facts) == 0


def test_recovery_ignores_answers_about_a_topic_that_was_recreated() -> None:
    w, questions = asking()
    before = w.key()
    request = w.ask(AGGRESSIVE)
    w.apply([RemoveTopicRecord(topic_id=before[0])])
    w.create_topic("t", [1, 2, 3])
    w.turns()
    assert w.key() != before
    assert w.answered == [request]
    assert request.outcomes == {before: RecoveryOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    leader = w.leader
    assert leader != NO_LEADER
    for question in questions.values():
        w.answer(question)
    w.turns()
    assert (w.leader, w.written, len(w.facts)) == (leader, [], 0)
    assert (w.counts.running, +w.counts.waiting) == (0, {})


@pytest.mark.parametrize("timeout_ms", [0, 2**63 - 1])
def test_extreme_timeouts(timeout_ms: int) -> None:
    """With timeout 0 the first answer is enough; the largest timeout never ends."""
    w = power_cut(
        World(unclean_recovery_strategy="Aggressive", unclean_recovery_timeout_ms=str(timeout_ms))
    )
    w.silent = {1, 2, 3}
    for broker_id in (1, 2, 3):
        w.unfence(broker_id)
    w.silent = {2, 3}
    w.wait(10 * TIMEOUT_MS)
    assert w.leader == (NO_LEADER if timeout_ms else 1)
    w.silent = set()
    w.wait(5_000)
    assert w.leader == (2 if timeout_ms else 1)


# --- configuration --------------------------------------------------------------------------------


def test_a_change_of_strategy_counts_at_once_on_a_recovery_that_runs() -> None:
    w, questions = asking()
    w.answer(questions[2])
    w.turns()
    w.configure("unclean.recovery.strategy", "None", topic="t")
    assert w.waits() == (WaitsFor.OPERATOR, ())
    assert (w.counts.running, w.counts.given_up) == (0, 1)
    w.configure("unclean.recovery.strategy", "Aggressive")
    assert w.waits() == (WaitsFor.OPERATOR, ())  # the topic's own value takes precedence
    w.configure("unclean.recovery.strategy", None, topic="t")
    assert w.waits() == (WaitsFor.ANSWERS, (1, 3))


def test_the_manager_turned_off_ends_a_recovery() -> None:
    w, questions = asking()
    w.configure("unclean.recovery.manager.enabled", "false")
    assert w.counts.running == 0
    for question in questions.values():
        w.answer(question)
    w.turns()
    assert w.leader == NO_LEADER


def test_a_shorter_timeout_counts_at_once() -> None:
    w, questions = asking()
    for broker_id in (2, 3):
        w.answer(questions[broker_id])
    w.wait(1000)
    assert w.waits() == (WaitsFor.ANSWERS, (1,))
    w.configure("unclean.recovery.timeout.ms", "1000")
    assert w.leader == 2


def test_a_longer_timeout_counts_at_once() -> None:
    w, _ = asking()
    w.silent = {1, 3}
    w.wait(TIMEOUT_MS + 5_000)
    assert w.waits() == (WaitsFor.ANSWERS, (3,))
    w.configure("unclean.recovery.timeout.ms", str(2 * TIMEOUT_MS))
    assert w.waits() == (WaitsFor.ANSWERS, (1, 3))


def test_recovery_with_the_manager_disabled_queries_no_broker() -> None:
    w = power_cut(World(unclean_recovery_manager_enabled="false"))
    for broker_id in (1, 2, 3):
        w.unfence(broker_id)
    assert w.asked == []
    assert w.due_ms is None


# --- operators ------------------------------------------------------------------------------------


@pytest.mark.parametrize("manager", ["true", "false"])
def test_an_operator_gets_the_longest_log_whatever_is_configured(manager: str) -> None:
    w = World(unclean_recovery_manager_enabled=manager, unclean_recovery_strategy="None")
    power_cut(w)
    for broker_id in (1, 3):
        w.unfence(broker_id)
    balanced = w.ask(BALANCED)
    assert w.answered == []
    assert w.waits() is not None
    aggressive = w.ask(AGGRESSIVE)
    assert w.leader == 3
    assert w.written[0].election_cause == "operator-request"
    assert set(w.answered) == {balanced, aggressive}
    assert aggressive.outcomes == {w.key(): RecoveryOutcome(ErrorCode.NONE)}


def test_a_request_whose_time_is_over_elects_nothing_later() -> None:
    w = power_cut(World(unclean_recovery_strategy="None"))
    w.silent = {1}
    w.unfence(1)
    request = w.ask(AGGRESSIVE, time_ms=1000.0)
    w.wait(999)
    assert w.answered == []
    w.wait(1)
    assert w.answered == [request]
    (outcome,) = request.outcomes.values()
    assert outcome.error is ErrorCode.REQUEST_TIMED_OUT
    assert outcome.message == "brokers 1 have not said yet how far their logs reach"
    w.silent = set()
    w.wait(10_000)
    assert w.leader == NO_LEADER
    assert w.counts.running == 0


def test_a_request_that_is_withdrawn_elects_nothing_later() -> None:
    w = power_cut(World(unclean_recovery_strategy="None"))
    request = w.ask(AGGRESSIVE)
    w.happen(Withdrawn(request))
    w.unfence(1)
    assert w.leader == NO_LEADER
    assert w.answered == []


def test_recovery_request_for_a_deleted_topic_returns_unknown_topic() -> None:
    w = power_cut(World(2))
    request = w.ask(BALANCED)
    w.apply([RemoveTopicRecord(topic_id=w.key()[0])])
    w.turns()
    assert w.answered == [request]
    assert {o.error for o in request.outcomes.values()} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(w.facts) == 0


def test_refused_append_leaves_recovery_unchanged_and_is_decided_again() -> None:
    w = power_cut(World(2, unclean_recovery_strategy="Aggressive"))
    w.refuses = True
    w.apply([UnfenceBrokerRecord(id=2, epoch=w.image.cluster.brokers[2].epoch)])
    for _ in range(3):
        w.turn()
    request = RecoveryRequest(AGGRESSIVE, w.partition_keys(), w.monotonic_ms + 1000)
    w.happen(Requested(request))
    for _ in range(3):
        w.turn()
    assert w.due_ms == w.monotonic_ms
    assert (w.leader, w.answered, request.outcomes) == (NO_LEADER, [], {})
    assert w.waits() == (WaitsFor.ANSWERS, ())
    assert (w.counts.running, w.counts.finished, w.counts.given_up) == (2, 0, 0)
    w.refuses = False
    w.turns()
    assert (w.partition("t", 0).leader, w.partition("t", 1).leader) == (2, 2)
    assert w.answered == [request]
    assert (w.counts.running, w.counts.finished, w.counts.given_up) == (0, 2, 0)


def test_recovery_request_reports_an_election_once_it_is_committed() -> None:
    w = power_cut(World(2, unclean_recovery_strategy="None"))
    w.unfence(1)
    w.commits = False
    request = w.ask(AGGRESSIVE, time_ms=1000.0)
    assert (w.leader, request.outcomes, w.answered) == (1, {}, [])
    first, *others = w.decided
    assert w.happen(Committed([first])).complete == ()
    w.wait(1000)
    assert w.answered == [request]
    told = {index: outcome for (_, index), outcome in request.outcomes.items()}
    assert told[first.partition[1]] == RecoveryOutcome(ErrorCode.NONE)
    late = told[1 - first.partition[1]]
    assert late.error is ErrorCode.REQUEST_TIMED_OUT
    assert late.message == "it was decided, but not committed in time: it may be later"
    assert w.happen(Committed(others)).complete == ()
    assert told == {index: outcome for (_, index), outcome in request.outcomes.items()}


# --- many -----------------------------------------------------------------------------------------


def test_thousands_are_decided_in_slices() -> None:
    w = power_cut(World(2_500))
    for broker_id in (1, 3):
        w.unfence(broker_id)
    w.written.clear()
    turns = 0
    epoch = w.image.cluster.brokers[2].epoch
    w.apply([UnfenceBrokerRecord(id=2, epoch=epoch)])
    while (due := w.due_ms) is not None and due <= w.monotonic_ms:
        before = len(w.written)
        w.turn()
        assert len(w.written) - before <= LOOKS_PER_TURN
        turns += 1
    assert len(w.written) == 2_500
    assert {record.leader for record in w.written} == {2}
    assert max(len(q.partitions) for q in w.asked) <= 1000
    assert turns < 40
    assert (w.counts.finished, w.counts.running, len(w.facts)) == (2_500, 0, 0)


def with_a_thousand_answers() -> tuple[World, Question]:
    """Return a world in which the last broker has answered for 1,000 of 2,500 partitions."""
    w = power_cut(World(2_500))
    for broker_id in (1, 3):
        w.unfence(broker_id)
    w.written.clear()
    w.silent = {2}
    w.unfence(2)
    first = w.pending.pop()
    w.answer(first)
    w.turns()
    return w, first


def test_many_are_elected_when_all_is_answered_not_while_answers_come() -> None:
    w, first = with_a_thousand_answers()
    second = w.pending.pop()
    assert not w.written, "a thousand could be elected, and more answers come"
    w.advance(TOGETHER_MS - 1)
    w.turns()
    assert not w.written
    w.advance(1)
    w.turns()
    assert len(w.written) == len(first.partitions), "the others take too long"
    w.silent.clear()
    w.answer(second)
    w.turns()
    assert len(w.written) == 2_500


def test_failed_query_does_not_delay_partitions_with_enough_answers() -> None:
    w, first = with_a_thousand_answers()
    w.happen(Unanswered(w.pending.pop()))
    w.turns()
    assert len(w.written) == len(first.partitions)


def test_explanation() -> None:
    w = power_cut(World(unclean_recovery_strategy="Balanced"))
    w.silent = {1, 3}
    for broker_id in (1, 2, 3):
        w.unfence(broker_id)
    began_ms = w.monotonic_ms
    w.wait(500)
    topic = w.image.topics.by_name["t"]
    waiting = w.recovery.waits_for(topic.id, 0)
    assert waiting == (WaitsFor.ANSWERS, (1, 3), began_ms)
    view = w.view()
    found = explain_partition(ElectionContext(view), topic, 0, w.facts, waiting)
    assert found.managed
    assert found.strategy.strategy is BALANCED
    assert found.since_ms == view.now_ms - 500
    assert [(c.broker_id, c.sets, c.reason, c.answer is not None) for c in found.candidates] == [
        (1, (), UNHEARD, False),
        (2, ("last_known_elr",), None, True),
        (3, ("last_known_elr",), UNHEARD, False),
    ]


# --- against a naive model ------------------------------------------------------------------------


class Model(World):
    """A model that remembers the answers of the current incarnations, and applies the rules
    literally."""

    def __init__(self) -> None:
        self.strategy = "Balanced"
        self.told: dict[int, int] = {}
        super().__init__()
        power_cut(self)
        self.silent = {1, 2, 3}

    def answer(self, question: Question, **fields: Any) -> None:
        super().answer(question, **fields)
        self.told[question.broker_id] = self.logs[question.broker_id][1]

    def choice(self, *, overdue: bool) -> int | None:
        """Return the leader that the current answers allow, or None."""
        partition = self.partition("t")
        alive = [r for r in partition.replicas if not self.image.cluster.brokers[r].fenced]
        told = {r: self.told[r] for r in alive if r in self.told}
        needed = [2, 3] if self.strategy == "Balanced" else []  # as `power_cut` leaves it
        if (
            self.strategy == "None"
            or not told
            or any(r not in told for r in needed)
            or (not overdue and len(told) < len(alive))
        ):
            return None
        return next(r for r in alive if told.get(r) == max(told.values()))

    def do(self, event: str, about: Any) -> None:
        if event in ("fence", "restart") and not self.image.cluster.brokers[about].fenced:
            self.fence_only(about)
        if event == "unfence" and self.image.cluster.brokers[about].fenced:
            self.unfence(about)
        elif event == "restart":
            self.told.pop(about, None)
            self.lives[about] += 1
            self.register(about, life=self.lives[about])
            self.turns()
        elif event == "speak":
            self.silent.discard(about)
            self.wait(5_000)  # longer than any retry backoff
        elif event == "hush":
            self.silent.add(about)
        elif event == "strategy":
            self.strategy = about
            self.configure("unclean.recovery.strategy", about)
        elif event == "wait":
            self.wait(about)


BROKERS = st.sampled_from([1, 2, 3])
EVENTS = st.one_of(
    st.tuples(st.sampled_from(["fence", "restart", "hush"]), BROKERS),
    st.tuples(st.sampled_from(["unfence", "speak"]), BROKERS),
    st.tuples(st.sampled_from(["unfence", "speak"]), BROKERS),
    st.tuples(st.just("strategy"), st.sampled_from(["Aggressive", "Balanced", "None"])),
    st.tuples(st.just("wait"), st.sampled_from([10, 5_000, TIMEOUT_MS])),
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(events=st.lists(EVENTS, min_size=4, max_size=15), ends=st.tuples(*[st.integers(0, 3)] * 3))
def test_whatever_happens_the_leader_is_the_choice_of_the_rules(
    events: list[tuple[str, Any]], ends: tuple[int, int, int]
) -> None:
    w = Model()
    w.logs = {broker: (0, end) for broker, end in enumerate(ends, 1)}
    for event, about in events:
        w.do(event, about)
        if w.leader != NO_LEADER:
            assert w.leader == w.choice(overdue=True)
            return
        assert w.choice(overdue=False) is None
        assert w.counts.running == (w.waits() or (None,))[0:1].count(WaitsFor.ANSWERS)


def test_new_controller_queries_topics_in_name_order() -> None:
    """The image keeps topics in an order that differs from process to process."""
    world = World()
    names = [f"t{n:02}" for n in range(20, 0, -1)]
    for name in names:
        world.create_topic(name, [1, 2, 3])
    world.silent = {1, 2, 3}
    power_cut(world).happen(Deactivated())
    world.back(1, 2, 3)
    world.asked.clear()
    world.happen(Activated())
    world.turns()
    asked = [topic_id for topic_id, _ in world.asked[0].partitions]
    assert asked == [world.image.topics.by_name[name].id for name in ["t", *sorted(names)]]


def test_recovery_ignores_changes_of_partitions_with_a_leader() -> None:
    world = World()
    topic_id, index = world.key()
    world.apply([PartitionChangeRecord(topic_id=topic_id, partition_id=index, isr=[1, 2])])
    assert world.due_ms is None


def test_partition_with_a_leader_elected_during_the_scan_is_not_queried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new controller searches in slices: a partition may get a leader before its request is
    sent."""
    monkeypatch.setattr(recovery_waiting, "SCANNED_PER_TURN", 1)
    world = World()
    world.create_topic("a", [1, 2, 3])
    world.down(1, 2, 3)
    world.happen(Activated())
    world.turn()
    topic_id, index = world.key()
    world.apply([PartitionChangeRecord(topic_id=topic_id, partition_id=index, leader=1, isr=[1])])
    world.turns()
    assert world.recovery.waits_for(world.image.topics.by_name["a"].id, 0) is not None
    assert world.waits() is None


# --- laws of whatever happens -------------------------------------------------------------------

ASK_MS = 1.0
SILENCE_MS = 5_000.0
KINDS = ("good", "good", "older", "newer", "error", "other life", "impossible", "silent")
TIMEOUTS_MS = (1, 1_000, 20_000, TIMEOUT_MS)


class Laws(World):
    """Two partitions with an exact model of their leaders, and brokers that each answer in their
    own way.

    An answer is valid, at an older or a newer leader epoch, an error, of another incarnation,
    impossible, or missing. All times are those of due events.
    """

    def __init__(self) -> None:
        self.strategy, self.managed = BALANCED, True
        self.timeout_ms = float(TIMEOUT_MS)
        self.kinds: dict[tuple[int, int], str] = {}
        self.told: dict[tuple[int, int], tuple[int, LogFact]] = {}
        self.newer: dict[int, int] = {}
        self.queried: dict[int, set[int]] = {}
        """Brokers with a query about a partition, by its index."""
        self.began_ms: dict[int, float] = {}
        self.decidable_ms: dict[int, float] = {}
        self.elected: dict[int, int] = {}
        self.useful = 0
        self.under_way: list[tuple[float, Question, bool]] = []
        super().__init__(2)
        power_cut(self)
        self.silent = {1, 2, 3}
        self.log_ends = {1: 10, 2: 20, 3: 15}

    # --- the model ----------------------------------------------------------------------------

    def verdict(self, index: int) -> Verdict | None:
        if not self.managed:
            return None
        partition, now_ms = self.partition("t", index), self.monotonic_ms
        brokers = self.image.cluster.brokers
        alive = tuple(r for r in partition.replicas if not brokers[r].fenced)
        answers = {}
        for broker_id in alive:
            life, fact = self.told.get((index, broker_id), (-2, None))
            current = life == brokers[broker_id].epoch
            if fact is not None and current and fact.leader_epoch == partition.leader_epoch:
                answers[broker_id] = fact
        began_ms = self.began_ms.get(index)
        overdue = began_ms is not None and now_ms >= began_ms + self.timeout_ms
        known = partition.last_known_elr
        standing = Standing(partition.replicas, alive, partition.isr, partition.elr, known, 2)
        return judge(self.strategy, standing, answers, overdue=overdue)

    def look(self) -> None:
        """Compare the machine with the model, and check both against the laws."""
        now_ms = self.monotonic_ms
        for index in {0, 1} - set(self.elected):
            verdict = self.verdict(index)
            leader = self.partition("t", index).leader
            if leader != NO_LEADER:
                assert verdict is not None and verdict.winner == leader, "P21: another winner"
                self.elected[index] = leader
            elif verdict is not None and verdict.winner is not None:
                since_ms = self.decidable_ms.setdefault(index, now_ms)
                assert now_ms - since_ms <= TOGETHER_MS, "P21: decidable, and nobody looks"
            else:
                self.decidable_ms.pop(index, None)
                self.queried[index] = set() if verdict is None else {*verdict.queried}
                if verdict is None or not verdict.needed:
                    self.began_ms.pop(index, None)
                else:
                    self.began_ms.setdefault(index, now_ms)
                self.look_at_waits(index, verdict)

    def look_at_waits(self, index: int, verdict: Verdict | None) -> None:
        now_ms, due_ms = self.monotonic_ms, self.due_ms
        began_ms = self.began_ms.get(index)
        if began_ms is not None and began_ms + self.timeout_ms > now_ms:
            assert due_ms is not None, "a timeout that is in force has no timer"
            assert due_ms <= began_ms + self.timeout_ms, "a timeout that is in force is late"
        for broker_id in () if verdict is None else verdict.queried:
            asked = [q for _, q, _ in self.under_way if q.broker_id == broker_id]
            assert asked or (due_ms is not None and due_ms <= now_ms + PAUSE_MAX_MS), (
                f"the answer of broker {broker_id} is missing, and is not requested"
            )

    # --- what happens -------------------------------------------------------------------------

    def settle(self) -> None:
        self.turns()
        for question in self.pending:
            kinds = {self.kind(question.broker_id, index) for _, index in question.partitions}
            is_silent = "silent" in kinds
            after_ms = SILENCE_MS if is_silent else ASK_MS
            self.under_way.append((self.monotonic_ms + after_ms, question, is_silent))
        self.pending = []
        self.look()

    def pass_time(self, by_ms: float) -> None:
        end_ms, useful, before = self.monotonic_ms + by_ms, self.useful, len(self.asked)
        steps = 0
        while True:
            steps += 1
            assert steps < 3_000, "it does not come to rest"
            due_ms = self.due_ms
            times = [time for time, _, _ in self.under_way] + ([] if due_ms is None else [due_ms])
            self.advance(max(0.0, min([*times, end_ms]) - self.monotonic_ms))
            ready = [one for one in self.under_way if one[0] <= self.monotonic_ms]
            self.under_way = [one for one in self.under_way if one[0] > self.monotonic_ms]
            for _, question, is_silent in ready:
                if is_silent:
                    self.happen(Unanswered(question))
                else:
                    self.reply(question)
            self.settle()
            if self.monotonic_ms >= end_ms:
                break
        for broker_id in (1, 2, 3):
            asked = sum(question.broker_id == broker_id for question in self.asked[before:])
            most = 10 + by_ms / 1_000 + 10 * (self.useful - useful)
            assert asked <= most, f"broker {broker_id} was asked {asked} times in {by_ms} ms"

    def reply(self, question: Question) -> None:
        broker = self.image.cluster.brokers[question.broker_id]
        kinds = {key[1]: self.kind(question.broker_id, key[1]) for key in question.partitions}
        response = self.response(question)
        if "other life" in kinds.values():
            response.broker_epoch = broker.epoch - 1
            self.happen(Answered(question, response, self.view()))
            return
        for topic in response.topic_partition_log_info_list:
            for info in topic.partition_log_info:
                self.fill(broker.id, info, kinds[info.partition])
        self.happen(Answered(question, response, self.view()))

    def fill(self, broker_id: int, info: Any, kind: str) -> None:
        index, epoch = info.partition, self.partition("t", info.partition).leader_epoch
        info.log_end_offset = self.log_ends[broker_id]
        if kind == "older":
            info.current_leader_epoch = epoch - 1
        elif kind == "newer":
            info.current_leader_epoch = epoch + 1
            if epoch + 1 > self.newer.get(index, -1) and index not in self.elected:
                self.newer[index] = epoch + 1
                for replica in (1, 2, 3):
                    self.told.pop((index, replica), None)
        elif kind == "error":
            info.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        elif kind == "impossible":
            info.last_written_leader_epoch, info.log_end_offset = epoch + 1, 2**63 - 1
        else:
            self.useful += 1
            if broker_id not in self.queried.get(index, ()):
                return  # The query was dropped while it was under way.
            self.queried[index].discard(broker_id)
            fact = LogFact(0, info.log_end_offset, epoch, self.monotonic_ms)
            life = self.image.cluster.brokers[broker_id].epoch
            self.told[index, broker_id] = life, fact

    def kind(self, broker_id: int, index: int) -> str:
        return self.kinds.get((broker_id, index), "good")

    def set_timeout(self, timeout_ms: int) -> None:
        self.timeout_ms = float(timeout_ms)
        self.configure("unclean.recovery.timeout.ms", str(timeout_ms))

    def set_strategy(self, strategy: RecoveryStrategy) -> None:
        if strategy is not self.strategy:
            self.began_ms.clear()
        self.strategy = strategy
        self.configure("unclean.recovery.strategy", strategy.value)

    def set_manager(self, managed: bool) -> None:
        self.managed = managed
        self.configure("unclean.recovery.manager.enabled", str(managed).lower())

    def raise_leader_epoch(self, index: int) -> None:
        if index not in self.elected:
            topic_id = self.key()[0]
            self.apply(
                [PartitionChangeRecord(topic_id=topic_id, partition_id=index, leader=NO_LEADER)]
            )

    def change_broker(self, event: str, broker_id: int) -> None:
        """Fence, unfence or restart a broker; one that leads is left unchanged."""
        if broker_id in self.elected.values():
            return
        fenced = self.image.cluster.brokers[broker_id].fenced
        if event == "unfence" and fenced:
            self.unfence(broker_id)
        elif event != "unfence" and not fenced:
            self.fence_only(broker_id)
        if event == "restart":
            self.lives[broker_id] += 1
            self.register(broker_id, life=self.lives[broker_id])

    def do(self, event: str, about: Any) -> None:
        changes = {
            "kind": self.kinds.update,
            "wait": self.pass_time,
            "timeout": self.set_timeout,
            "strategy": self.set_strategy,
            "manager": self.set_manager,
            "epoch": self.raise_leader_epoch,
        }
        if event in changes:
            changes[event](about)
        else:
            self.change_broker(event, about)
        self.settle()


LAW_EVENTS = st.one_of(
    st.tuples(
        st.just("kind"),
        st.dictionaries(st.tuples(BROKERS, st.integers(0, 1)), st.sampled_from(KINDS), min_size=1),
    ),
    st.tuples(st.just("unfence"), BROKERS),
    st.tuples(st.just("unfence"), BROKERS),
    st.tuples(st.sampled_from(["fence", "restart"]), BROKERS),
    st.tuples(st.just("timeout"), st.sampled_from(TIMEOUTS_MS)),
    st.tuples(st.just("strategy"), st.sampled_from([AGGRESSIVE, BALANCED, NONE])),
    st.tuples(st.just("manager"), st.sampled_from([True, True, False])),
    st.tuples(st.just("epoch"), st.integers(0, 1)),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 1.0, 60.0, 3_000.0, 25_000.0, TIMEOUT_MS])),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 1.0, 60.0, 3_000.0, 25_000.0, TIMEOUT_MS])),
)


SLOW_EVENTS = st.one_of(
    st.tuples(st.just("timeout"), st.sampled_from([1_000, 8_000, 30_000])),
    st.tuples(
        st.just("kind"),
        st.dictionaries(
            st.tuples(BROKERS, st.integers(0, 1)),
            st.sampled_from(["good", "error", "older", "silent"]),
            min_size=1,
        ),
    ),
    st.tuples(st.just("wait"), st.sampled_from([3_000.0, 6_000.0, 31_000.0])),
    st.tuples(st.just("epoch"), st.integers(0, 1)),
)


def end_well(w: Laws) -> None:
    """Let all brokers live and answer: all partitions get a leader soon."""
    w.kinds.clear()
    for event, about in (("manager", True), ("strategy", BALANCED)):
        w.do(event, about)
    for broker_id in (1, 2, 3):
        w.do("unfence", broker_id)
    w.pass_time(SILENCE_MS + 2 * PAUSE_MAX_MS + TOGETHER_MS)
    assert set(w.elected) == {0, 1}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(events=st.lists(LAW_EVENTS, min_size=4, max_size=20))
def test_p21_waiting_partition_has_each_missing_answer_and_timeout_scheduled(
    events: list[tuple[str, Any]],
) -> None:
    """P21: while a partition waits, every missing answer and timeout is scheduled.

    - Each missing answer is under way or due.
    - Each timeout in force has a timer.
    - No broker is queried without a backoff.
    - A partition that can be decided is decided.
    """
    w = Laws()
    w.settle()
    for event, about in events:
        w.do(event, about)
    end_well(w)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    strategy=st.sampled_from([AGGRESSIVE, BALANCED]),
    first=st.tuples(*[st.sampled_from(["good", "error", "older", "silent"])] * 3),
    events=st.lists(SLOW_EVENTS, min_size=3, max_size=10),
)
def test_a_timeout_that_changes_after_it_ran_out_is_kept_whatever_happens(
    strategy: RecoveryStrategy, first: tuple[str, ...], events: list[tuple[str, Any]]
) -> None:
    """P21: the laws hold, too, where all brokers live and few answer; the timeout decides."""
    w = Laws()
    w.settle()
    w.do("strategy", strategy)
    w.do("timeout", 8_000)
    w.kinds = {(b, index): kind for b, kind in enumerate(first, 1) for index in (0, 1)}
    for broker_id in (1, 2, 3):
        w.do("unfence", broker_id)
    for event, about in events:
        w.do(event, about)
    end_well(w)
