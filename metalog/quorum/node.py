"""Shell: A running replica of the metadata quorum: its parts, its start and its stop.

`driver.py` passes events to the core, `effects.py` and `peer_requests.py` carry out its effects,
`background.py` flushes the log and delivers what is committed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar, get_args

from metalog.image.features import LATEST_PRODUCTION_METADATA_VERSION, record_version
from metalog.image.snapshot import VersionedRecord, image_to_records
from metalog.image.values import MetadataImage
from metalog.quorum.background import BackgroundWork
from metalog.quorum.config import QuorumConfig
from metalog.quorum.core.messages import (
    EndpointsBound,
    OffsetAndEpoch,
    PersistState,
    QuorumState,
    Resign,
    SnapshotRequested,
    Start,
)
from metalog.quorum.core.quorum import QuorumCore
from metalog.quorum.core.voters import Endpoints, ReplicaKey, VoterEndpoint, VoterSet
from metalog.quorum.delivery import Delivery, QuorumListener
from metalog.quorum.driver import Answer, CoreDriver
from metalog.quorum.effects import LogEffects, StateEffects
from metalog.quorum.log import MetadataLog
from metalog.quorum.peer_requests import PeerRequests
from metalog.quorum.peers import Peers
from metalog.quorum.snapshot_transfer import SnapshotFetcher, SnapshotWriter
from metalog.quorum.stats import QuorumStats
from metalog.quorum.watchers import Watchers
from protocol.errors import ApiError, ErrorCode
from protocol.schema import Response
from runtime.clock import Clock
from runtime.log import get_logger
from runtime.tasks import Supervisor
from storage.files.port import Files
from storage.log.errors import CorruptLog, LogFailed

_log = get_logger("metalog.quorum")

R = TypeVar("R", bound=Response)


class NotLeader(ApiError):
    """This node does not lead that epoch (any more)."""

    def __init__(self, epoch: int, leader_id: int | None) -> None:
        super().__init__(
            ErrorCode.NOT_CONTROLLER, f"not the leader of epoch {epoch}; the leader is {leader_id}"
        )


class QuorumNode:
    """The quorum replica of a process, shared by its roles. `start` must be called first."""

    def __init__(
        self,
        config: QuorumConfig,
        *,
        files: Files,
        clock: Clock,
        rng: random.Random,
        supervisor: Supervisor,
    ) -> None:
        self.config = config
        self.node_id = config.node.id
        self.cluster_id = config.cluster_id
        self._addresses = config.addresses
        self._files = files
        self._clock = clock
        self._rng = rng
        self._supervisor = supervisor
        self.peers = Peers(f"raft-client-{config.node.id}", config.timing.request_timeout_ms)
        self._started = False
        self._stopping = False
        self.watchers = Watchers()
        self.stats = QuorumStats()
        self._early_listeners: list[QuorumListener] = []
        self._tasks: list[asyncio.Task[Any]] = []

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the log and take part in the quorum. A sole voter leads when this returns.

        Raises:
            StartupRefused: files of the metadata log are missing or damaged.
            LogFailed: the disk failed.
            DirectoryLocked: another process uses the directory.
        """
        config = self.config
        self.log = MetadataLog.open(
            self._files,
            config.log_dir,
            self._clock,
            config.log,
            config.voters,
            votes=config.votes,
        )
        for problem in self.log.problems:
            _log.warning("problem while opening the metadata log", problem=problem)
        self._delivery = Delivery(self.log, self.node_id)
        for listener in self._early_listeners:
            self._delivery.add(listener)
        self._snapshots = SnapshotWriter(self._files, self.log, self._clock)
        self.core = QuorumCore(
            node=config.node,
            log=self.log,
            state=self.log.state_file.read() or QuorumState(),
            voters=self.log.voters,
            voters_in_log=self.log.voter_history.in_log,
            timing=config.timing,
            jitter=self._jitter,
            addresses=self._addresses,
        )
        self.driver = CoreDriver(
            self.core,
            self.log,
            self.stats,
            clock=self._clock,
            supervisor=self._supervisor,
            carry_out=lambda effect: self._effect_table[type(effect)](effect),
        )
        step = self.driver.step
        self._background = BackgroundWork(
            self.log, self._delivery, self._clock, step=step, spawn=self._spawn
        )
        state_effects = StateEffects(self.log, self.driver, self._files, self._spawn)
        self._effects = LogEffects(
            self.node_id,
            self.core,
            self.log,
            self.driver,
            delivery=self._delivery,
            background=self._background,
            watchers=self.watchers,
            stats=self.stats,
            clock=self._clock,
            take_fetched=lambda: self._requests.take_fetched(),
        )
        self._requests = PeerRequests(
            config,
            self.core,
            self.log,
            self.peers,
            SnapshotFetcher(self._files, self.log, self.peers, config),
            step=step,
            spawn=self._spawn,
            snapshot_fetched=self._effects.install_snapshot,
        )
        self._effect_table = self._effects_of(state_effects)
        self.driver.update_stats()
        self._background.start()
        step(Start())
        state_effects.writes_at_once = False
        self._started = True

    async def stop(self) -> None:
        """Step down, flush, close. Pending appends may or may not survive."""
        if not self._started or self._stopping:
            return
        self.driver.step(Resign())
        if self._requests.end_epoch_tasks:
            wait_s = self.config.timing.request_timeout_ms / 1000.0
            await asyncio.wait(self._requests.end_epoch_tasks, timeout=wait_s)
        await self.abort()
        await self.peers.close()
        try:
            self.log.close()
        except LogFailed as error:
            _log.error("the metadata log could not be closed cleanly", error=str(error))

    async def abort(self) -> None:
        """Stop as in a crash: nothing is sent, flushed or closed."""
        self._stopping = True
        if self._started:
            self.driver.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _effects_of(self, state: StateEffects) -> Mapping[type[Any], Callable[[Any], None]]:
        """Return the function for each kind of effect of the core."""
        return {
            PersistState: state.persist,
            **self._effects.table(),
            **self._requests.table(),
            **dict.fromkeys(get_args(Answer), self.driver.answer),
        }

    def _jitter(self, bound: int) -> int:
        return self._rng.randrange(bound) if bound > 0 else 0

    def _spawn(
        self, name: str, coro: Coroutine[Any, Any, None], *, fatal: bool = True
    ) -> asyncio.Task[Any]:
        task = self._supervisor.spawn(name, coro, fatal=fatal)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)
        return task

    # --- public state -------------------------------------------------------------------------

    def leader(self) -> tuple[int | None, int]:
        """Return (leader id or None, epoch)."""
        return self.core.active_leader_id, self.core.epoch

    @property
    def is_started(self) -> bool:
        """True once the log is open; before that no request may reach this node."""
        return self._started

    @property
    def is_leader(self) -> bool:
        return self.core.is_leader

    @property
    def high_watermark(self) -> int | None:
        """Offset below which everything is committed; None while unknown."""
        return self.core.high_watermark

    @property
    def log_end_offset(self) -> int:
        return self.log.end_offset

    @property
    def voters(self) -> VoterSet:
        return self.core.voters

    @property
    def kraft_version(self) -> int:
        return self.log.kraft_version

    @property
    def endpoints(self) -> Endpoints:
        """This node's own controller listeners; empty for a broker."""
        return self.core.endpoints

    def advertise(self, endpoints: Endpoints) -> None:
        """Set the controller listeners as bound, once ports are known."""
        if self._started:
            self.driver.step(EndpointsBound(endpoints))
        else:
            self._addresses = self._addresses._replace(endpoints=endpoints)

    def leader_endpoint(self) -> VoterEndpoint | None:
        """Return the address of the leader's controller listener; None without a leader or if
        unknown."""
        leader_id = self.core.active_leader_id
        return None if leader_id is None else self.core.endpoint_of(leader_id)

    def register(self, listener: QuorumListener) -> None:
        """Deliver to a listener from the first offset (or the latest snapshot) on."""
        if not self._started:
            self._early_listeners.append(listener)
            return
        self._delivery.add(listener)
        self._background.want_delivery()

    # --- appends of the leader ----------------------------------------------------------------

    def append(
        self,
        epoch: int,
        records: Sequence[Any],
        *,
        metadata_version: int = LATEST_PRODUCTION_METADATA_VERSION.level,
    ) -> int:
        """Append metadata records as one atomic batch. Returns: the offset of the last record.

        The records are written in the versions of that `metadata.version` level, which must carry
        them (`fit_record`). They are durable and committed later; listeners then receive them.

        Raises:
            NotLeader: this node does not lead `epoch`.
            EncodeError: a version cannot carry its record.
            ApiError: RECORD_LIST_TOO_LARGE; KAFKA_STORAGE_ERROR if the disk fails, which stops the
                node.
        """
        core = self.core
        if not core.is_leader or core.epoch != epoch:
            raise NotLeader(epoch, core.active_leader_id)
        versioned: list[VersionedRecord] = [
            (record, record_version(type(record).__name__, metadata_version)) for record in records
        ]
        try:
            batch = self.log.append_records(
                versioned, epoch=epoch, timestamp_ms=self._clock.now_ms()
            )
        except ApiError as error:
            if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
                self._supervisor.report("append to the metadata log", error)
            raise
        self._effects.appended(batch)
        return batch.last_offset

    def snapshot_due(self, image: MetadataImage) -> bool:
        """Return whether enough was committed, or enough time has passed, since the last
        snapshot."""
        return self._snapshots.due(image)

    def replayed(self, size_bytes: int) -> None:
        """Count the size of a committed batch that was replayed; it makes a snapshot due."""
        self._snapshots.committed(size_bytes)

    async def create_snapshot(self, image: MetadataImage) -> OffsetAndEpoch | None:
        """Write a snapshot of a batch-aligned image, in slices. Returns: None if it exists already.

        The log that it covers is made durable first, since the next start does not check the log
        below a snapshot.

        Raises:
            OSError: the snapshot could not be written; the log is unchanged.
            LogFailed: the disk failed, which stops the node.
        """
        if not self.core.must_flush:
            try:
                await self.log.flush()
            except LogFailed as error:
                self._supervisor.report("flush of the metadata log", error)
                raise
        return await self._snapshots.write(image, image_to_records(image))

    def read_log(self, offset: int, max_bytes: int) -> bytes:
        """Read batches for a fetch. Records that are damaged on disk stop the node, so that another
        voter can lead.

        Raises:
            OffsetOutOfRange: the log does not have the offset.
            ApiError: KAFKA_STORAGE_ERROR, the disk failed or the records are damaged.
        """
        try:
            return self.log.read(offset, max_bytes)
        except (CorruptLog, LogFailed) as error:
            self._supervisor.report("read the metadata log", error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def snapshot_requested(self, replica: ReplicaKey) -> None:
        """Note that a replica has requested a part of a snapshot."""
        self.driver.step(SnapshotRequested(replica))

    def wall_ms(self, monotonic_ms: float | None) -> int:
        """Convert monotonic time (None: now) to epoch milliseconds."""
        now_ms = self._clock.now_ms()
        if monotonic_ms is None:
            return now_ms
        return now_ms - int(self._clock.monotonic_ms() - monotonic_ms)
