"""The image of the metadata log: what is committed, and what this node has appended behind it.

One per process. The loader moves it along the committed log; the controller that leads adds the
image after each batch it appends, and decides on the last of them. Such an image becomes the
committed one when its batch is committed, so a record is replayed once on the node that decided it,
too, and the two images share all that is the same. Any other committed batch is replayed.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from metalog.image.replay import Replayer, TouchedTopics
from metalog.image.values import MetadataImage, Provenance
from metalog.quorum.batches import Batch
from runtime.errors import InvariantViolated


class _Appended(NamedTuple):
    """The image after a batch that this node appended as the leader of `epoch`."""

    base_offset: int
    epoch: int
    image: MetadataImage


class LogImage:
    """`end_offset` is that of the committed log, as far as it has been replayed."""

    __slots__ = ("_appended", "_replayer", "end_offset")

    def __init__(self) -> None:
        self._replayer = Replayer()
        self._appended: deque[_Appended] = deque()
        self.end_offset = 0

    @property
    def committed(self) -> MetadataImage:
        """The image of whole metadata transactions that are committed."""
        return self._replayer.image

    @property
    def working(self) -> MetadataImage:
        """The committed image and what was appended since."""
        return self._appended[-1].image if self._appended else self._replayer.image

    @property
    def in_transaction(self) -> bool:
        """Whether the committed log ends inside a metadata transaction."""
        return self._replayer.in_transaction

    def append(self, image: MetadataImage, *, base_offset: int, epoch: int) -> None:
        """The working image after the batch at `base_offset`. A batch that was committed while it
        was appended has been replayed already."""
        if base_offset >= self.end_offset:
            self._appended.append(_Appended(base_offset, epoch, image))

    def drop_appended(self) -> None:
        """Back to the committed image: whether the rest is committed is for others to say."""
        self._appended.clear()

    def commit(self, batch: Batch) -> TouchedTopics:
        """Move the committed image past the next batch of the log; the topics it may have changed.

        Raises `ReplayError`.
        """
        first = self._appended[0] if self._appended else None
        end = Provenance(batch.last_offset, batch.epoch, batch.append_timestamp_ms)
        if not batch.records:
            self._replayer.skip(end)
        elif first is not None and first[:2] == (batch.base_offset, batch.epoch):
            self._appended.popleft()
            self._replayer.adopt(first.image.at(end), batch.records)
        else:
            # What stands where this node appended is another leader's.
            self._appended.clear()
            self._replayer.apply_batch(
                batch.records,
                base_offset=batch.base_offset,
                epoch=batch.epoch,
                timestamp_ms=batch.append_timestamp_ms,
            )
        self.end_offset = batch.last_offset + 1
        return self._replayer.take_touched()

    def load(self, image: MetadataImage) -> None:
        """Start over from the image of a snapshot; a leader is never asked to (M11)."""
        if self._appended:
            raise InvariantViolated("a node that leads was asked to load a metadata snapshot")
        self._replayer = Replayer(image)
        self.end_offset = image.provenance.offset + 1
