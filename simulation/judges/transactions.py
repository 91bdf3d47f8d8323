"""Records of a partition with transactions, and those that a read_committed reader gets (S7). Pure.

The truth is the log as a reader without isolation gets it. A fetch with isolation must name every
aborted transaction that overlaps its batches, and no other one. The records that are left are then
those of committed transactions and of plain batches, up to the last stable offset.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from protocol.batch.header import iter_batches
from protocol.batch.records import Producer, Record, build_batch, read_batch
from simulation.world.invariants import require

COMMIT = 1


class Transaction(NamedTuple):
    """An aborted transaction, with the offsets of its first record and of its marker."""

    producer_id: int
    first: int
    marker: int


class Answer(NamedTuple):
    """The result of a fetch: batches, and the transactions that a reader must skip."""

    data: bytes
    aborted: Sequence[tuple[int, int]]

    @property
    def next_offset(self) -> int:
        """The offset after the last batch."""
        return [header.next_offset for header, _ in iter_batches(self.data)][-1]


class Truth:
    """All batches of a partition from offset 0 on, in order, without isolation."""

    def __init__(self, data: Sequence[bytes]) -> None:
        self.aborted: list[Transaction] = []
        self.records: dict[int, bytes] = {}
        """The committed records by offset, without those of open transactions."""
        self.end = 0
        began: dict[int, dict[int, bytes]] = {}
        for part in data:
            for header, at in iter_batches(part):
                records = list(read_batch(part, at, header))
                values = {one.offset: one.value or b"" for one in records}
                if not header.is_transactional:
                    self.records |= values
                elif not header.is_control:
                    began.setdefault(header.producer_id, {}).update(values)
                else:
                    (marker,) = records
                    own = began.pop(header.producer_id, {})
                    if struct.unpack(">hh", marker.key or b"")[1] == COMMIT:
                        self.records |= own
                    elif own:
                        ended = Transaction(header.producer_id, min(own), marker.offset)
                        self.aborted.append(ended)
                self.end = header.next_offset
        self.stable = min((min(own) for own in began.values()), default=self.end)

    def judge(self, offset: int, answer: Answer) -> int:
        """Check one fetch at `offset` (S7). Returns: the next offset. Raises: Violation."""
        named, end = set(answer.aborted), answer.next_offset
        where = f"S7: [{offset}, {end})"
        overlap = {
            (one.producer_id, one.first)
            for one in self.aborted
            if one.first < end and one.marker >= offset
        }
        require(overlap <= named, f"{where}: {overlap - named} are not named")
        known = {(one.producer_id, one.first) for one in self.aborted}
        require(named <= known, f"{where}: {named - known} were not aborted")
        expected = {at: value for at, value in self.records.items() if offset <= at < end}
        found = {at: value for at, value in counting(answer).items() if at >= offset}
        require(found == expected, f"{where}: {found} count, not {expected}")
        require(end <= self.stable, f"{where}: the last stable offset is {self.stable}")
        return end


def counting(answer: Answer) -> dict[int, bytes]:
    """Return the records that a read_committed reader keeps, as clients select them."""
    waiting, skipped = sorted(answer.aborted, key=lambda one: one[1]), set()
    found: dict[int, bytes] = {}
    for header, at in iter_batches(answer.data):
        while waiting and waiting[0][1] <= header.last_offset:
            skipped.add(waiting.pop(0)[0])
        if header.is_control:
            skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            records = read_batch(answer.data, at, header)
            found |= {one.offset: one.value or b"" for one in records}
    return found


def written(producer_id: int, number: int, now_ms: int) -> bytes:
    """Return the batch with this sequence number of a transaction."""
    value = (b"%d:%d" % (producer_id, number)).ljust(60, b".")
    producer = Producer(producer_id, 0, number, transactional=True)
    return build_batch([Record(0, now_ms, None, value)], producer=producer)


def marker(producer_id: int, now_ms: int, *, commit: bool) -> bytes:
    """Return the control batch that ends a transaction."""
    key, value = struct.pack(">hh", 0, COMMIT if commit else 0), struct.pack(">hi", 0, 0)
    producer = Producer(producer_id, 0, -1, transactional=True)
    return build_batch([Record(0, now_ms, key, value)], producer=producer, control=True)
