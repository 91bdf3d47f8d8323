"""Shell: Effects of a replica's core on its metadata log, its listeners and its watchers.

As in Kafka, a broker does not flush what it fetches. It acts on committed records, which a majority
of the controllers has on disk. If it waited for its own disk, it would lead and follow later, just
when that disk also writes the epochs of new leaders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from metalog.quorum.background import BackgroundWork
from metalog.quorum.batches import Batch, kraft_version_record, leader_change, voters_record
from metalog.quorum.core.messages import (
    AppendFetched,
    AppendLeaderChange,
    AppendVoters,
    Flushed,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LeaderChanged,
    LogTruncated,
    PersistState,
    SnapshotInstalled,
    TruncateLog,
    VoterGone,
    VotersChanged,
)
from metalog.quorum.core.quorum import QuorumCore
from metalog.quorum.delivery import Delivery
from metalog.quorum.driver import CoreDriver
from metalog.quorum.log import MetadataLog
from metalog.quorum.peer_requests import Spawn
from metalog.quorum.state_file import format_quorum_state
from metalog.quorum.stats import QuorumStats
from metalog.quorum.watchers import Watchers
from protocol.schema import Buffer, ControlRecord
from runtime.clock import Clock
from runtime.log import get_logger
from storage.files.port import Files

_log = get_logger("metalog.quorum")


class StateEffects:
    """The writes of a replica's quorum-state."""

    def __init__(self, log: MetadataLog, driver: CoreDriver, files: Files, spawn: Spawn) -> None:
        self.writes_at_once = True
        """True during the start: quorum-state is written without a task."""
        self._log = log
        self._driver = driver
        self._files = files
        self._spawn = spawn

    def persist(self, effect: PersistState) -> None:
        """Write quorum-state; later effects wait until it is durable."""
        data = format_quorum_state(effect.state, self._log.kraft_version, self._log.voters.ids)
        if self.writes_at_once:
            self._files.write_atomic(self._log.state_file.path, data)
            return
        self._driver.is_persisting = True
        self._spawn("persist quorum-state", self._write(data))

    async def _write(self, data: bytes) -> None:
        await self._files.run(self._files.write_atomic, self._log.state_file.path, data)
        self._driver.persisted()


class LogEffects:
    """The effects of one replica on its log, its listeners and its watchers.

    Args:
        take_fetched: returns the records of the fetch that the core has accepted.
    """

    def __init__(
        self,
        node_id: int,
        core: QuorumCore,
        log: MetadataLog,
        driver: CoreDriver,
        *,
        delivery: Delivery,
        background: BackgroundWork,
        watchers: Watchers,
        stats: QuorumStats,
        clock: Clock,
        take_fetched: Callable[[], Buffer],
    ) -> None:
        self._node_id = node_id
        self._core = core
        self._log = log
        self._driver = driver
        self._delivery = delivery
        self._background = background
        self._watchers = watchers
        self._stats = stats
        self._clock = clock
        self._take_fetched = take_fetched
        self._epoch_start_offset = 0

    def table(self) -> Mapping[type[Any], Callable[[Any], None]]:
        """Return the function for each kind of effect."""
        return {
            AppendLeaderChange: self._append_leader_change,
            AppendVoters: self._append_voters,
            AppendFetched: self._append_fetched,
            TruncateLog: self._truncate,
            HighWatermarkAdvanced: self._high_watermark,
            LeaderChanged: self._leader_changed,
            VoterGone: self._voter_gone,
        }

    # --- the log ------------------------------------------------------------------------------

    def _append_leader_change(self, effect: AppendLeaderChange) -> None:
        change = leader_change(effect.leader_id, effect.voter_ids, effect.granting_ids)
        records: list[ControlRecord] = [change]
        if effect.write_voters:
            records += [
                kraft_version_record(self._log.kraft_version),
                voters_record(self._log.voters),
            ]
        self._epoch_start_offset = self._log.end_offset
        batch, voters_changed = self._log.append_control(
            records, epoch=effect.epoch, timestamp_ms=self._clock.now_ms()
        )
        self._delivery.remember(batch)
        if voters_changed:
            self._driver.step(VotersChanged(self._log.voters))
        self._appended()

    def _append_voters(self, effect: AppendVoters) -> None:
        batch, _ = self._log.append_control(
            [voters_record(effect.voters)],
            epoch=effect.epoch,
            timestamp_ms=self._clock.now_ms(),
        )
        self._delivery.remember(batch)
        self._driver.step(VotersChanged(self._log.voters))
        self._appended()

    def appended(self, batch: Batch) -> None:
        """Note a batch that this node has appended as the leader."""
        self._delivery.remember(batch)
        self._appended()

    def _appended(self) -> None:
        self._driver.update_stats()
        if self._core.must_flush:
            self._background.want_flush()
        self._watchers.log_changed()

    def _append_fetched(self, effect: AppendFetched) -> None:
        if self._log.append_fetched(self._take_fetched()):
            self._driver.step(VotersChanged(self._log.voters))
        self._appended()
        if not self._core.must_flush:
            self._driver.step(Flushed(self._log.end_offset))

    def _truncate(self, effect: TruncateLog) -> None:
        _log.info("truncating the metadata log", end_offset=effect.end_offset)
        if self._log.truncate_to(effect.end_offset):
            self._driver.step(VotersChanged(self._log.voters))
        self._delivery.forget_from(effect.end_offset)
        self._driver.step(LogTruncated())

    def install_snapshot(self, effect: InstallSnapshot) -> None:
        """Replace the log by a snapshot that was fetched."""
        self._log.install_snapshot(effect.id)
        self._delivery.forget_from(0)
        self._driver.step(VotersChanged(self._log.voters))
        self._driver.step(SnapshotInstalled(effect.fetch_id, effect.id))

    # --- listeners and watchers ---------------------------------------------------------------

    def _high_watermark(self, effect: HighWatermarkAdvanced) -> None:
        self._log.update_high_watermark(effect.offset)
        self._delivery.committed(effect.offset)
        self._background.want_delivery()
        self._watchers.log_changed()

    def _leader_changed(self, effect: LeaderChanged) -> None:
        _log.info("metadata quorum leader", leader=effect.leader_id, epoch=effect.epoch)
        if effect.leader_id is not None:
            self._stats.leader_known(effect.leader_id == self._node_id, self._clock.monotonic_ms())
        self._delivery.leader_changed(effect, self._epoch_start_offset)
        self._background.want_delivery()
        self._watchers.log_changed()
        self._watchers.leader_changed()

    def _voter_gone(self, effect: VoterGone) -> None:
        self._watchers.voter_gone(effect.voter_id)
