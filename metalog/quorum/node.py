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
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from metalog.image.features import LATEST_PRODUCTION_METADATA_VERSION, record_version
from metalog.image.snapshot import VersionedRecord, image_to_records
from metalog.image.values import MetadataImage
from metalog.quorum import wire
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
    RequestFailed,
    RequestKind,
    Resign,
    SendBeginEpoch,
    SendEndEpoch,
    SendFetch,
    SendVote,
    SendVoterUpdate,
    SnapshotAsked,
    SnapshotInstalled,
    SnapshotPieceFetched,
    Start,
    Tick,
    TruncateLog,
    VoterGone,
    VotersChanged,
    VoterUpdateAnswered,
)
from metalog.quorum.core.quorum import QuorumCore
from metalog.quorum.core.voters import NOBODY, Endpoints, ReplicaKey, VoterEndpoint, VoterSet
from metalog.quorum.delivery import Delivery, QuorumListener
from metalog.quorum.fetch_size import FetchSize
from metalog.quorum.log import MetadataLog
from metalog.quorum.peers import Peers
from metalog.quorum.snapshot_transfer import NotStored, SnapshotFetcher, SnapshotWriter
from metalog.quorum.stats import QuorumStats
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.schema import Buffer, ControlRecord, Response
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
        self._fetched: Buffer = b""
        self._fetch_size = FetchSize(config.fetch_max_bytes)
        self._fetching: asyncio.Task[Any] | None = None
        # A dictionary as an ordered set: called in the order of registration.
        self._fetch_watchers: dict[Callable[[], None], None] = {}
        self._early_listeners: list[QuorumListener] = []
        self._leader_watchers: list[Callable[[], None]] = []
        self._gone_watchers: list[Callable[[int], None]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._end_epoch_requests: set[asyncio.Task[Any]] = set()
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
        self._snapshot_fetcher = SnapshotFetcher(self._files, self.log, self.peers, config)
        self.core = QuorumCore(
            node=config.node,
            log=self.log,
            state=self.log.read_state() or QuorumState(),
            voters=self.log.voters,
            voters_in_log=self.log.voters_in_log,
            timing=config.timing,
            jitter=self._jitter,
            addresses=self._addresses,
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
        if self._end_epoch_requests:
            wait_s = self.config.timing.request_timeout_ms / 1000.0
            await asyncio.wait(self._end_epoch_requests, timeout=wait_s)
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
        data = self.log.encode_state(effect.state)
        if not self._started:
            self._files.write_atomic(self.log.state_path, data)
            return
        self._persisting = True
        self._spawn("persist quorum-state", self._persist(data))

    async def _persist(self, data: bytes) -> None:
        await self._files.run(self._files.write_atomic, self.log.state_path, data)
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
        data, self._fetched = self._fetched, b""
        if self.log.append_fetched(data):
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

    def _on_install_snapshot(self, effect: InstallSnapshot) -> None:
        self._stop_fetching()
        self._fetching = self._spawn("fetch a metadata snapshot", self._install_snapshot(effect))

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

    # --- requests to peers --------------------------------------------------------------------

    def _on_send_vote(self, effect: SendVote) -> None:
        poll = effect.epoch, effect.pre_vote
        self._ask_peer(RequestKind.VOTE, effect.to, lambda: self._vote(effect), poll=poll)

    def _on_send_begin_epoch(self, effect: SendBeginEpoch) -> None:
        self._ask_peer(RequestKind.BEGIN_EPOCH, effect.to, lambda: self._begin_epoch(effect))

    def _on_send_end_epoch(self, effect: SendEndEpoch) -> None:
        task = self._ask_peer(RequestKind.END_EPOCH, effect.to, lambda: self._end_epoch(effect))
        self._end_epoch_requests.add(task)
        task.add_done_callback(self._end_epoch_requests.discard)

    def _on_send_voter_update(self, effect: SendVoterUpdate) -> None:
        self._ask_peer(RequestKind.UPDATE_VOTER, effect.to, lambda: self._update_voter(effect))

    def _on_send_fetch(self, effect: SendFetch) -> None:
        self._stop_fetching()
        self._fetching = self._ask_peer(
            RequestKind.FETCH, effect.to, lambda: self._fetch_from_leader(effect), effect.fetch_id
        )

    def _on_find_leader(self, effect: FindLeader) -> None:
        self._stop_fetching()
        self._fetching = self._ask_peer(
            RequestKind.FETCH, NOBODY, lambda: self._find_leader(effect), effect.fetch_id
        )

    async def _fetch_from_leader(self, effect: SendFetch) -> None:
        wait_ms = self.config.fetch_wait_ms_max if effect.patient else 0
        await self._fetch(effect, effect.to, self._address(effect.to), wait_ms=wait_ms)

    async def _find_leader(self, effect: FindLeader) -> None:
        await self._fetch(effect, NOBODY, effect.endpoint, timeout_ms=effect.timeout_ms)

    def _stop_fetching(self) -> None:
        """Cancel the fetch or snapshot in flight, which the core has abandoned."""
        if self._fetching is not None and self._fetching is not asyncio.current_task():
            self._fetching.cancel()
        self._fetching = None

    def _ask_peer(
        self,
        kind: RequestKind,
        node_id: int,
        work: Callable[[], Awaitable[None]],
        fetch_id: int | None = None,
        poll: tuple[int, bool] | None = None,
    ) -> asyncio.Task[Any]:
        failed = RequestFailed(node_id, kind, fetch_id, poll=poll)
        return self._spawn(f"{kind.value} to {node_id}", self._or_failed(failed, work))

    async def _or_failed(self, failed: RequestFailed, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except LogFailed:
            raise  # this node's disk failed
        except (OSError, ApiError, ProtocolError) as error:
            _log.debug(
                "a quorum peer did not answer",
                peer=failed.node_id,
                kind=failed.kind.value,
                why=str(error),
            )
            self._step(failed._replace(refused=isinstance(error, ConnectionRefusedError)))

    def _address(self, node_id: int) -> VoterEndpoint:
        endpoint = self.core.endpoint_of(node_id)
        if endpoint is None:
            raise ConnectionError(f"unknown endpoint of node {node_id}")
        return endpoint

    async def _vote(self, effect: SendVote) -> None:
        voter = self.core.voters.get(effect.to)
        if voter is None:
            return
        request = wire.vote_request(effect, self.cluster_id, self.config.node, voter.key)
        response = await self.peers.request(self._address(effect.to), request)
        answered = wire.vote_answered(effect.to, response, pre_vote=effect.pre_vote)
        if answered is not None:
            self._step(answered)

    async def _begin_epoch(self, effect: SendBeginEpoch) -> None:
        voter = self.core.voters.get(effect.to)
        if voter is None:
            return
        request = wire.begin_epoch_request(
            effect.epoch, self.cluster_id, self.node_id, voter.key, self.endpoints
        )
        response = await self.peers.request(self._address(effect.to), request)
        answered = wire.epoch_answered(effect.to, response)
        if answered is not None:
            self._step(answered)

    async def _end_epoch(self, effect: SendEndEpoch) -> None:
        request = wire.end_epoch_request(effect, self.cluster_id, self.node_id, self.endpoints)
        response = await self.peers.request(self._address(effect.to), request)
        answered = wire.epoch_answered(effect.to, response)
        if answered is not None:
            self._step(answered)

    async def _update_voter(self, effect: SendVoterUpdate) -> None:
        request = wire.update_voter_request(effect.voter, self.cluster_id, effect.epoch)
        response = await self.peers.request(self._address(effect.to), request)
        error = ErrorCode(response.error_code)
        endpoints = str(effect.voter.endpoints)
        _log.info(
            "sent this voter's endpoints to the leader", endpoints=endpoints, error=error.name
        )
        self._step(VoterUpdateAnswered(error))

    async def _fetch(
        self,
        effect: SendFetch | FindLeader,
        node_id: int,
        to: VoterEndpoint,
        *,
        wait_ms: int = 0,
        timeout_ms: float | None = None,
    ) -> None:
        config = self.config
        request = wire.fetch_request(
            effect,
            self.cluster_id,
            config.node,
            max_bytes=self._fetch_size.wanted_bytes,
            max_wait_ms=wait_ms,
            high_watermark=-1 if self.high_watermark is None else self.high_watermark,
        )
        response = await self.peers.request(to, request, wait_ms=wait_ms, timeout_ms=timeout_ms)
        answered = wire.fetch_answered(effect.fetch_id, node_id, response)
        if answered is None:
            raise ApiError(
                ErrorCode(response.error_code), "Fetch response without the requested partition"
            )
        event, records = answered
        if self.core.awaits(effect.fetch_id):
            data = b"".join(records) if isinstance(records, list) else records
            self._fetched = self._fetch_size.cut(data)
            self.log.check_fetched(self._fetched)
        self._step(event)

    async def _install_snapshot(self, effect: InstallSnapshot) -> None:
        piece = SnapshotPieceFetched(effect.fetch_id)
        try:
            to = self._address(effect.node_id)
            await self._snapshot_fetcher.fetch(effect, to, lambda: self._step(piece))
        except (OSError, ApiError, ProtocolError) as error:
            _log.warning("fetching a metadata snapshot failed", why=str(error))
            failed = RequestFailed(effect.node_id, RequestKind.FETCH_SNAPSHOT, effect.fetch_id)
            self._step(failed._replace(not_stored=isinstance(error, NotStored)))
            return
        if not self.core.awaits(effect.fetch_id):
            return
        self.log.install_snapshot(effect.id)
        self._delivery.forget_from(0)
        self._step(VotersChanged(self.log.voters))
        self._step(SnapshotInstalled(effect.fetch_id, effect.id))


_EFFECTS: Mapping[type[Any], Callable[[QuorumNode, Any], None]] = {
    PersistState: QuorumNode._on_persist,
    AppendLeaderChange: QuorumNode._on_append_leader_change,
    AppendVoters: QuorumNode._on_append_voters,
    AppendFetched: QuorumNode._on_append_fetched,
    TruncateLog: QuorumNode._on_truncate,
    InstallSnapshot: QuorumNode._on_install_snapshot,
    HighWatermarkAdvanced: QuorumNode._on_high_watermark,
    LeaderChanged: QuorumNode._on_leader_changed,
    VoterGone: QuorumNode._on_voter_gone,
    SendVote: QuorumNode._on_send_vote,
    SendBeginEpoch: QuorumNode._on_send_begin_epoch,
    SendEndEpoch: QuorumNode._on_send_end_epoch,
    SendFetch: QuorumNode._on_send_fetch,
    FindLeader: QuorumNode._on_find_leader,
    SendVoterUpdate: QuorumNode._on_send_voter_update,
    ReplyVote: QuorumNode._on_reply,
    ReplyEpoch: QuorumNode._on_reply,
    ReplyFetch: QuorumNode._on_reply,
    ReplyVoterUpdate: QuorumNode._on_reply,
}
