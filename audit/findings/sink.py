"""The bounded sink of a replay's findings.

All findings, elections and leadership changes are counted, but only the first are kept, and the
result has the numbers of the others. History rows are passed on in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from audit.decoding.records import dumps
from audit.findings.finding import Finding
from audit.state.cluster import PartitionState
from audit.state.elections import LOSSY, Election, ElectionKind
from audit.state.local_logs import LOCAL_LOG, LocalLogRow

FINDINGS_PER_CHECK_MAX = 1_000
ELECTION = "election"
FINDINGS_LEFT_OUT = "findings-left-out"
LEADERSHIP_MAX = 20_000
EVENTS_MAX = 200_000
HISTORY_ROWS = 8_192
"""History rows per Arrow batch."""

Event: TypeAlias = tuple[str, int, int, str]
"""Kind, offset, timestamp in epoch ms, JSON."""


class HistoryRow(NamedTuple):
    """One row of the partition history: the partition after a record."""

    offset: int
    timestamp_ms: int
    topic: str
    topic_id: bytes
    partition: int
    record: str
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    recovering: bool
    election_kind: str | None
    election_cause: str | None
    election_reason: str | None
    passed_over: tuple[int, ...]
    local_logs: list[dict[str, Any]]


class Elected(NamedTuple):
    """An election as a row of the history."""

    kind: ElectionKind
    noted_cause: str | None
    passed_over: tuple[int, ...]


class Sink:
    """Collector of lists. `on_history` takes history rows before they become too many."""

    def __init__(
        self,
        elections_max: int = 100_000,
        on_history: Callable[[list[HistoryRow]], None] | None = None,
    ) -> None:
        self.findings: list[Finding] = []
        self.found: dict[str, int] = {}
        self.elections: list[Election] = []
        self.leadership_rows: list[list[Any]] = []
        self.leadership_left_out = 0
        self.events: list[Event] = []
        self._elections_max = elections_max
        self._clean = 0
        self._history: list[HistoryRow] = []
        self._on_history = on_history

    def finding(self, finding: Finding) -> None:
        count = self.found[finding.check] = self.found.get(finding.check, 0) + 1
        if count <= FINDINGS_PER_CHECK_MAX:
            self.findings.append(finding)

    def election(self, election: Election) -> None:
        """Add an election; lossy ones are kept without limit."""
        if election.kind not in LOSSY:
            self._clean += 1
            if self._clean > self._elections_max:
                return
        self.elections.append(election)

    def leadership(
        self,
        offset: int,
        timestamp_ms: int,
        partition: PartitionState,
        before: int | None,
        why: str,
    ) -> None:
        """Add a leadership change without an election: a partition begins, ends or loses its
        leader.
        """
        if len(self.leadership_rows) >= LEADERSHIP_MAX:
            self.leadership_left_out += 1
            return
        leader = -1 if why == "deleted" else partition.shape.key.leader
        self.leadership_rows.append(
            [
                offset,
                timestamp_ms,
                partition.topic.name,
                partition.index,
                before,
                leader,
                partition.leader_epoch,
                why,
            ]
        )

    def event(self, kind: str, offset: int, timestamp_ms: int, body: Any) -> None:
        if len(self.events) < EVENTS_MAX:
            self.events.append((kind, offset, timestamp_ms, dumps(body)))

    def history(
        self,
        offset: int,
        timestamp_ms: int,
        partition: PartitionState,
        record: str,
        elected: Elected | None,
        local_logs: Sequence[LocalLogRow],
    ) -> None:
        shape = partition.shape.key
        self._history.append(
            HistoryRow(
                offset,
                timestamp_ms,
                partition.topic.name,
                partition.topic.id,
                partition.index,
                record,
                shape.leader,
                partition.leader_epoch,
                partition.partition_epoch,
                shape.replicas,
                shape.isr,
                shape.elr,
                shape.last_known,
                shape.adding,
                shape.removing,
                shape.recovery == 1,
                elected and elected.kind,
                elected and elected.noted_cause,
                LOCAL_LOG if elected and elected.passed_over else None,
                elected.passed_over if elected else (),
                [one._asdict() for one in local_logs],
            )
        )
        if len(self._history) >= HISTORY_ROWS:
            self.flush()

    def flush(self) -> None:
        rows, self._history = self._history, []
        if rows and self._on_history is not None:
            self._on_history(rows)

    def rows(self) -> Iterator[Event]:
        """Yield everything but the history, as events."""
        yield from self.events
        for finding in self.findings:
            row = finding._asdict()
            yield "finding", finding.offset, finding.timestamp_ms, dumps(row)
        left_out = {
            check: count - FINDINGS_PER_CHECK_MAX
            for check, count in self.found.items()
            if count > FINDINGS_PER_CHECK_MAX
        }
        if left_out:
            yield FINDINGS_LEFT_OUT, -1, -1, dumps(left_out)
        for election in self.elections:
            yield ELECTION, election.offset, election.timestamp_ms, dumps(election)
        for leadership in self.leadership_rows:
            yield "leadership", leadership[0], leadership[1], dumps(leadership)
