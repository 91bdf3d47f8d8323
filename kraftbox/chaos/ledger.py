"""Recorder of a history: the operations of all clients and their results, on one clock. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from client.producer import NotProduced
from kraftbox.chaos.history import (
    NO_OFFSET,
    UNKNOWN_DRAW,
    Assign,
    End,
    Fault,
    History,
    Poll,
    Process,
    Send,
    SendOutcome,
    Topic,
)


@dataclass
class Counts:
    """Numbers of recorded operations, for the progress display."""

    ok: int = 0
    failed: int = 0
    unknown: int = 0
    read: int = 0


@dataclass
class Gaps:
    """Times without an acknowledgement per partition, since `begin`."""

    begun_us: int = 0
    last_us: dict[int, int] = field(default_factory=dict)
    longest_us: int = 0

    def begin(self, now_us: int) -> None:
        self.begun_us, self.longest_us = now_us, 0

    def acknowledged(self, partition: int, now_us: int) -> None:
        since_us = max(self.last_us.get(partition, now_us), self.begun_us)
        self.longest_us = max(self.longest_us, now_us - since_us)
        self.last_us[partition] = now_us

    def until(self, now_us: int) -> int:
        """Return the longest gap in microseconds up to now_us; a gap that is still open counts."""
        lasting = [now_us - max(last, self.begun_us) for last in self.last_us.values()]
        return max([self.longest_us, *lasting])


@dataclass
class Ledger:
    """A growing history. `now_us` is its only clock."""

    now_us: Callable[[], int]
    history: History = field(default_factory=History)
    counts: Counts = field(default_factory=Counts)
    gaps: Gaps = field(default_factory=Gaps)

    def __post_init__(self) -> None:
        self._processes = 0

    def process(self, role: str, client: str) -> int:
        """Register a new client; return its number, from 1."""
        self._processes += 1
        self.history.processes.append(Process(self._processes, role, client))
        return self._processes

    def topic(self, topic: Topic) -> int:
        """Register a topic under test; return its index."""
        self.history.topics.append(topic)
        return len(self.history.topics) - 1

    def sent(
        self,
        values: Sequence[int],
        place: tuple[int, int, int],
        order: int,
        begin_us: int,
        result: int | BaseException,
        producer_id: int,
    ) -> None:
        """Record the outcome of a batch: `result` is its first offset, or its error.

        `place` is process, topic and partition; `order` counts that process's sends there.
        """
        end_us = self.now_us()
        if isinstance(result, int):
            outcome, error = SendOutcome.OK, ""
            self.counts.ok += len(values)
            self.gaps.acknowledged(place[2], end_us)
        elif isinstance(result, NotProduced) and result.certain:
            outcome, error = SendOutcome.FAILED, result.name
            self.counts.failed += len(values)
        else:
            outcome = SendOutcome.UNKNOWN
            error = result.name if isinstance(result, NotProduced) else type(result).__name__
            self.counts.unknown += len(values)
        for index, value in enumerate(values):
            known = isinstance(result, int) and result != NO_OFFSET
            offset = result + index if isinstance(result, int) and known else NO_OFFSET
            self.history.sends.append(
                Send(
                    *(place[0], place[1], place[2], value, begin_us, end_us, outcome, offset),
                    order=order + index,
                    error=error,
                    producer_id=producer_id,
                )
            )

    def polled(
        self,
        place: tuple[int, int, int],
        begin_us: int,
        offsets: list[int],
        values: list[int],
        *,
        final: bool = False,
    ) -> None:
        self.counts.read += len(offsets)
        self.history.polls.append(Poll(*place, begin_us, self.now_us(), offsets, values, final))

    def assigned(self, place: tuple[int, int, int], offset: int) -> None:
        self.history.assigns.append(Assign(*place, self.now_us(), offset))

    def ended(
        self, place: tuple[int, int, int], begin_us: int, offset: int, *, final: bool = False
    ) -> None:
        self.history.ends.append(End(*place, begin_us, self.now_us(), offset, final))

    def fault(
        self,
        kind: str,
        nodes: Sequence[int],
        begin_us: int,
        detail: str,
        *,
        draw: int = UNKNOWN_DRAW,
        length_s: float = 0.0,
    ) -> Fault:
        """Record a fault that is over now; `draw` and `length_s` are those of its step."""
        length_ms = round(length_s * 1000)
        made = Fault(kind, list(nodes), begin_us, self.now_us(), detail, draw, length_ms)
        self.history.faults.append(made)
        return made
