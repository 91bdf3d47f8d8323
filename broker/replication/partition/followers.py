"""Followers' fetches, as they move a leader's partition.

A follower's fetch moves its log end only if it comes from the broker's current epoch. A delayed
request from before a restart thus cannot make an empty replica look complete (KIP-903).
"""

from __future__ import annotations

from broker.replication.partition.effects import NOTHING, Effects
from broker.replication.partition.high_watermark import maybe_advance_high_watermark
from broker.replication.partition.isr_changes import low_watermark_moved, maybe_expand
from broker.replication.partition.partition import Partition
from broker.replication.partition.remote_replica import FetchTimes
from runtime.marks import mark


def follower_fetched(
    partition: Partition,
    replica_id: int,
    *,
    offset: int,
    log_start: int,
    broker_epoch: int,
    now_ms: float,
    may_join: bool = False,
    times: FetchTimes | None = None,
) -> Effects:
    """Note that a follower has everything below `offset`.

    The caller has checked that `broker_epoch` is the follower's current one. `may_join` applies
    to a follower outside the maximal ISR: its broker is unfenced and not shutting down
    (KIP-841). `times` are those of its fetch session.
    """
    remote = partition.remote.get(replica_id)
    if remote is None:
        return NOTHING
    if broker_epoch < remote.broker_epoch:
        mark("replication.fetch-of-earlier-life")
        return NOTHING
    before, start_before = remote.log_end, remote.log_start
    remote.fetched(offset, log_start, broker_epoch, partition.log.log_end_offset, now_ms, times)
    effects = NOTHING
    if may_join and replica_id not in partition.maximal_isr:
        effects = maybe_expand(partition, replica_id, remote)
    if log_start != start_before:
        effects += low_watermark_moved(partition)
    return effects if offset == before else effects + maybe_advance_high_watermark(partition)
