"""A log manager with a cleaner on files in memory, for the tests of compaction."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from protocol.batch.header import BatchHeader, iter_batches
from protocol.batch.records import NO_PRODUCER, Producer, Record, build_batch, read_batch
from protocol.compression import Codec
from protocol.ids import TopicId
from runtime.clock import ManualClock
from storage.files import Files, MemoryFiles
from storage.log.cleaning.cleaner import CleanerSettings, LogCleaner
from storage.log.cleaning.workers import LoopWorker, Worker
from storage.log.config import LogConfig
from storage.log.log import Log
from storage.log.manager import LogManager
from storage.log.producers import Origin
from testkit.memory.logs import T0

TOPIC_ID = TopicId(b"\x09" * 16)
DAY_MS = 24 * 3_600_000

KeyValue = tuple[str, str | None]


class Cleaning:
    """One compacted log, `topic-0`, with the log manager and cleaner of a broker."""

    def __init__(
        self,
        files: Files | None = None,
        *,
        clock: ManualClock | None = None,
        worker: Worker | None = None,
        settings: CleanerSettings | None = None,
        directory: str = "/data",
        **config: object,
    ) -> None:
        self.files = files or MemoryFiles()
        self.clock = clock or ManualClock(T0)
        self.settings = settings or CleanerSettings()
        values: dict[str, object] = {
            "cleanup_policy": "compact",
            "min_cleanable_dirty_ratio": 0.0,
            "file_delete_delay_ms": 0,
        }
        self.config = LogConfig(**(values | config))  # type: ignore[arg-type]
        self.files.mkdirs(directory)
        self.manager = LogManager(
            self.files,
            directory,
            clock=self.clock,
            rng=random.Random(1),
            config_for=lambda topic: self.config,
        )
        self.manager.load()
        self.cleaner = LogCleaner(
            self.manager,
            worker or LoopWorker(self.files, self.clock),
            clock=self.clock,
            settings=lambda: self.settings,
        )
        self.cleaner.start()
        self.log: Log = self.manager.get_or_create("topic", 0, TOPIC_ID, self.config)

    def append(
        self,
        *records: KeyValue,
        producer: Producer = NO_PRODUCER,
        codec: Codec = Codec.NONE,
        epoch: int = 0,
    ) -> int:
        """Append one batch. Returns: its first offset."""
        batch = build_batch(
            [
                Record(
                    timestamp=self.clock.now_ms(),
                    key=key.encode(),
                    value=None if value is None else value.encode(),
                )
                for key, value in records
            ],
            producer=producer,
            compression=codec,
        )
        info = self.log.append_as_leader(batch, epoch, self.clock.now_ms(), Origin.RAFT_LEADER)
        self.log.update_high_watermark(self.log.log_end_offset)
        return info.first_offset

    def marker(self, batch: bytes) -> int:
        """Append an end-of-transaction marker. Returns: its offset."""
        info = self.log.append_as_leader(batch, 0, self.clock.now_ms(), Origin.COORDINATOR)
        self.log.update_high_watermark(self.log.log_end_offset)
        return info.first_offset

    def roll(self) -> None:
        self.log.roll()

    async def clean(self) -> bool:
        """Flush the log, so that its recovery point advances, and run one cleaning. Returns:
        whether one was due."""
        await self.log.flush()
        return await self.cleaner.clean_one()

    async def roll_and_clean(self) -> bool:
        self.roll()
        return await self.clean()

    # Contents ---------------------------------------------------------------------------------

    def batches(self) -> list[tuple[BatchHeader, list[Record]]]:
        return list(batches_of(self.log))

    def records(self) -> list[tuple[int, str, str | None]]:
        """Return (offset, key, value) of every record except markers."""
        return [
            (record.offset, (record.key or b"").decode(), text(record.value))
            for header, records in self.batches()
            for record in records
            if not header.is_control
        ]

    def latest(self) -> dict[str, str | None]:
        return {key: value for _, key, value in self.records()}

    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.log.segments]

    def names(self, suffix: str = "") -> list[str]:
        names = self.files.listdir(self.log.directory)
        return [name for name in names if name.endswith(suffix)]


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def batches_of(log: Log, start: int | None = None) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Yield every batch from `start` on, read as a consumer reads them: by offset."""
    offset = log.log_start_offset if start is None else start
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, max_offset=log.log_end_offset)
        following = offset
        for header, pos in iter_batches(data):
            yield header, list(read_batch(data, pos, header))
            following = header.next_offset
        if following == offset:
            return  # a gap up to the log end
        offset = following


def pairs(*texts: str) -> Iterable[KeyValue]:
    """Yield records from `k=v` and `k` (a tombstone)."""
    for one in texts:
        key, equals, value = one.partition("=")
        yield key, value if equals else None
