"""Producer of `kraftbox produce`: an error ends the command, and retries cause no duplicates."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from client.cluster_client import ClusterClient, Produced
from client.errors import check
from client.partitioner import keyless_partition, partition_of
from client.producer import IdempotentProducer, NotProduced
from kraftbox.cli.output import CommandFailed, say_error
from kraftbox.cli.record_text import Line
from kraftbox.cli.waiting import NOTICE_S, waiting_text
from protocol.batch.records import Record, build_batch
from protocol.compression import Codec
from protocol.errors import ApiError, ErrorCode

TIMEOUT_MS = 30_000


class Producer:
    """Producer of lines.

    A line's own partition comes first, then the producer's `partition`, then Kafka's default
    partitioner for lines with a key. Lines without a key go to one partition per batch, in turn; as
    in Kafka's producer, partitions without a leader are passed over.
    """

    def __init__(
        self, client: ClusterClient, topic: str, codec: Codec, acks: int, partition: int | None
    ) -> None:
        self.sent = 0
        self.created_partitions = 0
        """Number of partitions of a topic that `start` created, otherwise 0."""
        self._client = client
        self._topic = topic
        self._codec = codec
        self._acks = acks
        self._partition = partition
        self._partitions = 0
        self._turn = 0
        self._idempotent: IdempotentProducer | None = None

    async def start(self) -> None:
        """Look up the topic; the cluster may create it automatically. Raises Refused."""
        (before,) = (await self._client.metadata([self._topic])).topics
        topic = await self._client.topic(self._topic, create=True)
        self._partitions = len(topic.partitions)
        if before.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self.created_partitions = self._partitions
        if self._partition is not None:
            self._check(self._partition)
        if self._acks != 0:
            self._idempotent = IdempotentProducer(
                self._client,
                acks=self._acks,
                delivery_timeout_ms=TIMEOUT_MS,
                compression=self._codec,
            )
            await self._idempotent.start(TIMEOUT_MS)

    async def close(self) -> None:
        if self._idempotent is not None:
            await self._idempotent.close()

    async def send(self, lines: Sequence[Line]) -> None:
        """Write the lines and wait for the acknowledgement. Raises CommandFailed."""
        now_ms = time.time_ns() // 1_000_000
        by_partition: dict[int, list[Record]] = defaultdict(list)
        keyless = keyless_partition(self._client.cache, self._topic, self._partitions, self._turn)
        for line in lines:
            at_ms = now_ms if line.timestamp_ms is None else line.timestamp_ms
            record = Record(0, at_ms, line.key, line.value, line.headers)
            by_partition[self._choose(line, keyless)].append(record)
        self._turn += 1
        sent = {
            index: asyncio.ensure_future(self._send_batch(index, records))
            for index, records in by_partition.items()
        }
        notice = asyncio.get_running_loop().call_later(NOTICE_S, self._say_waiting, sent)
        try:
            results = await asyncio.gather(*sent.values(), return_exceptions=True)
        finally:
            notice.cancel()
        for index, result in zip(sent, results, strict=True):
            if isinstance(result, ApiError | NotProduced):
                raise CommandFailed(f"{self._topic}-{index}: {result}") from None
            if isinstance(result, BaseException):
                raise result
            self.sent += len(by_partition[index])

    def _check(self, partition: int) -> None:
        if partition >= self._partitions:
            check(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self._topic}-{partition}")

    def _choose(self, line: Line, keyless: int) -> int:
        if line.partition is not None:
            self._check(line.partition)
            return line.partition
        if self._partition is not None:
            return self._partition
        if line.key is None:
            return keyless
        return partition_of(line.key, self._partitions)

    def _say_waiting(self, sent: Mapping[int, asyncio.Future[Produced]]) -> None:
        for index, future in sent.items():
            if not future.done():
                say_error(waiting_text(self._client.cache, (self._topic, index)))

    async def _send_batch(self, index: int, records: list[Record]) -> Produced:
        if self._idempotent is not None:
            return await self._idempotent.send(self._topic, index, records)
        batch = build_batch(records, compression=self._codec)
        return await self._client.produce(
            self._topic, index, batch, acks=self._acks, timeout_ms=TIMEOUT_MS
        )
