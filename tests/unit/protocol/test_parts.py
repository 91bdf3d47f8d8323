"""Requests split into parts that name each element once, with one merged response."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.parts import cut, failed, join

TOPIC = ListOffsetsRequest.ListOffsetsTopic
PARTITION = ListOffsetsRequest.ListOffsetsPartition
PATH = ("topics", "partitions")


def topics(*sizes: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=7,
        topics=[
            TOPIC(name=f"t{n}", partitions=[PARTITION(partition_index=i) for i in range(size)])
            for n, size in enumerate(sizes)
        ],
    )


def named(request: ListOffsetsRequest) -> list[tuple[str, int]]:
    return [(t.name, p.partition_index) for t in request.topics for p in t.partitions]


@pytest.mark.parametrize("sizes", [(), (0,), (5,), (1,) * 40, (100,), (3, 50, 2, 1, 30)])
def test_parts_name_every_element_once_and_in_order(sizes: tuple[int, ...]) -> None:
    request = topics(*sizes)
    parts = list(cut(request, PATH, 10))
    assert [each for part in parts for each in named(part.request)] == named(request)
    assert all(part.request.replica_id == 7 for part in parts)
    assert all(part.weight <= 10 for part in parts)


def test_cutting_leaves_the_request_as_it_was() -> None:
    request = topics(30, 30)
    list(cut(request, PATH, 10))
    assert request == topics(30, 30)


def test_three_levels_of_lists_are_cut_at_the_innermost() -> None:
    group = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id="g",
        topics=[
            OffsetFetchRequest.OffsetFetchRequestTopics(
                name="t", partition_indexes=list(range(1_000))
            )
        ],
    )
    request = OffsetFetchRequest(groups=[group])
    parts = list(cut(request, ("groups", "topics", "partition_indexes"), 100))
    found = [i for p in parts for i in p.request.groups[0].topics[0].partition_indexes]
    assert found == list(range(1_000))
    assert all(part.weight <= 100 for part in parts)


def test_long_strings_fill_a_part_sooner() -> None:
    request = FindCoordinatorRequest(coordinator_keys=["x" * 2_560] * 100)
    parts = list(cut(request, ("coordinator_keys",), 22))
    assert [len(part.request.coordinator_keys) for part in parts] == [2] * 50


def test_the_load_of_an_element_fills_a_part_sooner() -> None:
    request = FindCoordinatorRequest(coordinator_keys=["a", "bb", "c", "d"])
    parts = list(cut(request, ("coordinator_keys",), 2, load_of=len))
    assert [part.request.coordinator_keys for part in parts] == [["a"], ["bb"], ["c", "d"]]
    assert [part.load for part in parts] == [1, 2, 2]


def answer(*topics: tuple[str, range], **fields: Any) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=name,
                partitions=[
                    ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=index)
                    for index in indexes
                ],
            )
            for name, indexes in topics
        ],
        **fields,
    )


def test_answers_to_the_halves_of_a_topic_become_one() -> None:
    whole = answer(("a", range(3)), ("b", range(4)))
    join(whole, answer(("b", range(4, 9)), ("c", range(2))), 1)
    assert whole == answer(("a", range(3)), ("b", range(9)), ("c", range(2)))


def test_a_joined_answer_has_the_longest_throttle_time() -> None:
    whole = answer(throttle_time_ms=5)
    join(whole, answer(throttle_time_ms=9), 1)
    join(whole, answer(throttle_time_ms=2), 1)
    assert whole.throttle_time_ms == 9


def test_lists_around_those_of_the_request_are_joined_by_name() -> None:
    def dirs(topic: str, free: int) -> DescribeLogDirsResponse:
        log_dir = DescribeLogDirsResponse.DescribeLogDirsResult(
            log_dir="/data",
            usable_bytes=free,
            topics=[DescribeLogDirsResponse.DescribeLogDirsTopic(name=topic)],
        )
        return DescribeLogDirsResponse(results=[log_dir])

    whole = dirs("a", 10)
    join(whole, dirs("b", 9), 2)
    (result,) = whole.results
    assert [topic.name for topic in result.topics] == ["a", "b"]


def test_a_response_with_an_error_of_its_own_has_failed() -> None:
    assert failed(DescribeLogDirsResponse(error_code=41))
    assert not failed(DescribeLogDirsResponse())
    assert not failed(answer())
