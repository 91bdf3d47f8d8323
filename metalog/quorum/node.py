"""Shell: A running replica of the metadata quorum: the core, its log, its timers, its peers.

The core decides in plain calls; this module carries out its effects in order. One kind of effect
waits, PersistState. Until the quorum-state file is durable no later effect is carried out, so no
vote and no epoch leaves the node before it is on disk (M3). In the meantime the core still
processes events; their effects are queued.

As in Kafka, a broker does not flush what it fetches. It acts on committed records, which a majority
of the controllers has on disk. If it waited for its own disk, it would lead and follow later, just
when that disk also writes the epochs of new leaders.

Appends are plain writes. A single task flushes everything appended since its last flush began. So
all appends during one flush share the next one, and the event loop never waits for a disk. A failed
flush is never repeated, because the state of the kernel's dirty pages is unknown. The task fails,
the supervisor stops the node, and the next start recovers what is on disk (F19).
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from metalog.image.features import LATEST_PRODUCTION_METADATA_VERSION, record_version
from metalog.image.snapshot import VersionedRecord, image_to_records
from metalog.image.values import MetadataImage
from metalog.quorum.batches import (
    kraft_version_record,
    leader_change,
    voters_record,
)
from metalog.quorum.config import QuorumConfig
from metalog.quorum.core.messages import (
    AppendFetched,
    AppendLeaderChange,
    AppendVoters,
    Effect,
    EndpointsBound,
    Event,
    FindLeader,
    Flushed,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LeaderChanged,
    LogTruncated,
    OffsetAndEpoch,
    PersistState,
    QuorumState,
    ReplyEpoch,
    ReplyFetch,
    ReplyVote,
    ReplyVoterUpdate,
    Resign,
    SendBeginEpoch,
    SendEndEpoch,
    SendFetch,
    SendVote,
    SendVoterUpdate,
    SnapshotAsked,
    SnapshotInstalled,
    Start,
    Tick,
    TruncateLog,
    VoterGone,
    VotersChanged,
)
from metalog.quorum.core.quorum import QuorumCore
from metalog.quorum.core.voters import Endpoints, ReplicaKey, VoterEndpoint, VoterSet
from metalog.quorum.delivery import Delivery, QuorumListener
from metalog.quorum.log import MetadataLog
from metalog.quorum.peer_requests import PeerRequests
from metalog.quorum.peers import Peers
from metalog.quorum.snapshot_transfer import SnapshotFetcher, SnapshotWriter
from metalog.quorum.state_file import format_quorum_state
from metalog.quorum.stats import QuorumStats
from protocol.errors import ApiError, ErrorCode
from protocol.schema import ControlRecord, Response
from runtime.clock import Clock
from runtime.log import get_logger
from runtime.tasks import Supervisor
from storage.files.port import Files
from storage.log.errors import CorruptLog, LogFailed

_log = get_logger("metalog.quorum")

R = TypeVar("R", bound=Response)

CLEAN_INTERVAL_MS = 60_000.0
DELIVERY_SLICE_MS = 5.0
"""Time of a delivery to listeners before other tasks run."""


class NotLeader(ApiError):
    """This node does not lead that epoch (any more)."""

    def __init__(self, epoch: int, leader_id: int | None) -> None:
        super().__init__(
            ErrorCode.NOT_CONTROLLER, f"not the leader of epoch {epoch}; the leader is {leader_id}"
        )


Answer = ReplyVote | ReplyEpoch | ReplyFetch | ReplyVoterUpdate


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
        self._queue: deque[Effect] = deque()
        self._draining = False
        self._persisting = False
        self._started = False
        self._stopping = False
        self._timer: asyncio.TimerHandle | None = None
        self._tokens = 0
        self._answers: dict[int, Callable[[Any], None]] = {}
        # A dictionary as an ordered set: called in the order of registration.
        self._fetch_watchers: dict[Callable[[], None], None] = {}
        self._early_listeners: list[QuorumListener] = []
        self._leader_watchers: list[Callable[[], None]] = []
        self._gone_watchers: list[Callable[[int], None]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._epoch_start_offset = 0
        self.stats = QuorumStats()

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
        self._flush_wanted = asyncio.Event()
        self._delivery_wanted = asyncio.Event()
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
        self._requests = PeerRequests(
            config,
            self.core,
            self.log,
            self.peers,
            SnapshotFetcher(self._files, self.log, self.peers, config),
            step=self._step,
            spawn=self._spawn,
            snapshot_fetched=self._install_snapshot,
        )
        self._update_stats()
        self._spawn("flush the metadata log", self._flush_forever())
        self._spawn("deliver metadata", self._deliver_forever())
        self._spawn("clean the metadata log", self._clean_forever())
        self._step(Start())
        self._started = True

    async def stop(self) -> None:
        """Step down, flush, close. Pending appends may or may not survive."""
        if not self._started or self._stopping:
            return
        self._step(Resign())
        if self._requests.end_epoch_tasks:
            wait_s = self.config.timing.request_timeout_ms / 1000.0
            await asyncio.wait(self._requests.end_epoch_tasks, timeout=wait_s)
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.peers.close()
        try:
            self.log.close()
        except LogFailed as error:
            _log.error("the metadata log could not be closed cleanly", error=str(error))

    async def abort(self) -> None:
        """Stop as in a crash: nothing is sent, flushed or closed."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

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
    def is_persisting(self) -> bool:
        """True while the core is ahead of quorum-state on the disk; then nothing leaves the
        node."""
        return self._persisting

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
            self._step(EndpointsBound(endpoints))
        else:
            self._addresses = self._addresses._replace(endpoints=endpoints)

    def leader_endpoint(self) -> VoterEndpoint | None:
        """Return the address of the leader's controller listener; None without a leader or if
        unknown."""
        leader_id = self.core.active_leader_id
        return None if leader_id is None else self.core.endpoint_of(leader_id)

    def watch_leader(self, callback: Callable[[], None]) -> None:
        """Call back at once whenever `leader()` changes, as long as this node runs."""
        self._leader_watchers.append(callback)

    def watch_gone(self, callback: Callable[[int], None]) -> None:
        """Call back with the id of a voter whose port refuses this leader's BeginQuorumEpoch.

        The call is repeated with each retry.
        """
        self._gone_watchers.append(callback)

    def register(self, listener: QuorumListener) -> None:
        """Deliver to a listener from the first offset (or the latest snapshot) on."""
        if not self._started:
            self._early_listeners.append(listener)
            return
        self._delivery.add(listener)
        self._delivery_wanted.set()

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
        self._delivery.remember(batch)
        self._appended()
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

    # --- stepping -----------------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        if self._stopping:
            return
        self._queue.extend(self.core.step(event, self._clock.monotonic_ms()))
        self._drain()
        self._update_stats()
        self._arm_timer()

    def _update_stats(self) -> None:
        core = self.core
        now_ms = self._clock.monotonic_ms()
        self.stats.observe(core.role, self.log.end_offset, core.high_watermark, now_ms)

    def _drain(self) -> None:
        if self._draining:
            return
        self._draining = True
        try:
            while self._queue and not self._persisting:
                effect = self._queue.popleft()
                _EFFECTS[type(effect)](self, effect)
        except LogFailed as error:
            # The caller might mistake this for a peer's error and retry indefinitely.
            self._supervisor.report("append to the metadata log", error)
            raise
        finally:
            self._draining = False

    def _arm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self.core.next_deadline_ms()
        if deadline_ms is not None and not self._stopping:
            wait_ms = max(0.0, deadline_ms - self._clock.monotonic_ms())
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait_ms / 1000.0, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._guarded("a quorum timer", lambda: self._step(Tick()))

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        """Run work that has no caller; an exception stops the node."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a quorum without its timer would hang in silence
            self._supervisor.report(name, error)

    def ask(self, make: Callable[[int], Event], then: Callable[[Any], None]) -> None:
        """Step with the event `make(token)`; `then` gets the answer to the token.

        `then` is called at once, or later if the answer waits for the quorum-state file.
        """
        self._tokens += 1
        self._answers[self._tokens] = then
        self._step(make(self._tokens))

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back whenever the log grows, commits, or changes leader. Returns: a function to undo
        it."""
        self._fetch_watchers[callback] = None
        return lambda: self._fetch_watchers.pop(callback, None)

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

    def snapshot_asked(self, replica: ReplicaKey) -> None:
        """Note that a replica has requested a part of a snapshot."""
        self._step(SnapshotAsked(replica))

    def wall_ms(self, monotonic_ms: float | None) -> int:
        """Convert monotonic time (None: now) to epoch milliseconds."""
        now_ms = self._clock.now_ms()
        if monotonic_ms is None:
            return now_ms
        return now_ms - int(self._clock.monotonic_ms() - monotonic_ms)

    def _notify_watchers(self) -> None:
        for callback in tuple(self._fetch_watchers):
            callback()

    # --- effects ------------------------------------------------------------------------------

    def _on_persist(self, effect: PersistState) -> None:
        data = format_quorum_state(effect.state, self.log.kraft_version, self.log.voters.ids)
        if not self._started:
            self._files.write_atomic(self.log.state_file.path, data)
            return
        self._persisting = True
        self._spawn("persist quorum-state", self._persist(data))

    async def _persist(self, data: bytes) -> None:
        await self._files.run(self._files.write_atomic, self.log.state_file.path, data)
        self._persisting = False
        self._drain()

    def _on_append_leader_change(self, effect: AppendLeaderChange) -> None:
        change = leader_change(effect.leader_id, effect.voter_ids, effect.granting_ids)
        records: list[ControlRecord] = [change]
        if effect.write_voters:
            records += [
                kraft_version_record(self.log.kraft_version),
                voters_record(self.log.voters),
            ]
        self._epoch_start_offset = self.log.end_offset
        batch, voters_changed = self.log.append_control(
            records, epoch=effect.epoch, timestamp_ms=self._clock.now_ms()
        )
        self._delivery.remember(batch)
        if voters_changed:
            self._step(VotersChanged(self.log.voters))
        self._appended()

    def _on_append_voters(self, effect: AppendVoters) -> None:
        batch, _ = self.log.append_control(
            [voters_record(effect.voters)],
            epoch=effect.epoch,
            timestamp_ms=self._clock.now_ms(),
        )
        self._delivery.remember(batch)
        self._step(VotersChanged(self.log.voters))
        self._appended()

    def _appended(self) -> None:
        self._update_stats()
        if self.core.must_flush:
            self._flush_wanted.set()
        self._notify_watchers()

    def _on_append_fetched(self, effect: AppendFetched) -> None:
        if self.log.append_fetched(self._requests.take_fetched()):
            self._step(VotersChanged(self.log.voters))
        self._appended()
        if not self.core.must_flush:
            self._step(Flushed(self.log.end_offset))

    def _on_truncate(self, effect: TruncateLog) -> None:
        _log.info("truncating the metadata log", end_offset=effect.end_offset)
        if self.log.truncate_to(effect.end_offset):
            self._step(VotersChanged(self.log.voters))
        self._delivery.forget_from(effect.end_offset)
        self._step(LogTruncated())

    def _install_snapshot(self, effect: InstallSnapshot) -> None:
        self.log.install_snapshot(effect.id)
        self._delivery.forget_from(0)
        self._step(VotersChanged(self.log.voters))
        self._step(SnapshotInstalled(effect.fetch_id, effect.id))

    def _on_high_watermark(self, effect: HighWatermarkAdvanced) -> None:
        self.log.update_high_watermark(effect.offset)
        self._delivery.committed(effect.offset)
        self._delivery_wanted.set()
        self._notify_watchers()

    def _on_leader_changed(self, effect: LeaderChanged) -> None:
        _log.info("metadata quorum leader", leader=effect.leader_id, epoch=effect.epoch)
        if effect.leader_id is not None:
            self.stats.leader_known(effect.leader_id == self.node_id, self._clock.monotonic_ms())
        self._delivery.leader_changed(effect, self._epoch_start_offset)
        self._delivery_wanted.set()
        self._notify_watchers()
        for callback in self._leader_watchers:
            callback()

    def _on_voter_gone(self, effect: VoterGone) -> None:
        for callback in self._gone_watchers:
            callback(effect.voter_id)

    def _on_reply(self, effect: Answer) -> None:
        self._answers.pop(effect.token)(effect)

    # --- background ---------------------------------------------------------------------------

    async def _flush_forever(self) -> None:
        while True:
            await self._flush_wanted.wait()
            self._flush_wanted.clear()
            durable = await self.log.flush()
            self._step(Flushed(min(durable, self.log.end_offset)))
            if durable < self.log.end_offset:
                self._flush_wanted.set()

    async def _deliver_forever(self) -> None:
        while True:
            await self._delivery_wanted.wait()
            self._delivery_wanted.clear()
            slice_end_ms = self._clock.monotonic_ms() + DELIVERY_SLICE_MS
            while self._delivery.step():
                if self._clock.monotonic_ms() >= slice_end_ms:
                    await asyncio.sleep(0)
                    slice_end_ms = self._clock.monotonic_ms() + DELIVERY_SLICE_MS

    async def _clean_forever(self) -> None:
        while True:
            await asyncio.sleep(CLEAN_INTERVAL_MS / 1000.0)
            for removed in self.log.clean(self._clock.now_ms()):
                _log.info("removed a metadata snapshot", offset=removed.offset, epoch=removed.epoch)


