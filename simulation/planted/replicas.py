"""The planted bugs of new replicas (KIP-1023) and of leaders that hold enough of the log
(KIP-1303)."""

from __future__ import annotations

from simulation.planted.planting import Bug, bug

PARTITION = "broker.replication.partition:Partition"
RESETS = "broker.replication.offset_resets:ListOffsetsReset"
LOG = "storage.log.log:Log"
FAMILY = "replicas"

REPLICAS: tuple[Bug, ...] = (
    bug(
        "nothing is enough",
        FAMILY,
        "L2",
        "a replica that has nothing of the log locally may lead before others",
        ("metalog.image.local_log:judge", "if size == 0:", "if False:"),
        (
            "controller.elections.local_logs:LocalLogOrder.at",
            "short += (broker_id,)",
            "short += (broker_id,) if size else ()",
        ),
    ),
    bug(
        "sorted in place",
        FAMILY,
        "L3|P23",
        "the order of an election becomes the order of the replicas",
        (
            "controller.elections.partition_change:change_partition",
            "ordered = safety.order(place, draft.replicas, safety.now_ms)",
            "ordered = draft.replicas = safety.order(place, draft.replicas, safety.now_ms)",
        ),
    ),
    bug(
        "a report's answer is the ISR",
        FAMILY,
        "L4|P3|P12|P2",
        "the answer to a report takes back the change of the ISR that was proposed meanwhile",
        (
            f"{PARTITION}.report_answered",
            "and self.isr == frozenset(state.isr)",
            "and self._set_isr(frozenset(state.isr), counted=False) is None",
        ),
        (
            f"{PARTITION}.report_answered",
            "self._propose(self.proposal.broker_ids)",
            "self.proposal = None",
        ),
    ),
    bug(
        "marker away early",
        FAMILY,
        "S|P",
        "a log that begins behind the tier counts as whole before its epochs are on the disk",
        (
            f"{LOG}._bootstrap",
            "self._begin_with(beginning)",
            "files.unlink(marker_path(directory)); self._begin_with(beginning)",
        ),
        (
            f"{LOG}._bootstrap",
            "return False\n    files.unlink(marker_path(directory))\n",
            "return False\n",
        ),
    ),
)
