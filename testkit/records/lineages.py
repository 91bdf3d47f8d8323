"""All small logs and copies of one partition, each offset with the leader epoch that wrote it.

The rules of tiered storage about lineages are intervals and bisections. A model that compares two
histories offset by offset has neither, so a test can compare it with the rule in every small case:
up to four offsets, three epochs, copies of one epoch and of several, logs that forgot the epochs
below their log start, and epochs that began without a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement
from typing import Final, NamedTuple

from storage.log.epochs import EpochEntry
from storage.tiered.lineage import Lineage
from storage.tiered.values import RemoteSegment
from testkit.records.tier import segment

EPOCHS: Final = (1, 2, 3)
LONGEST: Final = 4

History = tuple[int, ...]
"""The epoch that wrote each offset, from offset 0 on."""


class SmallLog(NamedTuple):
    """A log whose epochs are known from `known_from` on.

    `led_from_end` is an epoch that began at the log end offset and has no record yet; 0: there is
    no such epoch.
    """

    history: History
    known_from: int = 0
    led_from_end: int = 0

    @property
    def end(self) -> int:
        return len(self.history)

    @property
    def latest_epoch(self) -> int:
        return self.led_from_end or (self.history[-1] if self.known_from < self.end else -1)

    def known(self, offset: int) -> int:
        """Return the epoch that wrote `offset`, -1 where the log does not know it."""
        return self.history[offset] if self.known_from <= offset < self.end else -1

    @property
    def lineage(self) -> Lineage:
        entries = entries_of(self.history, self.known_from, self.end - 1)
        if self.led_from_end:
            entries += (EpochEntry(self.led_from_end, self.end),)
        return Lineage(entries, self.end)


class SmallCopy(NamedTuple):
    """A copy of the offsets from `start` to the end of `history`.

    `known_from` is the log start offset of the leader that made it: the copy does not name the
    epochs below. `empty_epoch` adds an epoch 0 without records at its first named offset.
    """

    history: History
    start: int
    known_from: int
    empty_epoch: bool = False

    @property
    def end(self) -> int:
        """The last offset of the copy, included."""
        return len(self.history) - 1

    @property
    def last_epoch(self) -> int:
        return self.history[-1]

    def known(self, offset: int) -> int:
        """Return the epoch that wrote `offset` in the copy, -1 where the copy does not name it."""
        inside = max(self.start, self.known_from) <= offset <= self.end
        return self.history[offset] if inside else -1

    def segment(self, number: int = 1) -> RemoteSegment:
        entries = entries_of(self.history, max(self.start, self.known_from), self.end)
        epochs = {entry.epoch: entry.start_offset for entry in entries}
        if self.empty_epoch:
            epochs[0] = entries[0].start_offset
        return segment(number, self.start, self.end, epochs)


def entries_of(history: History, first: int, last: int) -> tuple[EpochEntry, ...]:
    """Return the epochs of the offsets `first` to `last`, each with the first offset it wrote."""
    return tuple(
        EpochEntry(history[at], at)
        for at in range(first, last + 1)
        if at == first or history[at] != history[at - 1]
    )


def histories(longest: int = LONGEST) -> Iterator[History]:
    for length in range(longest + 1):
        yield from combinations_with_replacement(EPOCHS, length)


def logs(longest: int = LONGEST) -> Iterator[SmallLog]:
    """Yield all logs of up to `longest` offsets, led from their end and not."""
    for history in histories(longest):
        for known_from in range(len(history) + 1):
            for led_from_end in (0, *EPOCHS, EPOCHS[-1] + 1):
                if not led_from_end or not history or led_from_end > history[-1]:
                    yield SmallLog(history, known_from, led_from_end)


def copies(longest: int = LONGEST) -> Iterator[SmallCopy]:
    """Yield all copies that end below `longest`."""
    for history in histories(longest):
        for start in range(len(history)):
            for known_from in range(start, len(history)):
                yield SmallCopy(history, start, known_from)
                yield SmallCopy(history, start, known_from, empty_epoch=True)


def match(log: SmallLog, copy: SmallCopy) -> bool:
    """Return whether replicas of one partition may have this log and have made this copy.

    An epoch has one leader: it begins at one offset, and all logs that have records of it are
    equal below that offset (P4).
    """
    begins = {epoch: log.history.index(epoch) for epoch in set(log.history)}
    if log.led_from_end:
        begins[log.led_from_end] = log.end
    return all(
        copy.history.index(epoch) == at and copy.history[:at] == log.history[:at]
        for epoch, at in begins.items()
        if epoch in copy.history
    )
