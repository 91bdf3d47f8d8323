"""The promises of compacted logs, pure: of every key the newest record stays, offsets never change,
and whatever else is gone was replaced (P4, P6, H1-H3, H9).

Beside a log stands a model of it, a table of keys. Two ask it: the judge of partitions, for every
replica against what was committed, and the ledger of clients, for what they read against what they
were told.
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
    """What a compacted partition has committed: all records by offset, the newest of each key.

    A broker that is away for longer than deletions are kept (`delete.retention.ms`) finds them gone
    on its leader, and keeps what they deleted. Kafka promises nothing there, so a key is `undead`
    from when a log has it again that never held its deletion.
    """

    records: dict[int, Keyed] = field(default_factory=dict)
    newest: dict[bytes, int] = field(default_factory=dict)
    held: dict[int, set[int]] = field(default_factory=dict)
    """Offsets of the deletions that each broker's log has held."""
    undead: set[bytes] = field(default_factory=set)

    def add(self, offset: int, record: Keyed) -> None:
        """The next one is committed."""
        self.records[offset] = record
        self.newest[record.key] = offset

    def holds(self, broker_id: int, found: Mapping[int, Keyed]) -> None:
        """A broker's log has these committed records."""
        deletions = {offset for offset, record in found.items() if record.value is None}
        self.held.setdefault(broker_id, set()).update(deletions)

    def see(self, found: Mapping[int, Keyed]) -> None:
        """A log had these records, of which nobody knows whether they were committed: what they
        delete may be anywhere again, or nowhere."""
        self.undead.update(one.key for one in found.values() if one.value is None)

    def ends(self, broker_id: int, end: int) -> None:
        """A broker's log was opened or cut, and ends there."""
        self.held[broker_id] = {one for one in self.held.get(broker_id, ()) if one < end}

    def problem(self, found: Mapping[int, Keyed], begin: int, end: int) -> str | None:
        """What is wrong with a log that has these records from `begin` to `end`, None if nothing.

        The newest record of a key is there, but for one that deletes it: that may go when its time
        is over. Whatever is there was committed there.
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
        """A deleted key that a whole log has again, None if there is none. Of a broker's log only
        what has held the deletion is asked."""
        last = {record.key: offset for offset, record in sorted(found.items())}
        for key, offset in last.items():
            newest = self.newest[key]
            if newest <= offset:
                continue
            if broker_id is None or newest in self.held.get(broker_id, ()):
                return f"{key!r} is there at {offset}, its deletion at {newest} is gone"
            self.undead.add(key)
        return None


def problem_between(
    logs: Iterable[Mapping[int, Keyed]], begin: int, end: int, undead: Iterable[bytes] = ()
) -> str | None:
    """What is wrong with replicas if nobody knows what was committed, None if nothing: each is
    asked for what any of them has, but for keys that are `undead` (see `KeyTable`). Each was
    cleaned at moments of its own."""
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
    """What clients were told of a compacted partition."""

    puts: list[Put] = field(default_factory=list)
    read: dict[int, Keyed] = field(default_factory=dict)
    """What anybody has read, by offset."""

    def putting(self, records: Iterable[Keyed]) -> list[Put]:
        """These are about to be sent, as one batch."""
        puts = [Put(one) for one in records]
        self.puts += puts
        return puts

    def was_read(self, offset: int, record: Keyed, *, given_up: bool = False) -> None:
        """H1: an offset has one record for ever, but where the topic was `given_up`. H2: nobody
        reads what was refused."""
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
        """H3, H9: of each key the newest acknowledged record is there, or a later one. What was
        deleted is gone, but for keys that are `undead` (see `KeyTable`)."""
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
        """Whether a deletion that was never acknowledged may have come later."""
        deleted = Keyed(key, None)
        return any(
            one.record == deleted and one.offset < 0 and not one.refused for one in self.puts
        )
