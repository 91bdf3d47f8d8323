"""Shell: An idempotent producer, whose retries cause no duplicates (KIP-98 without transactions).

Every partition has a lane: up to five batches in flight, in order, each with the producer ID, an
epoch and a sequence number. After a failure the lane waits until no batch is in flight, finds the
leader again and resends the unresolved batches unchanged. The broker recognizes those that it has.
The broker checks the order of each partition only, so lanes do not wait for each other.

A batch that expires leaves a gap in the sequence, after which the broker would refuse all further
batches. So the lane continues in a new epoch, from sequence 0. Batches that may have been written
in the old epoch fail as unknown, because resending them in the new epoch could write them twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Self

from client.cluster_client import REQUEST_TIMEOUT_MS, ClusterClient, Produced
from client.errors import ClientError
from client.leaders import TopicPartition
from client.retries import RETRY_WAIT_MS, retrying
from protocol.batch.records import Producer, Record, build_batch
from protocol.compression import Codec
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.produce import ProduceResponse
from protocol.transport.client import DEFAULT_TIMEOUT_MS, Connection

INFLIGHT_MAX = 5
"""The number of a producer's last batches that a broker remembers."""
ANSWER_GRACE_MS = 1_000.0
LOOK_AGAIN_MS_MAX = 2_000.0
EPOCH_MAX = 2**15 - 1
SEQUENCES = 2**31

BEFORE_APPEND = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Errors that a broker returns before it appends anything.

