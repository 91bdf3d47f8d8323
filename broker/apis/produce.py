"""Produce (key 0), versions 3-13.

Behaviour: each partition's batch is checked and appended at once, in the order of the request;
the answer waits (acks=-1) until every appended partition's high watermark has passed its batch,
and (any acks but 0) until a flush that `flush.messages` asks for is done. acks=0 is never
answered: an error can only be told by closing the connection.

Versions: 7 allows zstd; 8 adds record errors; 10 tells the new leader (KIP-951); 13 names topics
by id. Versions 0-2 are offered to clients that insist on seeing them and served to none.

Authorisation: none so far. Nobody may write to internal topics, and since transactions are not
built a transactional id is refused as one that is not authorised.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.apis.leader_hints import LeaderHints
from broker.context import BrokerContext
from broker.replication.flush_driver import flush_due
from broker.replication.partition import Partition
from broker.replication.replica_manager import ALL_REPLICAS
from broker.replication.waits import ProduceWait
from protocol.api_keys import ApiKey
from protocol.batch.validate import RecordsRefused
from protocol.errors import ApiError, ErrorCode
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.topic_name import INTERNAL_TOPICS
from protocol.transport.dispatch import (
    Body,
    CloseConnection,
    HandlerTable,
    Reply,
    RequestContext,
)

if TYPE_CHECKING:
    import asyncio

MIN_VERSION: Final = 3
MAX_VERSION: Final = 13
TOPIC_IDS_SINCE: Final = 13

_Result = ProduceResponse.PartitionProduceResponse
_TopicResult = ProduceResponse.TopicProduceResponse
_NO_LEADER: Final = ProduceResponse.LeaderIdAndEpoch()
_NO_RECORD_ERRORS: Final[list[ProduceResponse.BatchIndexAndErrorMessage]] = []


class _Unfinished(NamedTuple):
    """An appended batch that is not safe enough yet for the acks asked for."""

    partition: Partition
    result: ProduceResponse.PartitionProduceResponse
    end_offset: int
    unflushed: bool


class _Flush:
    """A result's wait for the disk, beside its wait for the high watermark."""

    __slots__ = ("result",)

    def __init__(self, result: ProduceResponse.PartitionProduceResponse) -> None:
        self.result = result


def register(table: HandlerTable, broker: BrokerContext) -> None:
    api = ProduceApi(broker)
    table.register(
        ApiKey.PRODUCE,
        api.handle,
        min_version=MIN_VERSION,
        max_version=MAX_VERSION,
        advertise_from=0,
    )


