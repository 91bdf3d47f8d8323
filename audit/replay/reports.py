"""Reports of a replay: findings of its checks, and the events and rows that become tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from audit.checks.base import BatchEnd, BrokerChange, Check, CheckTable, Difference, Replacement
from audit.findings.finding import Complaint
from audit.findings.sink import Elected, Sink
from audit.replay.scope import Scope
from audit.state import local_logs
from audit.state.cluster import ClusterState, PartitionState
from audit.state.elections import Election
from audit.state.shapes import ShapeKey


class Reports:
    """Writes the results of a replay to the sink, with their position in the log.

    `history`: whether to write a row for each record of a partition.
    """

    def __init__(
        self,
        scope: Scope,
        cluster: ClusterState,
        sink: Sink,
        checks: CheckTable,
        *,
        history: bool = False,
    ) -> None:
        self.sink = sink
        self.keeps_history = history
        self._scope = scope
        self._cluster = cluster
        self._checks = checks

    # --- checks --------------------------------------------------------------------------------

    def check_replacement(self, replacement: Replacement) -> None:
        for check in self._checks.replacements:
            self._complain_all(check, check.on_replacement(replacement))

    def check_election(self, election: Election) -> None:
        for check in self._checks.elections:
            self._complain_all(check, check.on_election(election))

    def check_broker(self, change: BrokerChange) -> None:
        for check in self._checks.brokers:
            self._complain_all(check, check.on_broker(change))

    def check_batch_end(self, end: BatchEnd) -> None:
        for check in self._checks.batch_ends:
            self._complain_all(check, check.on_batch_end(end))

    def check_snapshot(self, differences: Sequence[Difference]) -> None:
        for check in self._checks.snapshots:
            self._complain_all(check, check.on_snapshot(differences))

    def _complain_all(self, check: Check, complaints: Iterable[Complaint]) -> None:
        for complaint in complaints:
            self.complain(check, complaint)

    def complain(self, check: Check, complaint: Complaint) -> None:
        """Write a finding, unless a level of a later release has been in force.

        The state may then lack effects of unknown records, so that no check can judge it.
        """
        if self._cluster.unknown_levels:
            return
        scope = self._scope
        self.sink.finding(
            complaint.finding(check.name, check.severity, scope.offset, scope.timestamp_ms)
        )

    def record_error(self, offset: int, reason: str, *, orphan: bool) -> None:
        """Report a record that cannot be decoded, or that refers to unknown objects (`orphan`)."""
        self._scope.offset = offset
        if self._scope.shard == 0 or orphan:
            for check in self._checks.record_errors:
                self._complain_all(check, check.on_record_error(reason, orphan))

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
