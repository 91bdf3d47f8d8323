"""An epoch of the quorum has one leader, and each LeaderChange begins a new epoch (M1, M9)."""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.base import Check, LeaderChange
from audit.findings import Complaint


class QuorumEpochs(Check):
    name = "one-quorum-leader-per-epoch"

    def __init__(self) -> None:
        self._last: LeaderChange | None = None

    def on_leader_change(self, change: LeaderChange) -> Iterable[Complaint]:
        last, self._last = self._last, change
        if last is not None and last.epoch == change.epoch and last.leader != change.leader:
            yield Complaint(
                f"quorum epoch {change.epoch} has two leaders: node {last.leader} since offset "
                f"{last.offset} and node {change.leader} since offset {change.offset}",
                before=last._asdict(),
                after=change._asdict(),
            )
