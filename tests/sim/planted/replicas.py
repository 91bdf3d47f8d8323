"""Planted bugs of new replicas (KIP-1023), and of leaders with too short a local log (KIP-1303)."""

from __future__ import annotations

from testkit.planting import Bug, bug

PARTITION = "broker.replication.partition"
RESETS = "broker.replication.fetching.offset_resets:ListOffsetsReset"
TRUNCATION = "storage.log.truncation:LogTruncation"
SET_ISR = f"__import__('{PARTITION}.isr_changes', fromlist=['set_isr']).set_isr"
"""The module of reports imports no function that changes an ISR: a patch has to."""
FAMILY = "replicas"

REPLICAS: tuple[Bug, ...] = (
    bug(
        "empty local log is enough",
        FAMILY,
        "L2",
        "a replica without local records may be preferred as leader",
        ("metalog.image.local_log:judge", "if size == 0:", "if False:"),
        (
            "controller.elections.local_logs:_judged",
            "not judge(one.stats, thresholds, now_ms).enough",
            "one.stats.size_bytes and not judge(one.stats, thresholds, now_ms).enough",
        ),
    ),
    bug(
        "sorted in place",
        FAMILY,
        "L3|P23",
        "the order of an election is stored as the order of the replicas",
        (
            "controller.elections.partition_change:decide_change",
            "ordered = safety.order(place, draft.replicas, safety.now_ms)",
            "ordered = draft.replicas = safety.order(place, draft.replicas, safety.now_ms)",
        ),
    ),
    bug(
        "report response overwrites the ISR",
        FAMILY,
        "L4|P3|P12|P2",
        "the response to a report reverts an ISR change proposed meanwhile",
        (
            f"{PARTITION}.local_log_reports:report_answered",
            "and partition.isr == frozenset(state.isr)",
            f"and {SET_ISR}(partition, frozenset(state.isr), counted=False) is not None",
        ),
        (
            f"{PARTITION}.local_log_reports:report_answered",
            "return keep_proposal(partition, partition.proposal)",
            "partition.proposal = None; return NOTHING",
        ),
    ),
    bug(
        "marker removed early",
        FAMILY,
        "S|P",
        "a log that begins behind the tier counts as whole before its epochs are on disk",
        (
            f"{TRUNCATION}._bootstrap",
            "self._begin_with(beginning)",
            "self._files.unlink(marker_path(directory)); self._begin_with(beginning)",
        ),
        (
            f"{TRUNCATION}._bootstrap",
            "return False\n    self._files.unlink(marker_path(directory))\n",
            "return False\n",
        ),
    ),
    bug(
        "local-log stats of an earlier incarnation",
        FAMILY,
        "L1",
        "stats reported by an earlier incarnation are kept for the present one",
        (
            "broker.replication.partition.remote_replica:RemoteReplica.fetched",
            "self.local_start_ms = self.local_bytes = UNKNOWN",
            "pass",
        ),
        (
            "controller.elections.local_logs:with_report",
            "known[0] == life",
            "known[0]",
        ),
    ),
    bug(
        "epoch of the first offset",
        FAMILY,
        "S5",
        "the copy before a new log is looked up by the epoch of its first offset",
        (
            f"{RESETS}._ask_untiered",
            "epoch = await self._epoch_of(link, partition, pending.offset - 1, "
            "pending.leader_epoch)",
            "epoch = pending.leader_epoch",
        ),
        (
            f"{RESETS}._ask_tiered",
            "epoch = await self._epoch_of(link, partition, local.offset - 1, local.leader_epoch)",
            "epoch = local.leader_epoch",
        ),
    ),
    bug(
        "highest offset for the part before",
        FAMILY,
        "S5",
        "the copy before a new log is the one with the highest offset",
        (
            "broker.tiering.following:TierBeginnings._copy_before",
            "cache.find(leader.epoch_before, before)",
            "max((s for s in cache.finished() if s.start_offset <= before <= s.end_offset), "
            "key=lambda s: s.end_offset, default=None)",
        ),
        # The copies of a lineage that lost an election are kept.
        situation=[
            (
                "storage.tiered.expiry:_otherwise",
                "if useful is None and lineage.lost(segment):",
                "if False:",
            )
        ],
    ),
)
