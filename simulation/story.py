"""Stories: the events of a run for people, per node and per partition.

A story is a list of entries in the order of time. An entry may begin a state of its lane (a node is
up, a broker leads), which lasts until the next; the others are points. `simulation.narrator` fills
one during a run, `simulation.page` draws it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from simulation.messages import Message

if TYPE_CHECKING:
    from simulation.judges.client_history import Saw


class Entry(NamedTuple):
    """One entry. `number` is that of the trace, at which `--until` stops; `style` draws a state
    that begins here, None is a point, and "" ends the state before."""

    at_s: float
    number: int
    lane: str
    kind: str
    text: str
    style: str | None = None


class Answered(NamedTuple):
    """Consecutive equal responses to one client about one partition."""

    client: str
    what: str
    partition: str
    answer: str
    begin_s: float
    end_s: float
    times: int
    offset: int


@dataclass
class FaultSpan:
    """An event of the schedule as it was executed. `effect` stays unset until the event ends."""

    name: str
    text: str
    begin_s: float
    number: int
    end_s: float | None = None
    effect: bool | None = None


@dataclass
class Story:
    """The story of a run. `broken` describes the first broken promise, `ends_s` is the end of the
    run or the time of the break; times are virtual seconds since the first boot."""

    title: str
    entries: list[Entry] = field(default_factory=list)
    faults: list[FaultSpan] = field(default_factory=list)
    answers: list[Answered] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    """Messages that are drawn between lanes; they are not in the text."""
    broken: str | None = None
    ends_s: float = 0.0
    nodes: list[int] = field(default_factory=list)
    """The IDs of all nodes, for a legend of their colours."""
    faults_drawn: int = 0
    """The number of faults in the schedule, also of those that the run did not reach."""

    def tell(self) -> list[Entry]:
        """Return all entries in order, including faults and responses to clients."""
        told = [*self.entries, *_faults(self.faults), *_answers(self.answers)]
        if self.broken is not None:
            told.append(Entry(self.ends_s, 0, "promises", "broken", f"BROKEN {self.broken}"))
        return sorted(told, key=lambda one: one.at_s)

    def lines(self, most: int | None = None) -> list[str]:
        """Return the story as text, or its last lines."""
        told = self.tell()
        return [line(one) for one in (told if most is None else told[-most:])]


def line(one: Entry) -> str:
    """Return one entry as a line for a terminal."""
    number = f"#{one.number}" if one.number else ""
    return f"{one.at_s:10.3f} s {number:>9}  {one.lane:<12} {one.text}"


def _faults(faults: Iterable[FaultSpan]) -> Iterator[Entry]:
    for one in faults:
        yield Entry(one.begin_s, one.number, "faults", "fault", f"{one.name}: {one.text}")
        if one.end_s is not None:
            words = "over" if one.effect else "without effect"
            yield Entry(one.end_s, 0, "faults", "fault", f"{one.name}: {words}")


def _answers(answers: Iterable[Answered]) -> Iterator[Entry]:
    for one in answers:
        times = "" if one.times == 1 else f", {one.times} times since {one.begin_s:.3f} s"
        where = f" at {one.offset}" if one.offset >= 0 else ""
        words = f"{one.what} {one.partition}: {one.answer}{where}{times}"
        yield Entry(one.end_s, 0, one.client, "answer", words)


def grouped(history: Sequence[Saw]) -> list[Answered]:
    """Return equal responses to one client about one partition as one, until another response
    follows."""
    found: list[Answered] = []
    open_at: dict[tuple[str, str, str], int] = {}
    for one in history:
        # A producer that numbers its batches is one client.
        key = (one.client.partition(":")[0], one.what, one.partition)
        at = open_at.get(key)
        if at is not None and found[at].answer == one.answer:
            last = found[at]
            found[at] = last._replace(end_s=one.end_s, times=last.times + 1, offset=one.offset)
            continue
        open_at[key] = len(found)
        found.append(Answered(*key, one.answer, one.begin_s, one.end_s, 1, one.offset))
    return found
