"""Produce (key 0), versions 3-13.

Behaviour: each partition's batch is checked and appended at once, in the order of the request. With
acks=-1 the answer waits until every appended partition's high watermark has passed its batch. With
any acks but 0 it waits for a flush that `flush.messages` requires. acks=0 is never answered: an
error can only be reported by closing the connection. A big batch whose records must be read is
validated in a worker; later batches of its producer in the partition wait behind it. A batch for a
partition that this broker follows waits a short time: it may arrive before the image that makes
this broker the leader. The same applies if a batch reaches a new leader before its producer's
earlier batches.

Versions: 7 allows zstd; 8 adds record errors; 10 names the new leader (KIP-951); 13 names topics by
id. Versions 0-2 are advertised for clients that require them, but not served.

Authorisation: none so far. No client may write to internal topics. Since transactions are not
implemented, a transactional id is refused as not authorised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from broker.apis.leader_hints import LeaderHints
from broker.apis.produce_reply import Acknowledgements
from broker.context import BrokerContext
from broker.replication.partition.partition import Partition
from broker.replication.partition.role import ReplicaRole
from broker.replication.replicas.appender import ALL_REPLICAS
from broker.replication.waiting.waits import ProduceWait
from protocol.api_keys import ApiKey
from protocol.batch.validate import RecordsRefused
from protocol.errors import ApiError, ErrorCode
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.schema import Buffer
from protocol.topic_name import INTERNAL_TOPICS
from protocol.transport.dispatch import (
    Body,
    CloseConnection,
    HandlerTable,
    Reply,
    RequestContext,
)
from protocol.transport.long_requests import WEIGHT_MAX, encoded_in_slices
from runtime.slices import SharedSlices
from storage.log.append import AppendInfo
from storage.log.errors import LogFailed

if TYPE_CHECKING:
    from broker.replication.appends.lines import HeldAppend

MIN_VERSION: Final = 3
MAX_VERSION: Final = 13
LEADERS_SINCE: Final = 10
TOPIC_IDS_SINCE: Final = 13
LONG: Final = 250
"""A request with more batches is appended in several event-loop iterations."""
STEPS_PER_BATCH: Final = 4
"""Weight of a batch in a slice, so that a slice has that number of batches."""

_Result = ProduceResponse.PartitionProduceResponse
_TopicResult = ProduceResponse.TopicProduceResponse
_Appended: TypeAlias = "AppendInfo | asyncio.Future[HeldAppend]"
_NO_LEADER: Final = ProduceResponse.LeaderIdAndEpoch()
_NO_RECORD_ERRORS: Final[list[ProduceResponse.BatchIndexAndErrorMessage]] = []


class _Unfinished(NamedTuple):
    """An appended batch that does not meet the requested acks yet."""

    partition: Partition
    result: ProduceResponse.PartitionProduceResponse
    end_offset: int
    unflushed: bool
    leader_epoch: int
    """The leader epoch of the append."""


class _Late(NamedTuple):
    """A batch that waits before its append (`HeldBatches`)."""

    partition: Partition
    result: ProduceResponse.PartitionProduceResponse
    size_bytes: int
    done: asyncio.Future[HeldAppend]


class _Flush:
    """A result's wait for the disk, in addition to its wait for the high watermark."""

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
        self.replicas = broker.replicas
        self.waits = broker.waits
        self.clock = broker.clock
        self.flusher = broker.flusher
        self.held_batches = broker.held_batches
        self.hints = LeaderHints(broker.metadata, broker.settings)
        self.quotas = broker.quotas
        self.slices = broker.slices
        self.acknowledgements = Acknowledgements()

    def handle(self, context: RequestContext, request: ProduceRequest) -> Reply:
        topics = request.topic_data
        if len(topics) == 1 and len(topics[0].partition_data) == 1:
            reply = self._one_batch(context, request, topics[0], topics[0].partition_data[0])
            if reply is not None:
                return reply
            return _Produce(self, context, request).start()
        if len(topics) > LONG or sum([len(topic.partition_data) for topic in topics]) > LONG:
            return self._long(context, request)
        return _Produce(self, context, request).start()

    def _long(self, context: RequestContext, request: ProduceRequest) -> Reply:
        """More batches than are appended in one event-loop iteration. The connection is held, so
        those that its producer sends next stay behind them."""
        named = 0
        for topic in request.topic_data:
            named += 1
            for data in topic.partition_data:
                named += 1
                records = data.records
                if records is not None:
                    # The frame lies in a buffer that the next read overwrites.
                    data.records = bytes(cast("Buffer", records))
            if named > 2 * WEIGHT_MAX:
                raise CloseConnection(
                    f"Produce contains more than {WEIGHT_MAX} topics and partitions"
                )
        served: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        context.connection.hold_until(served)
        context.connection.keep(context.request_bytes, served)
        return _Produce(self, context, request).in_slices(self.slices, served)

    def _one_batch(
        self,
        context: RequestContext,
        request: ProduceRequest,
        topic: ProduceRequest.TopicProduceData,
        data: ProduceRequest.PartitionProduceData,
    ) -> Reply:
        """Take the short path of nearly all requests: one batch, whose answer at once is a frame
        that only needs its numbers.

        Returns None without any effect for requests that are refused before their partition is
        known. A test compares the two paths.
        """
        acks, version = request.acks, context.api_version
        if (acks != ALL_REPLICAS and acks != 1) or request.transactional_id is not None:
            return None
        name = topic.topic_id if version >= TOPIC_IDS_SINCE else topic.name
        partition = self.replicas.known(name, data.index)
        if partition is None:
            return None
        try:
            appended = self.append(partition, data.records, version, acks, transactional=False)
        except ApiError as error:
            return _Produce(self, context, request).refused(topic, data, error)
        if type(appended) is AppendInfo and not self.quotas.active:
            bounds = partition.log.bounds
            done = (
                bounds.high_watermark > appended.last_offset
                if acks == ALL_REPLICAS
                else not partition.flush_due
            )
            if done:
                return self.acknowledgements.reply(
                    version, name, data.index, appended, bounds.log_start_offset
                )
        return _Produce(self, context, request).go_on(topic, data, partition, appended)

    def append(
        self,
        partition: Partition,
        records: Buffer | list[Any] | None,
        api_version: int,
        acks: int,
        *,
        transactional: bool,
    ) -> _Appended:
        """Check a batch, and append it now or later.

        `transactional`: the request has a transactional id.

        Returns:
            The appended batch; or a future for a batch that waits (`HeldBatches`).

        Raises:
            ApiError: INVALID_TOPIC_EXCEPTION for an internal topic; of `Appender.check` and
                `append`. The failure is counted.
        """
        partition.counters.produces += 1
        assert not isinstance(records, list)
        held = self.held_batches
        try:
            if partition.topic in INTERNAL_TOPICS:
                raise ApiError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, "Only brokers write to internal topics"
                )
            if (
                partition.role is not ReplicaRole.LEADER
                and records is not None
                and held.expects_image(partition, len(records))
            ):
                return held.hold(partition, records, api_version, acks, transactional=transactional)
            header = self.replicas.check(
                partition,
                records,
                api_version=api_version,
                required_acks=acks,
                transactional=transactional,
            )
            assert records is not None
            if held.must_queue(partition, header, len(records)):
                return held.queue(
                    partition, records, header, api_version, acks, transactional=transactional
                )
            try:
                info = self.replicas.append(partition, records, header, self.clock.now_ms())
            except ApiError as error:
                if error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or (
                    not held.expects_predecessors(partition, header, len(records))
                ):
                    raise
                return held.hold(partition, records, api_version, acks, transactional=transactional)
        except ApiError:
            _count_failure(partition, len(records) if records is not None else 0)
            raise
        if held.waiting:
            held.follow_up(partition, header)
        return info