NOT_LEADER_OR_FOLLOWER is not one of them: a leader that is deposed while acks=all waits returns it,
too.
"""
_START_OVER = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


class NotProduced(ClientError):
    """The producer has abandoned a batch. `certain`: it is in no log; otherwise that is unknown."""

    def __init__(self, cause: Exception, *, certain: bool) -> None:
        super().__init__(f"{cause}" or type(cause).__name__)
        self.cause = cause
        self.certain = certain

    @property
    def name(self) -> str:
        """Kafka's name of the last error, or the type of the connection's error."""
        if isinstance(self.cause, ApiError):
            return self.cause.code.name
        return type(self.cause).__name__


class _Batch:
    """Records to be sent. `data` is None until the batch has a sequence number."""

    __slots__ = ("certain", "data", "deadline_s", "error", "future", "records")

    def __init__(
        self, records: Sequence[Record], deadline_s: float, future: asyncio.Future[Produced]
    ) -> None:
        self.records = records
        self.deadline_s = deadline_s
        self.future = future
        self.data: bytes | None = None
        self.certain = True
        self.error: Exception = ApiError(ErrorCode.REQUEST_TIMED_OUT)

    def give_up(self) -> None:
        if not self.future.done():
            self.future.set_exception(NotProduced(self.error, certain=self.certain))


class _Lane:
    """The batches of one partition.

    `window` has batches with a sequence number and no response; `waiting` has those without either.
    """

    def __init__(self, partition: TopicPartition, producer_id: int, epoch: int) -> None:
        self.partition = partition
        self.producer = Producer(producer_id, epoch, 0)
        self.window: deque[_Batch] = deque()
        self.waiting: deque[_Batch] = deque()
        self.task: asyncio.Task[None] | None = None

    def take(self, compression: Codec) -> _Batch | None:
        """Assign a sequence number to the next waiting batch and return it; None if the window
        is full.
        """
        if not self.waiting or len(self.window) >= INFLIGHT_MAX:
            return None
        batch = self.waiting.popleft()
        batch.data = build_batch(batch.records, compression=compression, producer=self.producer)
        sequence = (self.producer.sequence + len(batch.records)) % SEQUENCES
        self.producer = self.producer._replace(sequence=sequence)
        self.window.append(batch)
        return batch

    def start_over(self) -> None:
        """Continue in a new epoch: fail batches that may have been written, requeue the others."""
        self.producer = self.producer._replace(epoch=self.producer.epoch + 1, sequence=0)
        for batch in reversed(self.window):
            if batch.future.done():
                continue
            if batch.certain:
                batch.data = None
                self.waiting.appendleft(batch)
            else:
                batch.give_up()
        self.window.clear()

    def expire(self, now_s: float) -> None:
        """Fail batches whose delivery timeout has passed."""
        if any(batch.deadline_s <= now_s for batch in self.window):
            for batch in self.window:
                if batch.deadline_s <= now_s:
                    batch.give_up()
            self.start_over()
        for batch in self.waiting:
            if batch.deadline_s <= now_s:
                batch.give_up()
        self.waiting = deque(batch for batch in self.waiting if not batch.future.done())


class IdempotentProducer:
    """Sender of batches through a ClusterClient.

    Call `start` first and `close` at the end, or use `async with`.

    Args:
        acks: -1 (all) or 1; with 0 there would be no response to base retries on.
        delivery_timeout_ms: how long to retry a batch.
        request_timeout_ms: how long to wait for one response; also the broker's limit for acks=all.
    """

    def __init__(
        self,
        client: ClusterClient,
        *,
        acks: int = -1,
        delivery_timeout_ms: float = 120_000.0,
        request_timeout_ms: float = REQUEST_TIMEOUT_MS,
        compression: Codec = Codec.NONE,
    ) -> None:
        if acks not in (-1, 1):
            raise ValueError(f"acks {acks}: an idempotent producer needs -1 or 1")
        self.client = client
        self.producer_id = -1
        self.starts_over = 0
        """How often a broker did not know batches that it had acknowledged, or refused a batch."""
        self._epoch = 0
        self._acks = acks
        self._delivery_s = delivery_timeout_ms / 1000.0
        self._request_ms = request_timeout_ms
        self._compression = compression
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self, timeout_ms: float = DEFAULT_TIMEOUT_MS) -> None:
        """Request a producer ID. Raises ApiError, OSError."""

        async def attempt(left_ms: float) -> InitProducerIdResponse:
            request = InitProducerIdRequest(transactional_id=None)
            answer = await self.client.request_any(request, left_ms)
            if answer.error_code:
                raise ApiError(ErrorCode(answer.error_code))
            return answer

        answer = await retrying(timeout_ms, attempt)
        self.producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    def send(
        self, topic: str, partition: int, records: Sequence[Record]
    ) -> asyncio.Future[Produced]:
        """Append one batch; return a future of its position, or of NotProduced.

        Batches of a partition are in its log in the order of their sends, each once. The base
        offset is -1 for a batch that the broker recognizes as a duplicate without remembering its
        offset. Timestamps are in ms since 1970; -1 means none.
        """
        future: asyncio.Future[Produced] = self._loop.create_future()
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = _Lane((topic, partition), self.producer_id, self._epoch)
            self._lanes[topic, partition] = lane
        lane.waiting.append(_Batch(records, self._loop.time() + self._delivery_s, future))
        if lane.task is None or lane.task.done():
            lane.task = self._loop.create_task(self._drive(lane), name=f"send-{topic}-{partition}")
        return future

    async def close(self) -> None:
        """Stop and fail all unresolved batches. The ClusterClient stays open."""
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for lane in self._lanes.values():
            for batch in [*lane.window, *lane.waiting]:
                batch.give_up()

    # --- one lane ------------------------------------------------------------------------------

    async def _drive(self, lane: _Lane) -> None:
        """Send the batches of a lane until none is left."""
        topic, partition = lane.partition
        while lane.window or lane.waiting:
            if lane.producer.epoch > EPOCH_MAX:
                await self._fresh_id(lane)
                continue
            before = self.client.cache.leaders.get(lane.partition)
            try:
                if before is None:
                    await self.client.metadata([topic], self._request_ms)
                connection = await self.client.leader(topic, partition, self._request_ms)
            except (ApiError, OSError, ProtocolError) as error:
                failure: Exception | None = error
            else:
                failure = await self._pump(lane, connection)
            if failure is None:
                continue
            for batch in lane.window or lane.waiting:
                if batch.data is None:
                    batch.error = failure
            if self.client.cache.leaders.get(lane.partition) == before:
                await self._look_again(topic, -1 if before is None else before.node_id)
            lane.expire(self._loop.time())

    async def _look_again(self, topic: str, doubting: int) -> None:
        """After a failure that named no newer leader: wait, then request from other brokers the
        leader.
        """
        await asyncio.sleep(RETRY_WAIT_MS / 1000.0)
        try:
            wait_ms = min(self._request_ms, LOOK_AGAIN_MS_MAX)
            await self.client.metadata([topic], wait_ms, doubting=doubting)
        except (ApiError, OSError, ProtocolError):
            # No broker answers now; the lane retries, or its batches expire.
            return

    async def _fresh_id(self, lane: _Lane) -> None:
        """Request a new producer ID, because the epochs of the current one are used up."""
        try:
            await self.start(self._request_ms)
        except (ApiError, OSError, ProtocolError):
            await asyncio.sleep(RETRY_WAIT_MS / 1000.0)
            lane.expire(self._loop.time())
        else:
            lane.producer = Producer(self.producer_id, self._epoch, 0)

    async def _pump(self, lane: _Lane, connection: Connection) -> Exception | None:
        """Send batches and handle responses.

        Returns None once all are done, or the first failure once no batch is in flight any more.
        """
        failure: Exception | None = None
        place_lost = False
        again = deque(lane.window)
        flying: deque[tuple[_Batch, asyncio.Future[ProduceResponse]]] = deque()
        while True:
            while failure is None and len(flying) < INFLIGHT_MAX:
                batch = again.popleft() if again else lane.take(self._compression)
                if batch is None:
                    break
                try:
                    flying.append((batch, self._send(lane, connection, batch)))
                except (ApiError, OSError) as error:
                    failure = error
            if not flying:
                break
            batch, future = flying.popleft()
            refused = await self._answer(lane, batch, future)
            if refused is not None and failure is None:
                failure = refused
                place_lost = self._is_place_lost(batch, refused)
        if place_lost:
            self.starts_over += 1
            lane.start_over()
        return failure

    def _send(
        self, lane: _Lane, connection: Connection, batch: _Batch
    ) -> asyncio.Future[ProduceResponse]:
        assert batch.data is not None
        request, version = self.client.produce_request(
            connection, *lane.partition, batch.data, self._acks, self._request_ms
        )
        # The broker's timeout is shorter, so that its response arrives before ours expires.
        return connection.send(request, self._request_ms + ANSWER_GRACE_MS, version)

    async def _answer(
        self, lane: _Lane, batch: _Batch, future: asyncio.Future[ProduceResponse]
    ) -> Exception | None:
        """Handle the response to one batch; return the error if the batch is unresolved."""
        try:
            produced = self.client.produced(*lane.partition, await future)
        except ApiError as error:
            if error.code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                batch.certain = batch.certain and error.code in BEFORE_APPEND
                batch.error = error
                return error
            produced = Produced(-1, -1, -1)
        except (OSError, ProtocolError) as error:
            batch.certain = False
            batch.error = error
            return error
        lane.window.remove(batch)
        if not batch.future.done():
            batch.future.set_result(produced)
        return None

    def _is_place_lost(self, batch: _Batch, error: Exception) -> bool:
        """Return whether the lane cannot continue in its epoch, from the first failure of a pump.

        All earlier batches are resolved, so a sequence error does not mean that one is late: the
        broker has lost batches that it acknowledged. A batch that is refused for its content leaves
        a gap.
        """
        if not isinstance(error, ApiError) or error.code.retriable:
            return False
        if error.code not in _START_OVER:
            batch.give_up()
        return True
