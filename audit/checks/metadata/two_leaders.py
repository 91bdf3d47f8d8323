"""A leader epoch of a partition has one leader."""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.base import Replacement, ReplacementCheck
from audit.findings.finding import Complaint
from audit.state.shapes import NO_LEADER, describe


class TwoLeaders(ReplacementCheck):
    name = "one-leader-per-epoch"

    def on_replacement(self, replacement: Replacement) -> Iterable[Complaint]:
        partition, before, after = replacement[:3]
        same_epoch = replacement.leader_epoch == partition.leader_epoch
        if (
            same_epoch
            and before.leader != after.leader
            and NO_LEADER
            not in (
                before.leader,
                after.leader,
            )
        ):
            yield Complaint(
                f"{partition.topic.name}-{partition.index} has two leaders in leader epoch "
                f"{partition.leader_epoch}: broker {before.leader}, then broker {after.leader}",
                before=describe(before, partition.leader_epoch, partition.partition_epoch),
                after=describe(after, replacement.leader_epoch, replacement.partition_epoch),
                topic=partition.topic.name,
                partition=partition.index,
            )
