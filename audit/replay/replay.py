"""The replay: applies records to the state, calls checks, reports elections and events.

`Replay.batch` is the only entry point. Changes of partitions whose state is certain take the fast
path, `Partitions.change`: look up the partition, look up the transition, add. All other records go
through `Effects.apply`.

Only records that were committed together take effect: the records of a metadata transaction
(KIP-868) wait for its end, and are dropped if it is aborted. After a gap in the log, or a batch
with a wrong CRC, partitions and brokers are uncertain until a record contains their whole state.
Checks that compare with the state before skip them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from audit.checks.base import BatchEnd, CheckTable
from audit.decoding.batches import Batch, Row
from audit.decoding.records import CHANGE_TYPE, KEY_AT, KEY_END
from audit.findings.sink import Sink
from audit.replay.brokers import BatchEvents, Brokers
from audit.replay.effects import Effects
from audit.replay.partitions import Partitions
from audit.replay.reports import Reports
from audit.replay.scope import Orphan, Scope
from audit.replay.statistics import Statistics
from audit.state.cluster import ClusterState
from audit.state.elections import LeaderChange
from protocol.errors import ApiError, ProtocolError
from protocol.metadata import decode_record


class Replay:
    """One replay of one interval, or of one shard of its partitions."""

    def __init__(
        self, scope: Scope, checks: CheckTable, sink: Sink, *, min_isr: int, history: bool
    ) -> None:
        self.scope = scope
        self.cluster = ClusterState(min_isr)
        self.statistics = Statistics(self.cluster)
        self.reports = Reports(scope, self.cluster, sink, checks, history=history)
        self._brokers = Brokers(self.cluster, scope, self.reports)
        self._partitions = Partitions(self.cluster, scope, self.statistics, self.reports, checks)
        self._effects = Effects(self.cluster, scope, self.reports, self._brokers, self._partitions)
        self._rows: Sequence[Row] = ()
        self._transaction: list[Row] | None = None
        """Records that wait for the end of their transaction; None outside of one."""

    def batch(self, batch: Batch, rows: Sequence[Row]) -> None:
        """Replay one batch of metadata records."""
        self.scope.timestamp_ms = batch.header.max_timestamp
        self.statistics.batches += 1
        self.statistics.records += len(rows)
        self._apply_rows(rows, rows)
        self._end_batch()

    def _apply_rows(self, rows: Iterable[Row], together: Sequence[Row]) -> None:
        """Apply `rows`; `together` are the rows that were committed together with them."""
        self._rows = together
        self._partitions.batch_events = BatchEvents(together)
        known, change = self.cluster.partitions, self._partitions.change
        for row in rows:
            value = row[3] or b""
            if len(value) > KEY_END and value[1] == CHANGE_TYPE and self._transaction is None:
                partition = known.get(value[KEY_AT:KEY_END])
                if partition is not None and partition.certain:
                    change(partition, value, row[0])
                    continue
            self._other(row, value)

    def _other(self, row: Row, value: bytes) -> None:
        """Apply a record that is not a change of a certain partition."""
        offset = row[0]
        try:
            record, _ = decode_record(value)
        except (ProtocolError, ApiError) as error:
            self.reports.record_error(offset, str(error), orphan=False)
            return
        name = type(record).__name__
        if name.endswith("TransactionRecord"):
            self._bound_transaction(name)
            return
        if self._transaction is not None:
            self._transaction.append(row)
            return
        self.scope.offset = offset
        if not self.scope.loading:
            types = self.statistics.record_types
            types[name] = types.get(name, 0) + 1
        try:
            self._effects.apply(record)
        except Orphan as error:
            if not self.scope.in_doubt:
                self.reports.record_error(offset, str(error), orphan=True)

    def _bound_transaction(self, name: str) -> None:
        """Begin, commit or abort a metadata transaction."""
        waiting, self._transaction = self._transaction, None
        if name.startswith("Begin"):
            self._transaction = []
        elif name.startswith("End") and waiting:
            self._apply_rows(waiting, [*self._rows, *waiting])

    def _end_batch(self) -> None:
        if self._transaction is not None:
            return
        self.statistics.series.point(self.scope.timestamp_ms)
        grown, fenced = self._partitions.grown, self._brokers.fenced
        if grown or fenced:
            if not self.scope.loading and not self.scope.in_doubt:
                end = BatchEnd(self.cluster, grown, frozenset(fenced))
                self.reports.check_batch_end(end)
            self._partitions.grown, self._brokers.fenced = [], set()

    def doubt(self) -> None:
        """Mark all state as uncertain: records are missing or unreadable here."""
        self.scope.certain_brokers = set()
        self._transaction = None
        for partition in self.cluster.each_partition():
            partition.certain = False

    def leader_change(self, change: LeaderChange, timestamp_ms: int) -> None:
        """Report a control record that names a new leader of the quorum."""
        if self.scope.shard == 0:
            self.scope.offset, self.scope.timestamp_ms = change.offset, timestamp_ms
            self.reports.event("quorum", change._asdict())
