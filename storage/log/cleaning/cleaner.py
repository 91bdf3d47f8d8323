"""Shell: The log cleaner of one log directory: choose the dirtiest log, clean it, swap.

One worker runs one round at a time, for any positive `log.cleaner.threads` (0 disables cleaning).
Before a round, the log is flushed and its recovery point is written up to the end of the range. So
recovery never reads cleaned segments, in which gaps in the offsets are not damage.

A log whose batches cannot be read counts as uncleanable until the next start, as in Kafka. A log
with a disk error, or one that changed during the round, is tried again later. A failed round leaves
the log as it was, except for the groups of segments that were finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, NamedTuple

from runtime.clock import Clock
from runtime.config import NodeConfig, keys_log
from runtime.errors import InvariantViolated
from runtime.helper import HelperFailed
from runtime.log import get_logger
from runtime.metrics import Family
from storage.log.checkpoints import CLEANER_CHECKPOINT, TopicPartition
from storage.log.cleaning.cleaner_metrics import CleanerFigures, families
from storage.log.cleaning.job import Cleaned, CleaningJob, Finished, Source
from storage.log.cleaning.plan import DirtyRange, Weight, dirty_range, first_dirty_offset, weigh
from storage.log.cleaning.rewrite import LastBatch
from storage.log.cleaning.swap import SwapAbandoned, swap_in
from storage.log.cleaning.workers import Failed, Stopped, Worker
from storage.log.errors import LogFailed
from storage.log.log import Log
from storage.log.manager import LogManager
from storage.log.segment import CLEANED_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, Segment

SLICE_MS: Final = 5.0

_log = get_logger("storage.cleaner")


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerSettings:
    """Settings `log.cleaner.*`, with Kafka's defaults."""

    enable: bool = True
    threads: int = 1
    backoff_ms: int = 15_000
    dedupe_buffer_bytes: int = 134_217_728
    load_factor: float = 0.9
    bytes_per_second: float = 1.7976931348623157e308

    @classmethod
    def of(cls, node: NodeConfig) -> CleanerSettings:
        return cls(
            enable=node[keys_log.LOG_CLEANER_ENABLE],
            threads=node[keys_log.LOG_CLEANER_THREADS],
            backoff_ms=node[keys_log.LOG_CLEANER_BACKOFF_MS],
            dedupe_buffer_bytes=node[keys_log.LOG_CLEANER_DEDUPE_BUFFER_SIZE],
            load_factor=node[keys_log.LOG_CLEANER_IO_BUFFER_LOAD_FACTOR],
            bytes_per_second=node[keys_log.LOG_CLEANER_IO_MAX_BYTES_PER_SECOND],
        )


class _Candidate(NamedTuple):
    key: TopicPartition
    log: Log
    dirty: DirtyRange
    weight: Weight


