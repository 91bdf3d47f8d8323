"""The queries of unclean recovery: the partitions in each broker's request, and its time."""

from __future__ import annotations

from controller.elections.recovery_questions import (
    PAUSE_FIRST_MS,
    PAUSE_MAX_MS,
    Question,
    Questions,
)

TOPIC = b"t" * 16


def keys(*indexes: int) -> tuple[tuple[bytes, int], ...]:
    return tuple((TOPIC, index) for index in indexes)


def wanting(brokers: int, *indexes: int) -> Questions:
    questions = Questions()
    for broker_id in range(1, brokers + 1):
        for key in keys(*indexes):
            questions.want(broker_id, key)
    return questions


def test_one_request_with_a_thousand_partitions_per_broker_is_under_way() -> None:
    questions = wanting(2, *range(2500))
    first = questions.take(0.0)
    assert [(q.broker_id, len(q.partitions)) for q in first] == [(1, 1000), (2, 1000)]
    assert questions.take(0.0) == []
    assert questions.due_ms() is None
    for key in first[0].partitions:
        questions.drop(1, key)
    questions.settle(first[0], 5.0, useful=True)
    (second,) = questions.take(5.0)
    assert (second.broker_id, second.partitions[0], len(second.partitions)) == (
        1,
        (TOPIC, 1000),
        1000,
    )


def test_unanswered_partitions_are_requested_after_the_others() -> None:
    questions = wanting(1, *range(1002))
    (first,) = questions.take(0.0)
    questions.drop(1, (TOPIC, 3))
    questions.settle(first, 0.0, useful=True)
    (second,) = questions.take(0.0)
    assert second.partitions[:3] == keys(1000, 1001, 0)
    assert (TOPIC, 3) not in second.partitions


def test_a_broker_that_brings_nothing_is_left_alone_for_longer_and_longer() -> None:
    questions = wanting(1, 0)
    now, pauses = 0.0, []
    for _ in range(9):
        (question,) = questions.take(now)
        questions.settle(question, now, useful=False)
        due = questions.due_ms()
        assert due is not None and questions.take(due - 1) == []
        pauses.append(due - now)
        now = due
    assert pauses[:3] == [PAUSE_FIRST_MS, 2 * PAUSE_FIRST_MS, 4 * PAUSE_FIRST_MS]
    assert pauses[-1] == PAUSE_MAX_MS
    (question,) = questions.take(now)
    questions.settle(question, now, useful=True)
    assert questions.due_ms() == now
    (question,) = questions.take(now)
    questions.settle(question, now, useful=False)
    assert questions.due_ms() == now + PAUSE_FIRST_MS
    questions.encourage()
    assert questions.take(now) == [Question(1, keys(0))]


def test_recovery_questions_are_for_brokers_with_wanted_partitions() -> None:
    questions = wanting(1, 0)
    assert questions.are_for(1) and not questions.are_for(2)
    (question,) = questions.take(0.0)
    questions.drop(1, (TOPIC, 0))
    assert not questions.are_for(1)
    questions.want(1, (TOPIC, 1))
    assert questions.take(0.0) == []  # still only one request
    assert questions.settle(question, 0.0, useful=True)
    assert questions.take(0.0) == [Question(1, keys(1))]


def test_an_answer_of_before_starting_over_is_nobodys() -> None:
    questions = wanting(1, 0)
    (old,) = questions.take(0.0)
    questions.clear()
    questions.want(1, (TOPIC, 0))
    (new,) = questions.take(0.0)
    assert not questions.settle(old, 0.0, useful=True)
    assert questions.settle(new, 0.0, useful=True)
