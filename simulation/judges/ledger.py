"""Ledgers of the batches that clients sent to each partition, and checks of the records there.

A client enters every batch before it is sent, and every response. So the ledger knows whether a
batch must exist, may exist, or must not exist. Every existing batch is there once, in the order of
sending, at the offset of its response.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from simulation.world.invariants import Violation, require


class Known(Enum):
    """The known state of a batch."""

    SENT = "sent"
    WRITTEN = "written"
    """A retry got a duplicate error: the batch exists, at an unknown offset."""
    ACKED = "acknowledged"
    REFUSED = "refused"


@dataclass(eq=False)
class Batch:
    """One batch of one producer; `offset` is that of its first record, once acknowledged."""

    producer: str
    number: int
    values: tuple[bytes, ...]
    known: Known = Known.SENT
    offset: int = -1
    uncertain: bool = False
    """A request with it got no response: it may exist, whatever the responses to later ones."""

    @property
    def end(self) -> int:
        """The offset after its last record."""
        return self.offset + len(self.values)


@dataclass(eq=False)
class PartitionLedger:
    """All batches that were sent to one partition."""

    topic: str
    index: int
    topic_id: bytes = b""
    """Empty until a client has requested it."""
    ended: bool = False
    """Its topic is deleted, or about to be."""
    batches: list[Batch] = field(default_factory=list)
    by_value: dict[bytes, Batch] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    def sending(self, producer: str, number: int, values: Sequence[bytes]) -> Batch:
        """Enter a batch that is about to be sent for the first time."""
        batch = Batch(producer, number, tuple(values))
        self.batches.append(batch)
        for value in values:
            assert value not in self.by_value
            self.by_value[value] = batch
        return batch

    def trying(self, batch: Batch) -> None:
        """Enter that the batch is about to be sent, perhaps once more."""
        if batch.known is Known.REFUSED:
            batch.known = Known.SENT

    def acked(self, batch: Batch, offset: int) -> None:
        """Enter that the cluster acknowledged the batch at `offset`."""
        require(offset >= 0, f"H1: {self}: {batch.values[0]!r} was acknowledged without an offset")
        if batch.known is Known.ACKED:
            require(offset == batch.offset, f"H1: {self}: {batch} was acknowledged at {offset} too")
        batch.known, batch.offset = Known.ACKED, offset

    def written(self, batch: Batch) -> None:
        """Enter that the cluster reported the batch as a duplicate of an earlier attempt."""
        require(
            batch.uncertain, f"H4: {self}: {batch.values[0]!r} was sent once and is a duplicate"
        )
        if batch.known is not Known.ACKED:
            batch.known = Known.WRITTEN

    def refused(self, batch: Batch) -> None:
        """Enter an error that promises that nothing of the batch was appended."""
        if batch.known is Known.SENT and not batch.uncertain:
            batch.known = Known.REFUSED

    def check(self, end: int, records: Sequence[tuple[int, bytes]]) -> None:
        """Judge the records of the whole partition, from offset 0 to `end` (H1-H5, H8).

        No batch may be sent in the meantime.

        Raises:
            Violation: a record is missing, repeated, torn, out of order or at a wrong offset.
        """
        offsets = [offset for offset, _ in records]
        require(
            offsets == list(range(end)), f"H5: {self}: offsets {offsets[:5]}.. are not 0 to {end}"
        )
        found: dict[Batch, int] = {}
        last: dict[str, int] = {}
        at = 0
        while at < len(records):
            offset, value = records[at]
            batch = self.by_value.get(value)
            if batch is None:
                raise Violation(f"H2: {self}: {value!r} at {offset} was never sent")
            whole = [value for _, value in records[at : at + len(batch.values)]]
            require(whole == list(batch.values), f"H1: {self}: the batch at {offset} is torn")
            require(batch not in found, f"H4: {self}: {value!r} is there twice")
            require(
                batch.known is not Known.REFUSED, f"H2: {self}: {value!r} was refused and is there"
            )
            require(
                last.get(batch.producer, -1) < batch.number,
                f"H8: {self}: {value!r} is out of order",
            )
            last[batch.producer] = batch.number
            found[batch] = offset
            at += len(whole)
        for batch in self.batches:
            if batch.known is Known.WRITTEN:
                require(
                    batch in found, f"H3: {self}: {batch.values[0]!r} was a duplicate, and is not"
                )
            if batch.known is Known.ACKED:
                require(
                    found.get(batch) == batch.offset,
                    f"H3: {self}: {batch.values[0]!r}, acknowledged at {batch.offset}, is at "
                    f"{found.get(batch)}",
                )
