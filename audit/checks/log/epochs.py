"""Epochs never decrease: of the log's batches (M2), and of a partition and its leader (P15)."""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.base import BatchCheck, BatchContext, Replacement, ReplacementCheck
from audit.findings.finding import Complaint
from audit.state.shapes import describe


class Epochs(BatchCheck, ReplacementCheck):
    name = "epochs-monotone"

    def on_batch(self, context: BatchContext) -> Iterable[Complaint]:
        header = context.batch.header
        if context.last_epoch is not None and header.leader_epoch < context.last_epoch:
            yield Complaint(
                f"the batch at offset {header.base_offset} has epoch {header.leader_epoch}, but "
                f"one before it has {context.last_epoch}: a leader that was voted out wrote on",
                before={"epoch": context.last_epoch},
                after={"epoch": header.leader_epoch},
                offset=header.base_offset,
            )

    def on_replacement(self, replacement: Replacement) -> Iterable[Complaint]:
        partition = replacement.partition
        for name, before, after in (
            ("leader epoch", partition.leader_epoch, replacement.leader_epoch),
            ("partition epoch", partition.partition_epoch, replacement.partition_epoch),
        ):
            if after < before:
                yield Complaint(
                    f"the {name} of {partition.topic.name}-{partition.index} goes back from "
                    f"{before} to {after}",
                    before=describe(
                        replacement.before, partition.leader_epoch, partition.partition_epoch
                    ),
                    after=describe(
                        replacement.after, replacement.leader_epoch, replacement.partition_epoch
                    ),
                    topic=partition.topic.name,
                    partition=partition.index,
                )
