"""High watermark of a partition, on its leader and on its followers.

- A leader's high watermark is the smallest log end among the maximal ISR (the committed ISR
  together with the members of an unanswered AlterPartition proposal). It moves only while the
  committed ISR has the effective minimum of members: min(min.insync.replicas, replication factor).
  It never goes back.
- The controller judges an ISR by its own min ISR, which may be higher already. Any replica that it
  then counts as an eligible leader must have all committed records (KIP-966). If an accepted
  proposal shrinks the ISR or changes one below the minimum, an ELR may exist. The high watermark
  then waits until this broker's metadata has that partition epoch, and thus all earlier
  configurations.
- A new leader's high watermark may be below the start of its own epoch. Until it has passed that,
  no request that needs a monotone high watermark is answered (OFFSET_NOT_AVAILABLE).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.replication.partition.effects import EPOCHS_UNSAVED, FLUSH_WANTED, NOTHING, Effects
from broker.replication.partition.partition import Partition
from broker.replication.partition.role import ReplicaRole
from broker.replication.subscriptions.notifications import Committed, Readable, StableMoved

if TYPE_CHECKING:
    from storage.log.append import AppendInfo


def appended(partition: Partition, info: AppendInfo, size_bytes: int) -> Effects:
    """Note a batch that the leader's log has accepted; advance the high watermark and wake
    fetches."""
    partition.uncommitted.append((info.last_offset + 1, size_bytes))
    if not partition.subscriptions.followers:
        return maybe_advance_high_watermark(partition)
    for remote in partition.remote.values():
        if remote.resting is not None:
            remote.wake()
    return (Readable(size_bytes),) + maybe_advance_high_watermark(partition)


def maybe_advance_high_watermark(partition: Partition) -> Effects:
    """Advance the high watermark as far as the maximal ISR allows."""
    log = partition.log
    if partition.unread_isr or (
        len(partition.isr) < partition.min_isr and len(partition.isr) < partition.effective_min_isr
    ):
        return NOTHING
    effects = NOTHING
    target = log.log_end_offset
    if target > log.high_watermark and target >= log.epoch_file.limit:
        # No record is visible before its epoch is in the file (see `epoch_saver`). If a
        # partition receives writes when its epoch begins, the epoch is in the file before its
        # first record.
        effects = epochs_unsaved(partition)
        target = min(target, log.epoch_file.limit)
    if target - log.recovery_point >= log.config.flush_messages:
        # A topic that flushes makes nothing visible that a power failure could remove.
        target = max(log.recovery_point, log.high_watermark)
        effects += FLUSH_WANTED
    if len(partition.maximal_isr) > 1 or partition.node_id not in partition.maximal_isr:
        for replica_id in partition.maximal_isr:
            remote = partition.remote.get(replica_id)
            if remote is not None and remote.log_end < target:
                target = remote.log_end
    if target > log.high_watermark:
        log.update_high_watermark(target)
        return high_watermark_moved(partition, target) + effects
    return effects


def high_watermark_moved(partition: Partition, high_watermark: int) -> Effects:
    uncommitted = partition.uncommitted
    size_bytes = 0
    while uncommitted and uncommitted[0][0] <= high_watermark:
        size_bytes += uncommitted.popleft()[1]
    to, stable = partition.subscriptions, partition.stable_bytes
    stable_bytes: int | None = size_bytes
    stable_offset = partition.log.last_stable_offset
    if stable_offset == high_watermark and not stable:
        stable.stable_offset = stable_offset
    else:
        stable_bytes = stable.moved(high_watermark, size_bytes, stable_offset)
    if to.committed_consumers:
        committed = Committed(high_watermark, size_bytes)
        return (committed,) if stable_bytes is None else (committed, StableMoved(stable_bytes))
    if to.consumers or to.followers or to.commit_waits:
        return (Committed(high_watermark, size_bytes),)
    return NOTHING


def epochs_unsaved(partition: Partition) -> Effects:
    """Return the effect that saves the log's epochs, if the file lacks any. A log that is about
    to begin behind the tier waits for more than its file."""
    return EPOCHS_UNSAVED if partition.log.epoch_file.unsaved else NOTHING


def epochs_saved(partition: Partition) -> Effects:
    """Advance the high watermark after the log's epochs were written to their file."""
    if partition.role is ReplicaRole.LEADER:
        return maybe_advance_high_watermark(partition)
    if partition.role is ReplicaRole.FOLLOWER:
        unshown = min(partition.unshown, partition.log.log_end_offset)
        if unshown > partition.log.high_watermark:
            return follow_high_watermark(partition, unshown)
    return NOTHING


def follower_appended(partition: Partition, size_bytes: int) -> Effects:
    """Note that the leader's records were appended up to the log end."""
    log = partition.log
    partition.uncommitted.append((log.log_end_offset, size_bytes))
    return epochs_unsaved(partition) if log.log_end_offset > log.epoch_file.limit else NOTHING


def follow_high_watermark(partition: Partition, high_watermark: int) -> Effects:
    """Apply the leader's high watermark, limited to the local log end; wake consumers here.

    As on the leader, it waits for an epoch's file.
    """
    effects = NOTHING
    if high_watermark > partition.log.epoch_file.limit:
        partition.unshown = high_watermark
        high_watermark = partition.log.epoch_file.limit
        effects = epochs_unsaved(partition)
    if high_watermark > partition.log.high_watermark:
        partition.log.update_high_watermark(high_watermark)
        return high_watermark_moved(partition, high_watermark) + effects
    return effects
