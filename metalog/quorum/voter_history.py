"""The voter sets and kraft.versions of a metadata log, by the offset of their records (KIP-853).

The last set of the log is in force, committed or not, and a truncation reverts it. Before the first
record the static voters of the configuration apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from metalog.quorum.batches import read_control_batches, voter_set
from metalog.quorum.core.voters import VoterSet
from protocol.control import KRaftVersionRecord, VotersRecord
from protocol.schema import Buffer

T = TypeVar("T")


class VoterHistory:
    """The voter sets of one log."""

    def __init__(self, static_voters: VoterSet) -> None:
        self._static_voters = static_voters
        self._voters: list[tuple[int, VoterSet]] = [(-1, static_voters)]
        self._kraft_versions: list[tuple[int, int]] = [(-1, 0)]

    @property
    def voters(self) -> VoterSet:
        """The latest set, its record committed or not."""
        return self._voters[-1][1]

    @property
    def offset(self) -> int:
        """Offset of the record that contains `voters`; -1 if it is not in this log."""
        return self._voters[-1][0]

    @property
    def kraft_version(self) -> int:
        return self._kraft_versions[-1][1]

    @property
    def in_log(self) -> bool:
        """True if a follower that reads this log learns the voters from it.

        False if they come from the snapshot that formatting wrote, which is never sent. With static
        voters there is nothing to learn.
        """
        return self.kraft_version == 0 or self.offset >= 0

    def voters_at(self, end_offset: int) -> VoterSet:
        """Return the set in force for a log that ends at `end_offset`."""
        return _value_before(self._voters, end_offset)

    def kraft_version_at(self, end_offset: int) -> int:
        """Return the kraft.version in force for a log that ends at `end_offset`."""
        return _value_before(self._kraft_versions, end_offset)

    def begin_at(self, end_offset: int, voters: VoterSet | None, kraft_version: int) -> None:
        """Begin again after a snapshot that ends at `end_offset`; 0 for the start of a log without
        one. The first snapshot covers no record of the log, see `in_log`."""
        self._voters = [(-1, self._static_voters)]
        self._kraft_versions = [(-1, 0)]
        if voters is not None:
            self._voters.append((end_offset - 1, voters))
        if kraft_version:
            self._kraft_versions.append((end_offset - 1, kraft_version))

    def note(self, data: Buffer) -> bool:
        """Note voters and kraft.version in batches. Returns: True if the voters changed."""
        noted = False
        for batch in read_control_batches(data):
            offset = batch.base_offset
            for record in batch.control:
                if isinstance(record, VotersRecord):
                    self._voters.append((offset, voter_set(record)))
                    noted = True
                elif isinstance(record, KRaftVersionRecord):
                    self._kraft_versions.append((offset, record.kraft_version))
                offset += 1
        return noted

    def revert_to(self, end_offset: int) -> bool:
        """Forget the records from `end_offset` on. Returns: True if the voters changed."""
        before = len(self._voters)
        self._voters = [entry for entry in self._voters if entry[0] < end_offset]
        self._kraft_versions = [e for e in self._kraft_versions if e[0] < end_offset]
        return len(self._voters) != before


def _value_before(entries: Sequence[tuple[int, T]], end_offset: int) -> T:
    return next(value for offset, value in reversed(entries) if offset < end_offset or offset < 0)
