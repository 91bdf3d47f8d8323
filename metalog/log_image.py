"""The images of the metadata log: the committed one, and those after this node's own appends.

There is one per process. The loader advances it along the committed log. The active controller adds
the image after each batch that it appends, and decides on the last one. Such an image becomes the
committed one when its batch is committed. So the node replays its own records only once, and both
images share their common parts. Any other committed batch is replayed, and so are batches with a
metadata transaction: their image is visible only once the transaction has ended.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from metalog.image.replay import Replayer, TouchedTopics
from metalog.image.values import MetadataImage, Provenance
from metalog.quorum.batches import Batch
from protocol.metadata import BeginTransactionRecord
from runtime.errors import InvariantViolated


class _Appended(NamedTuple):
    """The image after a batch that this node appended as the leader of `epoch`."""

    base_offset: int
    epoch: int
    image: MetadataImage


class LogImage:
    """Committed and working image; `end_offset` is that of the replayed committed log."""

    __slots__ = ("_appended", "_replayer", "end_offset")

    def __init__(self) -> None:
        self._replayer = Replayer()
        self._appended: deque[_Appended] = deque()
        self.end_offset = 0

    @property
    def committed(self) -> MetadataImage:
        """The image of the committed, complete metadata transactions."""
        return self._replayer.image

    @property
    def working(self) -> MetadataImage:
        """The image of the committed records and those appended since."""
        return self._appended[-1].image if self._appended else self._replayer.image

    @property
    def in_transaction(self) -> bool:
        """True if the committed log ends inside a metadata transaction."""
        return self._replayer.in_transaction

    def append(self, image: MetadataImage, *, base_offset: int, epoch: int) -> None:
        """Set the working image after the batch at `base_offset`, unless it is committed already.

        In that case the batch was committed during its append, and has been replayed.
        """
        if base_offset >= self.end_offset:
            self._appended.append(_Appended(base_offset, epoch, image))

    def drop_appended(self) -> None:
        """Return to the committed image: another leader determines whether the rest is
        committed."""
        self._appended.clear()

    def commit(self, batch: Batch) -> TouchedTopics:
        """Advance the committed image by the next batch. Returns: the topics that it may have
        changed.

        Raises:
            ReplayError: a record cannot follow the image.
        """
        first = self._appended[0] if self._appended else None
        end = Provenance(batch.last_offset, batch.epoch, batch.append_timestamp_ms)
        if not batch.records:
            self._replayer.skip(end)
        elif first is not None and first[:2] == (batch.base_offset, batch.epoch):
            self._appended.popleft()
            if self._replayer.in_transaction or type(batch.records[0]) is BeginTransactionRecord:
                # The image after the append shows records of a transaction that may still be open.
                self._replay(batch)
            else:
                self._replayer.adopt(first.image.at(end), batch.records)
        else:
            # Another leader wrote the batch at the offset of this node's append.
            self._appended.clear()
            self._replay(batch)
        self.end_offset = batch.last_offset + 1
        return self._replayer.take_touched()

    def _replay(self, batch: Batch) -> None:
        self._replayer.apply_batch(
            batch.records,
            base_offset=batch.base_offset,
            epoch=batch.epoch,
            timestamp_ms=batch.append_timestamp_ms,
        )

    def load(self, image: MetadataImage) -> None:
        """Start over from the image of a snapshot.

        Raises:
            InvariantViolated: this node has appended records; a leader never loads a snapshot
                (M11).
        """
        if self._appended:
            raise InvariantViolated("a leader cannot load a metadata snapshot")
        self._replayer = Replayer(image)
        self.end_offset = image.provenance.offset + 1
