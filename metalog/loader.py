"""Shell: The metadata loader: committed batches to images and deltas.

There is one loader per process. It replays the batches that the quorum commits. After each batch it
passes the delta and the new image to every publisher; a metadata transaction is published once it
has ended. A record that does not replay stops the node with the record in the message: to continue
would mean to act on wrong cluster state.

In a process with the controller role, the writer shares the image of the log. The loader, not the
quorum, notifies it of leaders and commits, so that it learns of commits only after their replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

from metalog.image.delta import MetadataDelta
from metalog.image.replay import GrowingImage, ReplayError, TouchedTopics
from metalog.image.values import EMPTY_IMAGE, MetadataImage, Provenance
from metalog.log_image import LogImage
from metalog.quorum.delivery import CommittedBatch
from metalog.quorum.node import QuorumNode
from metalog.quorum.snapshots import SnapshotReader
from protocol.errors import ProtocolError
from runtime.errors import InvariantViolated
from runtime.log import get_logger
from runtime.tasks import Supervisor

_log = get_logger("metalog.loader")

Publisher: TypeAlias = Callable[[MetadataDelta, MetadataImage], None]


class Writer(Protocol):
    """Appends to the metadata log while this node leads. Its methods run on the event loop."""

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None: ...

    def handle_commit(self, epoch: int) -> None:
        """Note that the committed image has advanced, by records of a leader of that epoch."""
        ...


class MetadataLoader:
    """Keeps `log_image` current; publishers may register before or after the quorum starts."""

    def __init__(self, quorum: QuorumNode, supervisor: Supervisor) -> None:
        self.log_image = LogImage()
        self._quorum = quorum
        self._supervisor = supervisor
        self._publishers: list[Publisher] = []
        self._writer: Writer | None = None
        quorum.register(self)

    @property
    def image(self) -> MetadataImage:
        """The latest image that was published."""
        return self.log_image.committed

    @property
    def kraft_version(self) -> int:
        """The quorum's kraft.version; no image contains it."""
        return self._quorum.kraft_version

    def add_publisher(self, publisher: Publisher) -> None:
        """Call `publisher(delta, image)` after each change, and now if an image exists already."""
        self._publishers.append(publisher)
        if self.image is not EMPTY_IMAGE:
            publisher(MetadataDelta(EMPTY_IMAGE, self.image), self.image)

    def register_writer(self, writer: Writer) -> None:
        """Register the writer, which is called after the publishers; before the quorum starts."""
        self._writer = writer

    # --- QuorumListener -----------------------------------------------------------------------

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
        """Notify the writer only: an image does not depend on the leader."""
        if self._writer is not None:
            self._writer.handle_leader_change(leader_id, epoch)

    def handle_commit(self, batch: CommittedBatch) -> None:
        before = self.image
        try:
            touched = self.log_image.commit(batch)
        except ReplayError as error:
            raise InvariantViolated(f"{self._quorum.log.directory}: {error}") from error
        self._quorum.replayed(batch.size_bytes)
        self._publish(before, touched, batch.epoch)

    def handle_snapshot(self, snapshot: SnapshotReader) -> Iterator[None]:
        """Load a snapshot, one batch per step, and publish it at the end."""
        before = self.image
        growing = GrowingImage(EMPTY_IMAGE)
        try:
            for batch in snapshot.batches():
                for record in batch.records:
                    growing.add(record)
                yield
        except (ReplayError, ProtocolError) as error:
            raise InvariantViolated(f"cannot load {snapshot.path}: {error}") from error
        end_offset, epoch = snapshot.id
        provenance = Provenance(end_offset - 1, epoch, snapshot.last_contained_timestamp_ms)
        _log.info("loaded a metadata snapshot", offset=end_offset, epoch=epoch)
        self.log_image.load(growing.finish().at(provenance))
        self._publish(before, None, epoch)

    def _publish(self, before: MetadataImage, touched: TouchedTopics | None, epoch: int) -> None:
        image = self.image
        if image is not before:
            delta = MetadataDelta(before, image, touched)
            for publisher in tuple(self._publishers):
                publisher(delta, image)
        if self._quorum.snapshot_due(image):
            self._supervisor.spawn("write a metadata snapshot", self._write_snapshot(image))
        if self._writer is not None:
            self._writer.handle_commit(epoch)

    async def _write_snapshot(self, image: MetadataImage) -> None:
        try:
            written = await self._quorum.create_snapshot(image)
        except OSError as error:
            # The log is complete without the snapshot; the next one is written when it is due.
            _log.error("a metadata snapshot could not be written", why=str(error))
            return
        except Exception as error:  # noqa: BLE001 - the node works without a snapshot
            self._supervisor.survive("metadata snapshot", error)
            return
        if written is not None:
            _log.info("wrote a metadata snapshot", offset=written.offset, epoch=written.epoch)