class LogCleaner:
    """Cleans the compacted logs of `manager`. `run` is its task; `clean_one` is one round.

    Args:
        settings: called before each round: settings may change while the node runs.
    """

    def __init__(
        self,
        manager: LogManager,
        worker: Worker,
        *,
        clock: Clock,
        settings: Callable[[], CleanerSettings],
    ) -> None:
        self.figures = CleanerFigures()
        self.checkpoints: dict[TopicPartition, int] = {}
        """First dirty offset of each log."""
        self.uncleanable: dict[TopicPartition, Log] = {}
        self._manager = manager
        self._worker = worker
        self._clock = clock
        self._settings = settings
        self._current: Log | None = None
        self._current_end = 0
        self._aborted = False
        self._put_off: set[TopicPartition] = set()
        self._checkpoint_due = False
        self._wake = asyncio.Event()
        manager.watcher = self

    def start(self) -> None:
        """Load the checkpoint of the last process; the manager has loaded its logs.

        If a log ends below its checkpoint, it has lost its tail: records appended from now on are
        dirty.
        """
        for key, offset in self._manager.checkpoints.read(CLEANER_CHECKPOINT).items():
            log = self._manager.logs.get(key)
            if log is not None:
                self.checkpoints[key] = min(offset, log.log_end_offset)

    async def run(self) -> None:
        """Clean while any log is due, then check again every `log.cleaner.backoff.ms`."""
        while True:
            settings = self._settings()
            active = settings.enable and settings.threads > 0
            if active and await self.clean_one():
                continue
            self._put_off.clear()
            await self._rest(settings.backoff_ms)

    async def _rest(self, wait_ms: float) -> None:
        """Wait; a checkpoint that becomes outdated in the meantime is written at once."""
        deadline_ms = self._clock.monotonic_ms() + wait_ms
        while (left_ms := deadline_ms - self._clock.monotonic_ms()) > 0:
            await self.checkpoint()
            try:
                await asyncio.wait_for(self._wake.wait(), left_ms / 1000.0)
            except TimeoutError:
                return

    async def close(self) -> None:
        """Close the worker. The caller has cancelled `run` before."""
        self._manager.watcher = None
        await self._worker.close()

    # Changes to logs -------------------------------------------------------------------------

    def holds(self, log: Log) -> bool:
        return log is self._current

    def truncated(self, log: Log) -> None:
        key = (log.topic, log.partition)
        if self.checkpoints.get(key, -1) > log.log_end_offset:
            self.checkpoints[key] = log.log_end_offset
            self._note_checkpoint()
        if log is self._current and log.log_end_offset < self._current_end:
            self._abort()

    def removed(self, log: Log) -> None:
        key = (log.topic, log.partition)
        self.uncleanable.pop(key, None)
        if self.checkpoints.pop(key, None) is not None:
            self._note_checkpoint()
        if log is self._current:
            self._abort()

    def _abort(self) -> None:
        self._aborted = True
        self._worker.stop()

    def _note_checkpoint(self) -> None:
        self._checkpoint_due = True
        self._wake.set()

    async def checkpoint(self) -> None:
        """Write `cleaner-offset-checkpoint` if it is out of date."""
        self._wake.clear()
        if self._checkpoint_due:
            self._checkpoint_due = False
            await self._manager.checkpoints.write(CLEANER_CHECKPOINT, dict(self.checkpoints))

    # Choosing --------------------------------------------------------------------------------

    async def clean_one(self) -> bool:
        """Clean the dirtiest log that is due. Returns False if none is due."""
        chosen = await self._choose()
        if chosen is None:
            return False
        await self._clean(chosen)
        await self.checkpoint()
        return True

    async def _choose(self) -> _Candidate | None:
        """Return the dirtiest log that is due; yields to the event loop between logs."""
        best: _Candidate | None = None
        dirtiest = delay_ms = 0.0
        slice_ends_ms = self._clock.monotonic_ms() + SLICE_MS
        for key, log in list(self._manager.logs.items()):
            if self._clock.monotonic_ms() >= slice_ends_ms:
                await asyncio.sleep(0)
                slice_ends_ms = self._clock.monotonic_ms() + SLICE_MS
            candidate = self._weigh(key, log)
            if candidate is None:
                continue
            ratio = candidate.weight.ratio
            dirtiest, delay_ms = max(dirtiest, ratio), max(delay_ms, candidate.weight.delay_ms)
            due = candidate.weight.is_due(log.config.min_cleanable_dirty_ratio)
            if due and (best is None or ratio > best.weight.ratio):
                best = candidate
        self.figures.dirtiest_ratio, self.figures.max_delay_ms = dirtiest, delay_ms
        self.figures.last_run_ms = self._clock.now_ms()
        return best

    def _weigh(self, key: TopicPartition, log: Log) -> _Candidate | None:
        segments = log.segments
        if len(segments) < 2 or not log.config.compacted or log.failure is not None or log.closed:
            return None
        if key in self.uncleanable or key in self._put_off:
            return None
        now_ms, listed = self._clock.now_ms(), list(segments)
        try:
            dirty = self._dirty_range(key, log, listed, now_ms, log.recovery_point)
            return _Candidate(key, log, dirty, weigh(listed, log.config, now_ms, dirty))
        except OSError as error:
            self._postpone(key, error)
        except InvariantViolated:
            raise
        except Exception as error:  # noqa: BLE001 - one log must not end the cleaning of all
            self._set_aside(key, log, str(error))
        return None

    def _dirty_range(
        self, key: TopicPartition, log: Log, segments: list[Segment], now_ms: int, durable: int
    ) -> DirtyRange:
        return dirty_range(
            segments,
            log.config,
            now_ms,
            first_dirty=first_dirty_offset(
                self.checkpoints.get(key), log.log_start_offset, log.log_end_offset
            ),
            limit=min(log.last_stable_offset, durable),
        )

    def _set_aside(self, key: TopicPartition, log: Log, reason: str) -> None:
        self.uncleanable[key] = log
        _log.warning("log cannot be cleaned", topic=key[0], partition=key[1], reason=reason)

    def _postpone(self, key: TopicPartition, error: object) -> None:
        self._put_off.add(key)
        _log.warning("cleaning failed", topic=key[0], partition=key[1], error=str(error))

    # A round ---------------------------------------------------------------------------------

    async def _clean(self, chosen: _Candidate) -> None:
        key, log = chosen.key, chosen.log
        self._current, self._aborted = log, False
        try:
            job = await self._prepare(chosen)
            self._current_end = job.end_offset
            await self._round(key, log, job)
        except (Stopped, SwapAbandoned):
            self._put_off.add(key)
        except LogFailed:
            self._put_off.add(key)  # the owner of the log has been notified
        except HelperFailed as error:
            self._set_aside(key, log, str(error))
        except OSError as error:
            self._postpone(key, error)
        except InvariantViolated:
            raise
        except Exception as error:  # noqa: BLE001 - one log must not end the cleaning of all
            self._set_aside(key, log, f"{type(error).__name__}: {error}")
        finally:
            self._current = None
            _remove_unfinished(log)

    async def _prepare(self, chosen: _Candidate) -> CleaningJob:
        """Make the range to clean durable, and describe the round.

        After a crash it is not yet known that a log is compacted, and recovery would treat a gap
        above the recovery point as lost records. Raises Stopped, LogFailed, OSError.
        """
        key, log = chosen.key, chosen.log
        if log.bounds.saved_recovery_point < chosen.dirty.end:
            await log.flush()
            await self._manager.checkpoints.save_recovery_points()
        if self._aborted or log.closed:
            raise Stopped
        now_ms, segments, settings = self._clock.now_ms(), list(log.segments), self._settings()
        dirty = self._dirty_range(key, log, segments, now_ms, log.bounds.saved_recovery_point)
        sources = [
            Source(
                segment.base_offset,
                segment.size_bytes,
                _size_of(log, segment, INDEX_SUFFIX),
                _size_of(log, segment, TIME_INDEX_SUFFIX),
            )
            for segment in segments[:-1]
            if segment.base_offset < dirty.end
        ]
        return CleaningJob(
            directory=log.directory,
            config=log.config,
            sources=sources,
            first_dirty=dirty.first_dirty,
            end_offset=dirty.end,
            high_watermark=log.high_watermark,
            now_ms=now_ms,
            aborted=log.reader.aborted_transactions(segments[0].base_offset, dirty.end),
            active={
                state.producer_id: LastBatch(
                    state.last_offset if state.last_offset >= 0 else None, state.epoch
                )
                for state in log.producers
            },
            map_bytes=settings.dedupe_buffer_bytes,
            map_load_factor=settings.load_factor,
        )

    async def _round(self, key: TopicPartition, log: Log, job: CleaningJob) -> None:
        begin_ms = self._clock.monotonic_ms()
        results = self._worker.run(job, self._settings().bytes_per_second)
        async with aclosing(results):
            async for result in results:
                if self._aborted:
                    raise Stopped
                if isinstance(result, Cleaned):
                    await swap_in(log, result)
                elif isinstance(result, Finished):
                    self._finished(key, log, job, result, self._clock.monotonic_ms() - begin_ms)
                else:
                    self._failed(key, log, result)

    def _failed(self, key: TopicPartition, log: Log, failed: Failed) -> None:
        if failed.unreadable:
            self._set_aside(key, log, failed.reason)
        else:
            self._postpone(key, failed.reason)

    def _finished(
        self, key: TopicPartition, log: Log, job: CleaningJob, done: Finished, took_ms: float
    ) -> None:
        if done.end_offset <= job.first_dirty:
            self._put_off.add(key)
        self.checkpoints[key] = done.end_offset
        self._note_checkpoint()
        self.figures.finished(done, took_ms)
        _log.info(
            "log cleaned",
            topic=key[0],
            partition=key[1],
            from_offset=job.first_dirty,
            to_offset=done.end_offset,
            read_bytes=done.bytes_read,
            kept_bytes=done.bytes_written,
            read_records=done.rewrite.records_read,
            kept_records=done.rewrite.records_kept,
            took_ms=round(took_ms),
        )

    # Metrics ---------------------------------------------------------------------------------

    def collect(self) -> Iterable[Family]:
        """Yield the cleaner's metrics for the metrics registry."""
        waiting = sum(
            segment.size_bytes
            for key, log in self.uncleanable.items()
            for segment in log.segments.holding(self.checkpoints.get(key, 0))[:-1]
        )
        return families(
            self.figures,
            now_ms=self._clock.now_ms(),
            directory=self._manager.directory,
            uncleanable=len(self.uncleanable),
            uncleanable_bytes=waiting,
        )


def _size_of(log: Log, segment: Segment, suffix: str) -> int:
    try:
        return log.files.size(segment.prefix + suffix)
    except FileNotFoundError:
        return 0


def _remove_unfinished(log: Log) -> None:
    """Remove the files of an unfinished round. After a disk error, the next start removes them."""
    if log.closed or log.failure is not None:
        return
    for name in log.files.listdir(log.directory):
        if name.endswith(CLEANED_SUFFIX):
            log.files.unlink(f"{log.directory}/{name}")
