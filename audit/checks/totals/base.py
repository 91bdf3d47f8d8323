"""The base class of totals checks, with their input: the sums over all intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from audit.findings.finding import Complaint, Severity
from audit.state.elections import LeaderChange


class Lasting(NamedTuple):
    """How long a partition was in some state, in how many episodes."""

    topic: str
    partition: int
    total_ms: int
    episodes: int

    def complaint(self, state: str) -> Complaint:
        """Return a complaint that the partition was in `state` for this time."""
        return Complaint(
            f"{self.topic}-{self.partition} {state} for {seconds(self.total_ms)} in "
            f"{self.episodes} episodes",
            after=self._asdict(),
            topic=self.topic,
            partition=self.partition,
        )


class Totals(NamedTuple):
    """Numbers of the whole log, and the leaders of the quorum.

    `end` is the state of the cluster at the end of the log.
    """

    records: int
    isr_shrinks: int
    isr_expands: int
    under_min_isr: Sequence[Lasting]
    leaderless: Sequence[Lasting]
    end: Mapping[str, Any]
    end_offset: int
    end_timestamp_ms: int = -1
    quorum: Sequence[LeaderChange] = ()


class TotalsCheck(Protocol):
    """A check of the totals. Most are informational, so the default severity is INFO."""

    name: ClassVar[str]
    severity: ClassVar[Severity] = Severity.INFO

    def on_totals(self, totals: Totals) -> Iterable[Complaint]: ...


def seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.3f} s"