class _Produce:
    """One request from its arrival to its answer."""

    __slots__ = ("_api", "_context", "_failed", "_late", "_request", "_response", "_unfinished")

    def __init__(self, api: ProduceApi, context: RequestContext, request: ProduceRequest) -> None:
        self._api = api
        self._context = context
        self._request = request
        self._response = ProduceResponse()
        self._unfinished: list[_Unfinished] = []
        self._late: list[_Late] = []
        self._failed = False

    def start(self) -> Reply:
        """Append all batches that can be appended now. Returns the answer, or a future for it."""
        refusal = _refusal(self._request)
        for topic in _each_topic_once(self._request.topic_data):
            datas = _each_once(topic.partition_data)
            self._add_topic(topic, [self._result(topic, data, refusal) for data in datas])
        if self._late:
            # With acks=0, too, it takes its place among the waiting replies: a client without acks
            # must not send faster than its batches are validated.
            return self._finish_late()
        return self._answer()

    async def in_slices(self, slices: SharedSlices, served: asyncio.Future[None]) -> Body:
        """Do the same as `start`, with pauses between the batches."""
        refusal = _refusal(self._request)
        try:
            await slices.turn()
            merged: dict[tuple[str, bytes], ProduceRequest.TopicProduceData] = {}
            for topic in self._request.topic_data:
                first = merged.setdefault((topic.name, topic.topic_id), topic)
                if first is not topic:
                    first.partition_data += topic.partition_data
                await slices.breathe()
            for topic in merged.values():
                answered = _TopicResult(name=topic.name, topic_id=topic.topic_id)
                self._response.responses.append(answered)
                for data in _each_once(topic.partition_data):
                    answered.partition_responses.append(self._result(topic, data, refusal))
                    await slices.breathe(STEPS_PER_BATCH)
        finally:
            if not served.done():
                served.set_result(None)
        body = await self._finish_late()
        if not isinstance(body, ProduceResponse):
            return body
        await slices.turn()
        return await encoded_in_slices(slices, body, self._context.api_version)

    def go_on(
        self,
        topic: ProduceRequest.TopicProduceData,
        data: ProduceRequest.PartitionProduceData,
        partition: Partition,
        appended: _Appended,
    ) -> Reply:
        """Continue a request whose only batch has passed its checks but is not answered yet."""
        result = _new_result(data.index)
        self._add_topic(topic, [result])
        self._note(partition, result, data, appended)
        return self._finish_late() if self._late else self._answer()

    def refused(
        self,
        topic: ProduceRequest.TopicProduceData,
        data: ProduceRequest.PartitionProduceData,
        error: ApiError,
    ) -> Reply:
        """Answer a request whose only batch was refused."""
        self._failed = True
        self._add_topic(topic, [_failure(data.index, error)])
        return self._answer()

    def _add_topic(self, topic: ProduceRequest.TopicProduceData, results: list[_Result]) -> None:
        self._response.responses.append(
            _TopicResult(name=topic.name, topic_id=topic.topic_id, partition_responses=results)
        )

    def _answer(self) -> Reply:
        if self._request.acks == 0:
            _close_on_error(self._response)
            return None
        return self._wait() if self._unfinished else self._finished()

    # --- appending ----------------------------------------------------------------------------

    def _result(
        self,
        topic: ProduceRequest.TopicProduceData,
        data: ProduceRequest.PartitionProduceData,
        refusal: ErrorCode | None,
    ) -> _Result:
        api, version = self._api, self._context.api_version
        try:
            if refusal is not None:
                raise ApiError(refusal, None)
            partition = (
                api.replicas.find_by_id(topic.topic_id, data.index)
                if version >= TOPIC_IDS_SINCE
                else api.replicas.find(topic.name, data.index)
            )
            appended = api.append(
                partition,
                data.records,
                version,
                self._request.acks,
                transactional=self._request.transactional_id is not None,
            )
        except ApiError as error:
            self._failed = True
            return _failure(data.index, error)
        result = _new_result(data.index)
        self._note(partition, result, data, appended)
        return result

    def _note(
        self,
        partition: Partition,
        result: _Result,
        data: ProduceRequest.PartitionProduceData,
        appended: _Appended,
    ) -> None:
        """Note a batch that is appended, or was copied and is appended when its future is done."""
        if isinstance(appended, AppendInfo):
            self._appended(partition, result, appended, partition.leader_epoch)
            return
        size_bytes = len(cast("Buffer", data.records))
        self._context.connection.keep(size_bytes, appended)
        self._late.append(_Late(partition, result, size_bytes, appended))

    def _appended(
        self, partition: Partition, result: _Result, info: AppendInfo, leader_epoch: int
    ) -> None:
        log = partition.log
        result.base_offset = info.first_offset
        result.log_append_time_ms = info.log_append_time_ms
        result.log_start_offset = log.log_start_offset
        end_offset = info.last_offset + 1
        all_replicas = self._request.acks == ALL_REPLICAS
        uncommitted = all_replicas and (
            log.high_watermark < end_offset or not partition.leads_in(leader_epoch)
        )
        # Committed records have been flushed, if the topic requires that.
        unflushed = not all_replicas and partition.flush_due
        if uncommitted or unflushed:
            self._unfinished.append(
                _Unfinished(partition, result, end_offset, unflushed, leader_epoch)
            )

    async def _finish_late(self) -> Body:
        for partition, result, size_bytes, done in self._late:
            try:
                self._appended(partition, result, *await done)
            except ApiError as error:
                _count_failure(partition, size_bytes)
                self._failed = True
                _fill_failure(result, error)
        try:
            reply = self._answer()
        except CloseConnection as close:
            # With acks=0 the transport has dropped this request: no other code would close the
            # connection.
            self._context.connection.close(str(close))
            return None
        return await reply if isinstance(reply, Awaitable) else reply

    # --- waiting and answering ----------------------------------------------------------------

    def _wait(self) -> ProduceResponse | asyncio.Future[Body]:
        waits, request = self._api.waits, self._request
        future: asyncio.Future[Body] = waits.new_future()

        def answer(wait: ProduceWait) -> None:
            waits.purgatory.remove(wait)
            if not future.done():
                future.set_result(self._finished())

        wait = ProduceWait(self._fail, answer, future.cancel)
        all_replicas = request.acks == ALL_REPLICAS
        for partition, result, end_offset, unflushed, leader_epoch in self._unfinished:
            if all_replicas and not partition.leads_in(leader_epoch):
                # The next leader, even this broker again, may have another batch at that offset.
                self._fail(result, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif all_replicas and partition.wait_for_commit(end_offset, wait, result):
                wait.pending.append(result)
            if unflushed:
                slot = _Flush(result)
                wait.pending.append(slot)
                self._api.flusher.wait(partition, wait, slot)
        if not wait.pending:
            return self._finished()
        deadline_ms = self._api.clock.monotonic_ms() + max(0, request.timeout_ms)
        waits.hold(wait, deadline_ms, self._context.connection)
        return future

    def _fail(self, slot: _Result | _Flush, error: ErrorCode) -> None:
        """Set the error of an appended batch that did not meet its acks: the client must not rely
        on its offset."""
        self._failed = True
        result = slot.result if isinstance(slot, _Flush) else slot
        result.error_code = error
        result.base_offset = -1
        result.log_append_time_ms = -1
        result.log_start_offset = -1

    def _finished(self) -> ProduceResponse:
        if self._failed and self._context.api_version >= LEADERS_SINCE:
            self._api.hints.add_to_produce(self._context, self._response)
        return self._response


def _new_result(index: int) -> _Result:
    return _Result(index=index, record_errors=_NO_RECORD_ERRORS, current_leader=_NO_LEADER)


def _count_failure(partition: Partition, size_bytes: int) -> None:
    partition.counters.failed_produces += 1
    partition.counters.bytes_rejected += size_bytes


def _each_topic_once(
    topics: list[ProduceRequest.TopicProduceData],
) -> Iterable[ProduceRequest.TopicProduceData]:
    """Merge topics named twice, whose partitions would be appended twice otherwise."""
    if len(topics) == 1:
        return topics
    merged: dict[tuple[str, bytes], ProduceRequest.TopicProduceData] = {}
    for topic in topics:
        first = merged.setdefault((topic.name, topic.topic_id), topic)
        if first is not topic:
            first.partition_data += topic.partition_data
    return merged.values()


def _each_once(
    partitions: list[ProduceRequest.PartitionProduceData],
) -> Iterable[ProduceRequest.PartitionProduceData]:
    """Return each partition once; of one named twice, the last entry counts (B29)."""
    if len(partitions) == 1:
        return partitions
    return {data.index: data for data in partitions}.values()


def _refusal(request: ProduceRequest) -> ErrorCode | None:
    """Return the error that refuses the whole request, or None."""
    if request.acks not in (ALL_REPLICAS, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS
    if request.transactional_id is not None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return None


def _failure(index: int, error: ApiError) -> _Result:
    result = _Result(index=index)
    _fill_failure(result, error)
    return result


def _fill_failure(result: _Result, error: ApiError) -> None:
    result.error_code = error.code
    result.base_offset = -1
    if not isinstance(error, LogFailed):
        # Its message names files of this broker, which has logged it.
        result.error_message = error.message
    if isinstance(error, RecordsRefused):
        result.record_errors = [
            ProduceResponse.BatchIndexAndErrorMessage(
                batch_index=record.batch_index, batch_index_error_message=record.message
            )
            for record in error.record_errors
        ]


def _close_on_error(response: ProduceResponse) -> None:
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.error_code:
                raise CloseConnection(
                    f"Produce with acks=0 failed: {ErrorCode(result.error_code).name} "
                    f"for partition {result.index} of {topic.name or topic.topic_id.hex()}"
                )