_EFFECTS: Mapping[type[Any], Callable[[QuorumNode, Any], None]] = {
    PersistState: QuorumNode._on_persist,
    AppendLeaderChange: QuorumNode._on_append_leader_change,
    AppendVoters: QuorumNode._on_append_voters,
    AppendFetched: QuorumNode._on_append_fetched,
    TruncateLog: QuorumNode._on_truncate,
    InstallSnapshot: lambda node, effect: node._requests.fetch_snapshot(effect),
    HighWatermarkAdvanced: QuorumNode._on_high_watermark,
    LeaderChanged: QuorumNode._on_leader_changed,
    VoterGone: QuorumNode._on_voter_gone,
    SendVote: lambda node, effect: node._requests.send_vote(effect),
    SendBeginEpoch: lambda node, effect: node._requests.send_begin_epoch(effect),
    SendEndEpoch: lambda node, effect: node._requests.send_end_epoch(effect),
    SendFetch: lambda node, effect: node._requests.send_fetch(effect),
    FindLeader: lambda node, effect: node._requests.find_leader(effect),
    SendVoterUpdate: lambda node, effect: node._requests.send_voter_update(effect),
    ReplyVote: QuorumNode._on_reply,
    ReplyEpoch: QuorumNode._on_reply,
    ReplyFetch: QuorumNode._on_reply,
    ReplyVoterUpdate: QuorumNode._on_reply,
}
