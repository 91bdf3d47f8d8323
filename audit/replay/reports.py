"""Reports of a replay: findings of its checks, and the events and rows that become tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from audit.checks.base import Check
from audit.findings.finding import Complaint
from audit.findings.sink import Elected, Sink
from audit.replay.scope import Scope
from audit.state import local_logs
from audit.state.cluster import ClusterState, PartitionState
from audit.state.shapes import ShapeKey

HOOKS = (
    "on_record_error",
    "on_replacement",
    "on_election",
    "on_broker",
    "on_batch_end",
    "on_snapshot",
)
"""Hooks of checks that a replay calls by name; its transitions call those of shapes."""


class Reports:
    """Writes the results of a replay to the sink, with their position in the log.

    `history`: whether to write a row for each record of a partition.
    """

    def __init__(
        self,
        scope: Scope,
        cluster: ClusterState,
        sink: Sink,
        checks: Sequence[Check],
        *,
        history: bool = False,
    ) -> None:
        self.sink = sink
        self.keeps_history = history
        self._scope = scope
        self._cluster = cluster
        self._checks = {
            hook: [c for c in checks if getattr(type(c), hook) is not getattr(Check, hook)]
            for hook in HOOKS
        }

    # --- checks --------------------------------------------------------------------------------

    def ask(self, hook: str, *arguments: Any) -> None:
        """Call the hook of all checks that override it."""
        for check in self._checks[hook]:
            answer: Callable[..., Iterable[Complaint]] = getattr(check, hook)
            for complaint in answer(*arguments):
                self.complain(check, complaint)

    def complain(self, check: Check, complaint: Complaint) -> None:
        scope = self._scope
        self.sink.finding(
            complaint.finding(check.name, check.severity, scope.offset, scope.timestamp_ms)
        )

    def record_error(self, offset: int, reason: str, *, orphan: bool) -> None:
        """Report a record that cannot be decoded, or that refers to unknown objects (`orphan`)."""
        self._scope.offset = offset
        if self._scope.shard == 0 or orphan:
            self.ask("on_record_error", reason, orphan)

    # --- events and rows -----------------------------------------------------------------------

    def event(self, kind: str, body: dict[str, Any], offset: int | None = None) -> None:
        """Write an event for the tables; `body` becomes JSON."""
        at = self._scope.offset if offset is None else offset
        self.sink.event(kind, at, self._scope.timestamp_ms, body)

    def leadership(
        self, partition: PartitionState, before: int | None, why: str, offset: int | None = None
    ) -> None:
        at = self._scope.offset if offset is None else offset
        self.sink.leadership(at, self._scope.timestamp_ms, partition, before, why)

    def reassignment(
        self, partition: PartitionState, old: ShapeKey, new: ShapeKey, offset: int
    ) -> None:
        busy_before, busy = old.adding or old.removing, new.adding or new.removing
        step = "changed" if busy and busy_before else "began" if busy else "ended"
        if step == "ended" and set(old.adding) and not set(old.adding) & set(new.replicas):
            step = "cancelled"
        body = {
            "offset": offset,
            "topic": partition.topic.name,
            "partition": partition.index,
            "step": step,
            "replicas": list(new.replicas),
            "adding": list(new.adding),
            "removing": list(new.removing),
        }
        self.event("reassignment", body, offset)

    def history(
        self,
        partition: PartitionState,
        record: str,
        offset: int,
        elected: Elected | None = None,
    ) -> None:
        """Write the partition after a record to the history, if rows of it are requested."""
        if self.keeps_history:
            timestamp_ms = self._scope.timestamp_ms
            known = local_logs.rows(self._cluster, partition, timestamp_ms)
            self.sink.history(offset, timestamp_ms, partition, record, elected, known)
