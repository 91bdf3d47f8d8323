"""ExplainElection (key 10000), version 0: why a partition has its current leader, or none.

Behaviour: for each partition it returns the sets of KIP-966, the strategy with its configuration
key, and each candidate in election order. It also returns what the recovery waits for and since
when. It changes nothing. Only the active controller answers: it alone knows the last heartbeats and
the brokers' answers about their logs.

Served only to our own tools and nodes: Kafka has no such API. Brokers forward it. Nodes recognise a
controller of their kind by it (`protocol/private_numbers.py`).

Errors per partition: UNKNOWN_TOPIC_OR_PARTITION, REQUEST_LIMIT_REACHED (beyond 100 partitions). For
all: NOT_CONTROLLER.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from controller.decision import ControllerView, Decision
from controller.elections.context import ElectionContext
from controller.elections.explanation import Candidate, Explanation, explain_partition
from controller.writer.recovery import Recovery
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.explain_election import (
    PARTITIONS_PER_REQUEST_MAX,
    ExplainElectionRequest,
    ExplainElectionResponse,
)
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from protocol.transport.own_names import EVERY_KIND

VERSION = 0

_Explained = ExplainElectionResponse.ExplainedPartition
_Candidate = ExplainElectionResponse.Candidate


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`, for our own tools and nodes only."""

    def handle(_context: RequestContext, request: ExplainElectionRequest) -> Reply:
        return controller.submit(
            lambda view: Decision((), explained(view, request, controller.recovery)),
            lambda partitions: ExplainElectionResponse(partitions=partitions),
            fail=_failed,
        )

    table.register(
        ApiKey.EXPLAIN_ELECTION,
        handle,
        min_version=VERSION,
        max_version=VERSION,
        own=EVERY_KIND,
        own_only=True,
    )


def explained(
    view: ControllerView, request: ExplainElectionRequest, recovery: Recovery
) -> list[_Explained]:
    """Explain each partition of the request, in its order; those beyond the limit get an error."""
    elections = ElectionContext(view)
    named = _named(request)
    found = [
        _partition(elections, topic, index, recovery)
        for topic, index in islice(named, PARTITIONS_PER_REQUEST_MAX)
    ]
    found += [
        _Explained(topic=topic, partition=index, error_code=ErrorCode.REQUEST_LIMIT_REACHED)
        for topic, index in named
    ]
    return found


def _named(request: ExplainElectionRequest) -> Iterator[tuple[str, int]]:
    for topic in request.topics:
        for index in topic.partitions:
            yield topic.name, index


def _failed(error: ApiError) -> ExplainElectionResponse:
    return ExplainElectionResponse(error_code=error.code, error_message=error.text)


def _partition(elections: ElectionContext, name: str, index: int, recovery: Recovery) -> _Explained:
    topic = elections.view.image.topics.by_name.get(name)
    if topic is None or index not in topic.partitions:
        return _Explained(
            topic=name, partition=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    waiting = recovery.waits_for(topic.id, index)
    return _message(
        name, index, explain_partition(elections, topic, index, recovery.facts, waiting)
    )


def _message(name: str, index: int, explanation: Explanation) -> _Explained:
    partition, waiting = explanation.partition, explanation.waiting
    return _Explained(
        topic=name,
        partition=index,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        elr=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        strategy=explanation.strategy.strategy.value,
        strategy_key=explanation.strategy.key,
        strategy_place=explanation.strategy.source.value,
        manager=explanation.managed,
        waits=None if waiting is None else waiting.waits.value,
        waits_for=[] if waiting is None else list(waiting.brokers),
        since_ms=-1 if explanation.since_ms is None else explanation.since_ms,
        candidates=[_candidate(candidate) for candidate in explanation.candidates],
        local_log_ms=explanation.thresholds.span_ms,
        local_log_bytes=explanation.thresholds.size_bytes,
    )


def _candidate(candidate: Candidate) -> _Candidate:
    answer, local_log = candidate.answer, candidate.local_log
    return _Candidate(
        broker=candidate.broker_id,
        sets=list(candidate.sets),
        eligible=candidate.eligible,
        reason=candidate.reason,
        answer=None
        if answer is None
        else ExplainElectionResponse.Answer(
            last_epoch=answer.last_epoch, end_offset=answer.end_offset, age_ms=answer.age_ms
        ),
        local_log=None
        if local_log is None
        else ExplainElectionResponse.LocalLog(
            enough=local_log.verdict.enough,
            reason=local_log.verdict.value,
            start_ms=local_log.stats.start_timestamp_ms,
            size_bytes=local_log.stats.size_bytes,
            age_ms=local_log.age_ms,
        ),
    )
