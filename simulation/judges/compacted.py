"""The promises of compacted logs, pure: of every key the newest record stays, offsets never change,
and any other missing record was replaced (P4, P6, H1-H3, H9).

A table of keys is a model of the log. Two judges use it: the judge of partitions compares every
replica with the committed records, and the ledger of clients compares records read with
acknowledgements.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from simulation.judges.ledger import PartitionLedger
from simulation.world.invariants import require


class Keyed(NamedTuple):
    """A record of a compacted log; without a value it deletes its key."""

    key: bytes
    value: bytes | None


@dataclass
class KeyTable:
    """The committed records of a compacted partition: all by offset, and the newest of each key.

    A broker that is away for longer than deletions are kept (`delete.retention.ms`) finds them gone
    on its leader, and keeps the deleted records. Kafka promises nothing there, so a key becomes
    `undead` once a log has it again that never held its deletion.
    """

    records: dict[int, Keyed] = field(default_factory=dict)
    newest: dict[bytes, int] = field(default_factory=dict)
    tombstones: dict[int, set[int]] = field(default_factory=dict)
    """Offsets of the deletions that each broker's log has held."""
    undead: set[bytes] = field(default_factory=set)

    def add(self, offset: int, record: Keyed) -> None:
        """Add the next committed record."""
        self.records[offset] = record
        self.newest[record.key] = offset

    def holds(self, broker_id: int, found: Mapping[int, Keyed]) -> None:
        """Note that a broker's log has these committed records."""
        deletions = {offset for offset, record in found.items() if record.value is None}
        self.tombstones.setdefault(broker_id, set()).update(deletions)

    def see(self, found: Mapping[int, Keyed]) -> None:
        """Note that a log had these records, which may or may not be committed: keys that they
        delete may be present again in any log, or in none."""
        self.undead.update(one.key for one in found.values() if one.value is None)

    def ends(self, broker_id: int, end: int) -> None:
        """Note that a broker's log was opened or cut, and ends there."""
        self.tombstones[broker_id] = {
            one for one in self.tombstones.get(broker_id, ()) if one < end
        }

    def problem(self, found: Mapping[int, Keyed], begin: int, end: int) -> str | None:
        """Return a violation in a log that has these records from `begin` to `end`, else None.

        The newest record of a key is there, except a deletion, which may be removed when its time
        is over. Every record that is there was committed there.
        """
        for offset, record in found.items():
            committed = self.records.get(offset)
            if record != committed:
                return f"it has {record} at {offset}, committed is {committed}"
        for offset in range(begin, end):
            was = self.records.get(offset)
            if was is None or offset in found or self.newest[was.key] > offset:
                continue
            if was.value is not None and was.key not in self.undead:
                return f"{was} at {offset}, the newest of its key, is gone"
        return None

    def revived(self, found: Mapping[int, Keyed], broker_id: int | None = None) -> str | None:
        """Return a deleted key that a whole log has again, else None. A broker's log is
        checked only for deletions that it has held."""
        last = {record.key: offset for offset, record in sorted(found.items())}
        for key, offset in last.items():
            newest = self.newest[key]
            if newest <= offset:
                continue
            if broker_id is None or newest in self.tombstones.get(broker_id, ()):
                return f"{key!r} is there at {offset}, its deletion at {newest} is gone"
            self.undead.add(key)
        return None


def problem_between(
    logs: Iterable[Mapping[int, Keyed]], begin: int, end: int, undead: Iterable[bytes] = ()
) -> str | None:
    """Return a difference between replicas if the committed records are unknown, else None.

    Each replica must have the records that any of them has. Keys that are `undead` (see `KeyTable`)
    are exempt, since each replica was cleaned at times of its own.
    """
    replicas = list(logs)
    anywhere: dict[int, Keyed] = {}
    for found in replicas:
        anywhere.update(found)
    table = KeyTable(undead=set(undead))
    for offset, record in sorted(anywhere.items()):
        table.add(offset, record)
    problems = (table.problem(one, begin, end) or table.revived(one) for one in replicas)
    return next((one for one in problems if one is not None), None)


@dataclass(eq=False)
class Put:
    """One record that a client has sent; `offset` once it is acknowledged."""

    record: Keyed
    offset: int = -1
    refused: bool = False


@dataclass(eq=False)
class CompactedLedger(PartitionLedger):
    """The acknowledgements and reads of a compacted partition."""

    puts: list[Put] = field(default_factory=list)
    read: dict[int, Keyed] = field(default_factory=dict)
    """Records that any client has read, by offset."""

    def putting(self, records: Iterable[Keyed]) -> list[Put]:
        """Enter records that are about to be sent as one batch."""
        puts = [Put(one) for one in records]
        self.puts += puts
        return puts

    def was_read(self, offset: int, record: Keyed, *, given_up: bool = False) -> None:
        """Enter a record that was read.

        Raises: Violation if another record was read at that offset before, unless the topic is
            `given_up` (H1), or if the record was refused (H2).
        """
        known = self.read.setdefault(offset, record)
        if given_up:
            self.read[offset] = known = record
        require(known == record, f"H1: {self}: {record} at {offset}, {known} was read there before")
        possible = [one for one in self.puts if one.record == record and not one.refused]
        require(
            any(one.offset in (offset, -1) for one in possible),
            f"H2: {self}: {record} was read at {offset}, sent were {possible}",
        )

    def read_whole(self, records: Mapping[int, Keyed], undead: Container[bytes] = ()) -> None:
        """Check that of each key the newest acknowledged record is there, or a later one (H3).
        Deleted keys are gone, except those that are `undead` (H9; see `KeyTable`)."""
        last = {record.key: offset for offset, record in sorted(records.items())}
        newest: dict[bytes, Put] = {}
        for put in self.puts:
            before = newest.get(put.record.key)
            if put.offset >= 0 and (before is None or put.offset > before.offset):
                newest[put.record.key] = put
        for key, put in newest.items():
            at = last.get(key, -1)
            gone = at < 0 and (put.record.value is None or self._may_be_deleted(key))
            gone = gone or (put.record.value is None and key in undead)
            require(
                at >= put.offset or gone,
                f"H3: {self}: {put.record} was acknowledged at {put.offset}, the newest is at {at}",
            )

    def _may_be_deleted(self, key: bytes) -> bool:
        """Return whether an unacknowledged deletion may have come later."""
        deleted = Keyed(key, None)
        return any(
            one.record == deleted and one.offset < 0 and not one.refused for one in self.puts
        )
