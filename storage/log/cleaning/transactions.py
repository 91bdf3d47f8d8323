"""Transactions as the cleaner meets them: batch by batch, in offset order.

Data of an aborted transaction is removed at once. A marker must stay while a record of its
transaction is left (KAFKA-13727): otherwise a reader would attribute the rest to a later
transaction. So a marker is removed only if a walk from the log's start met no batch of its
transaction, not even an emptied one that is kept for its producer.

The walk's list of aborted transactions comes from the transaction indexes, and must reach as far as
the walk. If records of a transaction were met, its entry goes into the new index.
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol.batch.header import BatchHeader
from storage.log.indexes import AbortedTxn


class _Aborted:
    __slots__ = ("entry", "met_records")

    def __init__(self, entry: AbortedTxn) -> None:
        self.entry = entry
        self.met_records = False


class Transactions:
    """State of one walk. `aborted` are those that end at or after the walk's first offset."""

    __slots__ = ("_aborted_ahead", "_committed", "_open_aborted", "kept_entries")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._aborted_ahead = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        self._open_aborted: dict[int, _Aborted] = {}
        self._committed: set[int] = set()
        self.kept_entries: list[AbortedTxn] = []
        """Entries for the new transaction index; its writer clears this list."""

    def records_are_aborted(self, header: BatchHeader) -> bool:
        """Process a batch of records. Returns whether they belong to an aborted transaction."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        aborted = self._open_aborted.get(header.producer_id)
        if aborted is not None:
            aborted.met_records = True
            return True
        self._committed.add(header.producer_id)
        return False

    def marker_is_idle(self, header: BatchHeader, commit: bool | None) -> bool:
        """Process a control batch. Returns whether its transaction has no batch left.

        `commit` is the marker's type; None for a batch whose marker has been removed. The caller
        handles control batches other than markers.
        """
        self._reach(header.last_offset)
        producer_id = header.producer_id
        if commit is None:
            return True
        if commit:
            idle = producer_id not in self._committed
            self._committed.discard(producer_id)
            return idle
        aborted = self._open_aborted.pop(producer_id, None)
        if aborted is None or not aborted.met_records:
            return True
        self.kept_entries.append(aborted.entry)
        return False

    def _reach(self, offset: int) -> None:
        """Open the aborted transactions that begin up to `offset`."""
        ahead = self._aborted_ahead
        while ahead and ahead[-1].first_offset <= offset:
            entry = ahead.pop()
            self._open_aborted.setdefault(entry.producer_id, _Aborted(entry))