class ProduceApi:
    """The handler; a plain function per request, which may return a future."""

    def __init__(self, broker: BrokerContext) -> None:
        self._replicas = broker.replicas
        self._waits = broker.waits
        self._clock = broker.clock
        self._flusher = broker.flusher
        self._hints = LeaderHints(broker.metadata)

    def handle(self, context: RequestContext, request: ProduceRequest) -> Reply:
        acks = request.acks
        refusal = _refusal(request)
        unfinished: list[_Unfinished] = []
        response = ProduceResponse(
            responses=[
                self._topic(context, request, topic, refusal, unfinished)
                for topic in request.topic_data
            ]
        )
        if acks == 0:
            _close_on_error(response)
            return None
        if not unfinished:
            return self._finished(context, response)
        return self._wait(context, request, response, unfinished)

    def _topic(
        self,
        context: RequestContext,
        request: ProduceRequest,
        topic: ProduceRequest.TopicProduceData,
        refusal: ErrorCode | None,
        unfinished: list[_Unfinished],
    ) -> _TopicResult:
        by_id = context.api_version >= TOPIC_IDS_SINCE
        replicas = self._replicas
        results = []
        for data in _each_once(topic.partition_data):
            try:
                if refusal is not None:
                    raise ApiError(refusal, None)
                partition = (
                    replicas.find_by_id(topic.topic_id, data.index)
                    if by_id
                    else replicas.find(topic.name, data.index)
                )
                results.append(self._append(context, request, partition, data, unfinished))
            except ApiError as error:
                results.append(_failure(data.index, error))
        return _TopicResult(name=topic.name, topic_id=topic.topic_id, partition_responses=results)

    def _append(
        self,
        context: RequestContext,
        request: ProduceRequest,
        partition: Partition,
        data: ProduceRequest.PartitionProduceData,
        unfinished: list[_Unfinished],
    ) -> _Result:
        counters = partition.counters
        counters.produces += 1
        records = data.records
        try:
            if partition.topic in INTERNAL_TOPICS:
                raise ApiError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, "Only brokers write to internal topics"
                )
            assert not isinstance(records, list)
            appended = self._replicas.append(
                partition,
                records,
                api_version=context.api_version,
                required_acks=request.acks,
                transactional=request.transactional_id is not None,
                now_ms=self._clock.now_ms(),
            )
        except ApiError:
            counters.failed_produces += 1
            counters.bytes_rejected += len(records) if records is not None else 0
            raise
        info = appended.info
        result = _Result(
            index=data.index,
            base_offset=info.first_offset,
            log_append_time_ms=appended.log_append_time_ms,
            log_start_offset=partition.log.log_start_offset,
            record_errors=_NO_RECORD_ERRORS,
            current_leader=_NO_LEADER,
        )
        end_offset = info.last_offset + 1
        uncommitted = request.acks == ALL_REPLICAS and partition.log.high_watermark < end_offset
        unflushed = flush_due(partition)
        if uncommitted or unflushed:
            unfinished.append(_Unfinished(partition, result, end_offset, unflushed))
        return result

    def _wait(
        self,
        context: RequestContext,
        request: ProduceRequest,
        response: ProduceResponse,
        unfinished: list[_Unfinished],
    ) -> Reply:
        future: asyncio.Future[Body] = self._waits.new_future()

        def answer() -> None:
            self._waits.purgatory.remove(wait)
            if not future.done():
                future.set_result(self._finished(context, response))

        wait = ProduceWait(_fail, answer)
        all_replicas = request.acks == ALL_REPLICAS
        for partition, result, end_offset, unflushed in unfinished:
            if all_replicas and partition.wait_for_commit(end_offset, wait, result):
                wait.pending.append(result)
            if unflushed:
                slot = _Flush(result)
                wait.pending.append(slot)
                self._flusher.wait(partition, wait, slot)
        if not wait.pending:
            return self._finished(context, response)
        deadline_ms = self._clock.monotonic_ms() + max(0, request.timeout_ms)
        self._waits.hold(wait, deadline_ms, context.connection)
        return future

    def _finished(self, context: RequestContext, response: ProduceResponse) -> ProduceResponse:
        if context.api_version >= 10:
            self._hints.add_to_produce(context, response)
        return response


def _each_once(
    partitions: list[ProduceRequest.PartitionProduceData],
) -> Iterable[ProduceRequest.PartitionProduceData]:
    """A partition named twice is served once, by its last entry (B29)."""
    if len(partitions) == 1:
        return partitions
    return {data.index: data for data in partitions}.values()


def _refusal(request: ProduceRequest) -> ErrorCode | None:
    """Why nothing of this request is appended, if so."""
    if request.acks not in (ALL_REPLICAS, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS
    if request.transactional_id is not None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return None


def _failure(index: int, error: ApiError) -> _Result:
    result = _Result(
        index=index, error_code=error.code, base_offset=-1, error_message=error.message
    )
    if isinstance(error, RecordsRefused):
        result.record_errors = [
            ProduceResponse.BatchIndexAndErrorMessage(
                batch_index=record.batch_index, batch_index_error_message=record.message
            )
            for record in error.record_errors
        ]
    return result


def _fail(slot: _Result | _Flush, error: ErrorCode) -> None:
    """An appended batch that did not become safe: the client must not rely on its offset."""
    result = slot.result if isinstance(slot, _Flush) else slot
    result.error_code = error
    result.base_offset = -1
    result.log_append_time_ms = -1
    result.log_start_offset = -1


def _close_on_error(response: ProduceResponse) -> None:
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.error_code:
                raise CloseConnection(
                    f"Produce with acks=0 failed: {ErrorCode(result.error_code).name} "
                    f"for partition {result.index} of {topic.name or topic.topic_id.hex()}"
                )
