"""The table of unclean recovery: each stage of a partition with each event."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, get_args

import pytest

from controller.configs.topic_settings import RecoveryStrategy
from controller.elections.recovery import TRANSITIONS
from controller.elections.recovery_events import (
    Activated,
    Answered,
    Appended,
    Committed,
    Deactivated,
    Due,
    Event,
    Requested,
    Unanswered,
    Withdrawn,
)
from controller.elections.recovery_questions import Question
from controller.elections.recovery_requests import RecoveryRequest
from metalog.image.values import NO_LEADER
from protocol.metadata import ConfigRecord, FenceBrokerRecord, NoOpRecord, PartitionChangeRecord
from tests.unit.controller.elections.recovery_world import TIMEOUT_MS, World, power_cut

BROKERS = (1, 2, 3)
STAGES = ("not listed", "waiting", "querying", "complete")


class Seen(NamedTuple):
    """The stage of partition 0, and whether it is queued for an examination."""

    stage: str
    queued: bool


class Staged(World):
    """Partition 0 in a stage, nothing queued, next to partition 1 without a single answer."""

    def __init__(self, stage: str) -> None:
        super().__init__(2)
        self.silent = {*BROKERS}
        if stage != "not listed":
            power_cut(self)
        if stage in ("querying", "complete"):
            for broker_id in BROKERS:
                self.unfence(broker_id)
        if stage == "complete":
            for broker_id in BROKERS:
                self.answer_first(broker_id)
            self.turns()
        assert self.seen() == Seen(stage, queued=False)

    def seen(self) -> Seen:
        recovery, key = self.recovery, self.key()
        waiting = recovery._waiting
        stage = "not listed"
        if key in waiting:
            stage = "querying" if recovery._timers.is_running(key) else "waiting"
            stage = "complete" if key in recovery._grace else stage
        return Seen(stage, key in waiting._queue)

    def question(self, broker_id: int) -> Question:
        """Return the broker's first query; without a query, one that was never sent."""
        asked = [question for question in self.asked if question.broker_id == broker_id]
        return asked[0] if asked else Question(broker_id, (self.key(0), self.key(1)))

    def answer_first(self, broker_id: int, **fields: int) -> None:
        """Let a broker answer about partition 0 only."""
        question = self.question(broker_id)
        response = self.response(question, **fields)
        for topic in response.topic_partition_log_info_list:
            topic.partition_log_info = [i for i in topic.partition_log_info if i.partition == 0]
        self.happen(Answered(question, response, self.view()))

    def request(self) -> RecoveryRequest:
        return RecoveryRequest(RecoveryStrategy.BALANCED, [self.key()], self.monotonic_ms + 1e6)


def record(leader: int) -> Callable[[Staged], None]:
    def append(w: Staged) -> None:
        topic_id, index = w.key()
        change = PartitionChangeRecord(topic_id=topic_id, partition_id=index, leader=leader)
        w.happen(Appended([change]))

    return append


def broker_change(w: Staged) -> None:
    w.happen(Appended([FenceBrokerRecord(id=1, epoch=w.image.cluster.brokers[1].epoch)]))


def setting(w: Staged) -> None:
    name = "unclean.recovery.strategy"
    w.happen(Appended([ConfigRecord(resource_type=2, resource_name="t", name=name, value=None)]))


def other_record(w: Staged) -> None:
    w.happen(Appended([NoOpRecord()]))


def newer_epoch(w: Staged) -> None:
    w.answer_first(2, current_leader_epoch=w.partition("t").leader_epoch + 1)


def older_epoch(w: Staged) -> None:
    w.answer_first(2, current_leader_epoch=w.partition("t").leader_epoch - 1)


def last_answers(w: Staged) -> None:
    for broker_id in BROKERS:
        w.answer_first(broker_id)


def late_answer(w: Staged) -> None:
    w.wait(TIMEOUT_MS)
    w.answer_first(2)


def withdrawal(w: Staged) -> None:
    """Withdraw a request after its partition was examined."""
    request = w.request()
    if w.seen().stage != "not listed":
        w.happen(Requested(request))
        w.turns()
        assert not w.seen().queued
    w.happen(Withdrawn(request))


def activation(w: Staged) -> None:
    w.happen(Activated())
    assert w.due_ms == w.monotonic_ms


SAME, QUEUED = "same", "same, queued"
TABLE: dict[Callable[[Staged], None], tuple[str | None, ...]] = {
    record(1): ("not listed",) * 4,
    record(NO_LEADER): (QUEUED,) * 4,
    broker_change: (SAME, QUEUED, QUEUED, QUEUED),
    setting: (SAME, QUEUED, QUEUED, QUEUED),
    other_record: (SAME,) * 4,
    lambda w: w.answer_first(2): (SAME, SAME, SAME, SAME),
    last_answers: (SAME, SAME, "complete", SAME),
    late_answer: (SAME, SAME, QUEUED, None),
    older_epoch: (SAME,) * 4,
    newer_epoch: (SAME, QUEUED, QUEUED, QUEUED),
    lambda w: w.happen(Unanswered(w.question(2))): (SAME,) * 4,  # type: ignore[dict-item]
    lambda w: w.happen(Requested(w.request())): (  # type: ignore[dict-item]
        "waiting, queued",
        QUEUED,
        QUEUED,
        QUEUED,
    ),
    # A partition with all answers is elected when it is examined for a request.
    withdrawal: (SAME, QUEUED, QUEUED, None),
    lambda w: w.happen(Committed(())): (SAME,) * 4,  # type: ignore[dict-item]
    lambda w: w.happen(Due(w.view())): (SAME,) * 4,  # type: ignore[dict-item]
    lambda w: w.happen(Deactivated()): ("not listed",) * 4,  # type: ignore[dict-item]
    activation: ("not listed",) * 4,
}
"""The stage after each event, by the stage before it; None: the two exclude each other."""

CASES = [
    pytest.param(stage, event, after, id=f"{stage}-{number}")
    for number, (event, row) in enumerate(TABLE.items())
    for stage, after in zip(STAGES, row, strict=True)
    if after is not None
]


@pytest.mark.parametrize(("stage", "event", "after"), CASES)
def test_recovery_event_in_a_stage_leads_to_the_stage_of_the_table(
    stage: str, event: Callable[[Staged], None], after: str
) -> None:
    """P21: an event queues each partition that it can change, and no other one."""
    w = Staged(stage)
    event(w)
    assert w.seen() == Seen(after.split(",")[0].replace("same", stage), "queued" in after)


def test_recovery_has_a_transition_for_each_event() -> None:
    assert set(TRANSITIONS) == set(get_args(Event))


@pytest.mark.parametrize("stage", STAGES)
def test_recovery_step_without_news_keeps_the_due_time(stage: str) -> None:
    """A caller may step at any time: an event without news changes nothing."""
    w = Staged(stage)
    before = w.due_ms
    for event in (Appended(()), Committed(()), Appended([NoOpRecord()])):
        assert w.happen(event)._replace(due_ms=None) == ((), (), (), (), (), None)
        assert w.due_ms == before
