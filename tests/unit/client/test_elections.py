"""Requested elections: their requests, and the outcome of each partition."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from client.elections import PARTITIONS_MAX, ElectionRequests, ElectionResult, ElectionType
from client.errors import Refused
from client.leaders import TopicPartition
from protocol.errors import ErrorCode
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse


def named(request: ElectLeadersRequest | None) -> list[TopicPartition]:
    assert request is not None
    assert request.topic_partitions is not None
    return [(one.topic, index) for one in request.topic_partitions for index in one.partitions]


def answer(
    partitions: Iterable[TopicPartition], number: int = 0, message: str | None = None
) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        replica_election_results=[
            ElectLeadersResponse.ReplicaElectionResult(
                topic=topic,
                partition_result=[
                    ElectLeadersResponse.PartitionResult(
                        partition_id=index, error_code=number, error_message=message
                    )
                ],
            )
            for topic, index in partitions
        ]
    )


def test_election_requests_split_long_list_and_repeat_no_partition():
    every = [("t", index) for index in range(PARTITIONS_MAX + 2)]
    elections = ElectionRequests(ElectionType.UNCLEAN, [*every, ("t", 0)])
    first = elections.request(1234.5)
    assert first is not None
    assert (first.election_type, first.timeout_ms) == (1, 1234)
    assert named(first) == every[:PARTITIONS_MAX]
    elections.take(answer(every[:PARTITIONS_MAX]))
    assert named(elections.request(1)) == every[PARTITIONS_MAX:]
    elections.take(answer(every[PARTITIONS_MAX:]))
    assert elections.request(1) is None
    assert list(elections.results) == every


def test_election_requests_repeat_partitions_over_limit_while_others_succeed():
    elections = ElectionRequests(ElectionType.UNCLEAN, [("t", index) for index in range(4)])
    some = answer([("t", 0)])
    some.replica_election_results += answer(
        [("t", index) for index in (1, 2, 3)], ErrorCode.REQUEST_LIMIT_REACHED
    ).replica_election_results
    elections.take(some)
    assert named(elections.request(1)) == [("t", 1), ("t", 2), ("t", 3)]
    none = answer([("t", index) for index in (1, 2, 3)], ErrorCode.REQUEST_LIMIT_REACHED)
    elections.take(none)
    assert elections.request(1) is None
    assert [one.number for one in elections.results.values()] == [0, 10000, 10000, 10000]


def test_a_designation_names_a_broker_for_each_partition():
    partitions = [("t", 1), ("u", 0), ("t", 0)]
    elections = ElectionRequests(ElectionType.DESIGNATION, partitions, {("t", 1): 7, ("t", 0): 8})
    request = elections.request(1)
    assert request is not None
    assert [
        (one.topic, one.partitions, one.desired_leaders) for one in request.topic_partitions or ()
    ] == [("t", [1, 0], [7, 8]), ("u", [0], [-1])]
    other = ElectionRequests(ElectionType.LONGEST_LOG_BALANCED, partitions, {("t", 1): 7})
    request = other.request(1)
    assert request is not None
    assert [one.desired_leaders for one in request.topic_partitions or ()] == [None, None]


def test_types_that_kafka_does_not_have_need_a_version_that_has_them():
    assert [one.version for one in ElectionType] == [None, None, 3, 3, 3]


def test_a_partition_that_the_answer_leaves_out_has_failed():
    elections = ElectionRequests(ElectionType.PREFERRED, [("t", 0), ("t", 1)])
    elections.take(answer([("t", 1), ("other", 0)]))
    assert elections.request(1) is None
    assert elections.results["t", 0].failed
    assert elections.results["t", 1] == ElectionResult(ErrorCode.NONE, None)
    assert set(elections.results) == {("t", 0), ("t", 1)}


def test_a_request_that_is_refused_as_a_whole_is_an_error():
    elections = ElectionRequests(ElectionType.PREFERRED, [("t", 0)])
    with pytest.raises(Refused, match="election: INVALID_REQUEST"):
        elections.take(ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST))
    # A response with this error on every partition contains each outcome.
    late = answer([("t", 0)], ErrorCode.REQUEST_TIMED_OUT)
    late.error_code = ErrorCode.REQUEST_TIMED_OUT
    elections.take(late)
    assert elections.results["t", 0].failed


def test_results_have_a_reason_in_words():
    assert not ElectionResult(ErrorCode.ELECTION_NOT_NEEDED).failed
    refused = ElectionResult(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "broker 1 is fenced")
    assert refused.reason == "PREFERRED_LEADER_NOT_AVAILABLE: broker 1 is fenced"
    foreign = ElectionResult(31_000)
    assert (foreign.failed, foreign.error) == (True, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert foreign.reason == "error 31000"
