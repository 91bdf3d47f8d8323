"""Shell: The clients of a chaos run: producers, consumers, and the final read.

All use kraftbox's own client; every producer and consumer has connections of its own. A producer
sends small batches to all partitions in turn at a steady rate. A partition that accepts no batches
does not delay the others. Consumers read every partition from its start. Errors become entries of
the history, never exceptions.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from client.addresses import Address
from client.admin import Admin, NewTopic
from client.cluster_client import EARLIEST, LATEST, ClusterClient, Produced
from client.producer import IdempotentProducer
from client.retries import retrying
from client.visible_records import visible_records
from kraftbox.chaos.history import Topic, value_bytes, value_id, value_of
from kraftbox.chaos.ledger import Ledger
from protocol.batch.records import Record
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.ids import ZERO_UUID
from protocol.transport.client import SOFTWARE_VERSION
from protocol.transport.own_names import TOOL_SOFTWARE_NAME

CLIENT = f"{TOOL_SOFTWARE_NAME} {SOFTWARE_VERSION}"
TROUBLE = (ApiError, OSError, ProtocolError)
PAUSE_S = 0.05
BATCH_RECORDS_MAX = 8
CONNECT_MS_MAX = 10_000.0
PREPARE_MS_MAX = 30_000.0


class Load(NamedTuple):
    """The load of the clients. `records_per_s` is the total of all producers."""

    topic: str = "chaos"
    partitions: int = 6
    replication_factor: int = 3
    min_insync_replicas: int = 2
    producers: int = 3
    consumers: int = 2
    records_per_s: int = 300
    record_bytes: int = 100
    waiting_max: int = 10
    """Maximum pending batches of one producer for one partition."""
    request_timeout_ms: float = 5_000.0
    delivery_timeout_ms: float = 30_000.0
    topic_settings: tuple[tuple[str, str], ...] = ()


class Workload:
    """The clients. Call `prepare`, `start`, then after the faults `stop`, `read_all`, `close`."""

    def __init__(
        self, bootstrap: Sequence[Address], ledger: Ledger, load: Load, rng: random.Random
    ) -> None:
        self.ledger = ledger
        self.load = load
        self.client_trouble: dict[str, int] = defaultdict(int)
        """Numbers of the consumers' errors by name: information, not a verdict."""
        self.starts_over = 0
        self._bootstrap = list(bootstrap)
        self._rng = rng
        self._topic = 0
        self._stopping = asyncio.Event()
        self._producers: list[asyncio.Task[None]] = []
        self._consumers: list[asyncio.Task[None]] = []
        self._clients: list[ClusterClient] = []

    async def prepare(self) -> None:
        """Create the topic once enough brokers are registered.

        Wait until all partitions have leaders.

        Raises ApiError, OSError.
        """
        load = self.load
        client = await ClusterClient.connect(self._bootstrap, "chaos-admin", PREPARE_MS_MAX)
        self._clients.append(client)
        settings = {
            **dict(load.topic_settings),
            "min.insync.replicas": str(load.min_insync_replicas),
        }
        await self._create(
            client, NewTopic(load.topic, load.partitions, load.replication_factor, settings)
        )
        await client.topic(load.topic, PREPARE_MS_MAX, is_new=True)
        self._topic = self.ledger.topic(
            Topic(
                load.topic,
                client.cache.topic_ids.get(load.topic, ZERO_UUID),
                load.partitions,
                load.replication_factor,
                load.min_insync_replicas,
            )
        )

    async def _create(self, client: ClusterClient, topic: NewTopic) -> None:
        def too_few_brokers(error: Exception) -> bool:
            # Containers may have been started a moment ago.
            return (
                isinstance(error, ApiError) and error.code is ErrorCode.INVALID_REPLICATION_FACTOR
            )

        async def attempt(_: float) -> None:
            await Admin(client, PREPARE_MS_MAX).create_topics([topic])

        await retrying(PREPARE_MS_MAX, attempt, too_few_brokers)

    def start(self) -> None:
        """Start the producers and consumers."""
        for number in range(self.load.producers):
            self._producers.append(asyncio.create_task(self._produce(number)))
        for number in range(self.load.consumers):
            process = self.ledger.process("consumer", CLIENT)
            self._consumers.append(asyncio.create_task(self._consume(number, process)))

    async def stop(self) -> None:
        """Stop the producers once all their sends have an outcome, then the consumers."""
        self._stopping.set()
        await asyncio.gather(*self._producers)
        for task in self._consumers:
            task.cancel()
        await asyncio.gather(*self._consumers, return_exceptions=True)

    async def close(self) -> None:
        """Cancel all clients and close their connections."""
        tasks = [*self._producers, *self._consumers]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in self._clients:
            await client.close()

    async def _client(self, name: str, deadline: float | None = None) -> ClusterClient | None:
        """Connect a client, retrying until the run ends or `deadline` passes; then return None."""
        while not self._stopping.is_set() or deadline is not None:
            try:
                client = await ClusterClient.connect(self._bootstrap, name, CONNECT_MS_MAX)
            except TROUBLE:
                if deadline is not None and time.monotonic() > deadline:
                    return None
                await asyncio.sleep(PAUSE_S)
            else:
                self._clients.append(client)
                return client
        return None

    # --- producers -----------------------------------------------------------------------------

    async def _produce(self, number: int) -> None:
        load = self.load
        process = self.ledger.process("producer", CLIENT)
        rng = random.Random(self._rng.getrandbits(64))
        client = await self._client(f"chaos-producer-{number}")
        if client is None:
            return
        producer = IdempotentProducer(
            client,
            request_timeout_ms=load.request_timeout_ms,
            delivery_timeout_ms=load.delivery_timeout_ms,
        )
        await self._start(producer)
        lanes = [_Lane((process, self._topic, index)) for index in range(load.partitions)]
        try:
            await self._send_at_its_rate(producer, lanes, rng)
            for lane in lanes:
                await asyncio.gather(*lane.waiting, return_exceptions=True)
        finally:
            # Closing gives every pending send an unknown outcome.
            self.starts_over += producer.starts_over
            await producer.close()

    async def _send_at_its_rate(
        self, producer: IdempotentProducer, lanes: list[_Lane], rng: random.Random
    ) -> None:
        load = self.load
        sent = turn = 0
        # Sends follow the schedule of the rate, not a fixed delay after the last send.
        due_s = time.monotonic()
        while not self._stopping.is_set():
            lane = lanes[turn % len(lanes)]
            turn += 1
            if len(lane.waiting) < load.waiting_max:
                count = rng.randint(1, BATCH_RECORDS_MAX)
                self._offer(producer, lane, range(sent, sent + count))
                sent += count
                due_s += count * load.producers / load.records_per_s
            else:
                due_s = time.monotonic() + PAUSE_S / len(lanes)
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))

    async def _start(self, producer: IdempotentProducer) -> None:
        while not self._stopping.is_set():
            try:
                await producer.start()
            except TROUBLE:
                await asyncio.sleep(PAUSE_S)
            else:
                return

    def _offer(self, producer: IdempotentProducer, lane: _Lane, numbers: range) -> None:
        process, _, partition = lane.place
        now_ms = time.time_ns() // 1_000_000
        values = [value_id(process, number) for number in numbers]
        records = [
            Record(0, now_ms, None, value_bytes(value, self.load.record_bytes)) for value in values
        ]
        order, lane.order = lane.order, lane.order + len(values)
        begin_us = self.ledger.now_us()
        future = producer.send(self.load.topic, partition, records)
        lane.waiting.add(future)
        producer_id = producer.producer_id

        def done(future: asyncio.Future[Produced]) -> None:
            lane.waiting.discard(future)
            result: int | BaseException
            if future.cancelled():
                result = asyncio.CancelledError()
            else:
                result = future.exception() or future.result().base_offset
            self.ledger.sent(values, lane.place, order, begin_us, result, producer_id)

        future.add_done_callback(done)

    # --- consumers -----------------------------------------------------------------------------

    async def _consume(self, number: int, process: int) -> None:
        client = await self._client(f"chaos-consumer-{number}")
        if client is None:
            return
        await asyncio.gather(
            *(
                self._follow(client, (process, self._topic, partition))
                for partition in range(self.load.partitions)
            )
        )

    async def _follow(self, client: ClusterClient, place: tuple[int, int, int]) -> None:
        """Read one partition from its start, until cancelled."""
        position = 0
        self.ledger.assigned(place, position)
        while True:
            try:
                position = await self._poll(client, place, position)
            except ApiError as error:
                self.client_trouble[error.code.name] += 1
                if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    position = 0
                    self.ledger.assigned(place, position)
            except (OSError, ProtocolError) as error:
                self.client_trouble[type(error).__name__] += 1
            else:
                continue
            await asyncio.sleep(PAUSE_S)

    async def _poll(
        self,
        client: ClusterClient,
        place: tuple[int, int, int],
        position: int,
        *,
        final: bool = False,
    ) -> int:
        """Fetch once and return the position after it."""
        begin_us = self.ledger.now_us()
        fetched = await client.fetch(
            self.load.topic, place[2], position, timeout_ms=self.load.request_timeout_ms
        )
        records, after = visible_records((self.load.topic, place[2]), fetched.records, position)
        if records or final:
            offsets = [one.offset for one in records]
            values = [value_of(one.value) for one in records]
            self.ledger.polled(place, begin_us, offsets, values, final=final)
        return after

    # --- the end -------------------------------------------------------------------------------

    async def read_all(self, wait_ms: float) -> None:
        """Read every partition from its start to its end.

        Records that cannot be read in time are missing in the history, which the checks report.
        """
        deadline = time.monotonic() + wait_ms / 1000
        client = await self._client("chaos-reader", deadline)
        if client is None:
            return
        process = self.ledger.process("reader", CLIENT)
        reading = partial(self._read_partition, client, deadline)
        await asyncio.gather(
            *(reading((process, self._topic, index)) for index in range(self.load.partitions))
        )

    async def _read_partition(
        self, client: ClusterClient, deadline: float, place: tuple[int, int, int]
    ) -> None:
        while time.monotonic() < deadline:
            try:
                begin_us = self.ledger.now_us()
                end = (await client.list_offset(self.load.topic, place[2], LATEST)).offset
                self.ledger.ended(place, begin_us, end, final=True)
                start = await client.list_offset(self.load.topic, place[2], EARLIEST)
                position = start.offset
                self.ledger.assigned(place, position)
                while position < end and time.monotonic() < deadline:
                    position = await self._poll(client, place, position, final=True)
                if position == 0:
                    self.ledger.polled(place, begin_us, [], [], final=True)
            except TROUBLE as error:
                self.client_trouble[f"final read: {error}"] += 1
                await asyncio.sleep(PAUSE_S)
            else:
                return


class _Lane:
    """One producer's sends to one partition. `place` is process, topic, partition."""

    def __init__(self, place: tuple[int, int, int]) -> None:
        self.place = place
        self.order = 0
        self.waiting: set[asyncio.Future[Produced]] = set()
