"""Shell: The metadata loader: committed batches in, images and deltas out.

One per process. It replays what the quorum commits and, after each whole batch, gives every
publisher the delta and the new image; a metadata transaction is published when it has ended. A
record that does not replay stops the node with the record in the message, because whoever went on
would act on a cluster that does not exist.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import TypeAlias

from metalog.image.delta import MetadataDelta
from metalog.image.replay import Replayer, ReplayError, TouchedTopics, replay_all
from metalog.image.values import EMPTY_IMAGE, MetadataImage, Provenance
from metalog.quorum.delivery import CommittedBatch
from metalog.quorum.node import QuorumNode
from metalog.quorum.snapshots import SnapshotReader
from protocol.errors import ProtocolError
from runtime.errors import InvariantViolated
from runtime.log import get_logger
from runtime.tasks import Supervisor

_log = get_logger("metalog.loader")

Publisher: TypeAlias = Callable[[MetadataDelta, MetadataImage], None]


class MetadataLoader:
    """Keeps `image`; register publishers before the quorum starts or at any time after."""

    def __init__(self, quorum: QuorumNode, supervisor: Supervisor) -> None:
        self._quorum = quorum
        self._supervisor = supervisor
        self._replayer = Replayer()
        self._publishers: list[Publisher] = []
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._replayed_offset = -1
        quorum.register(self)

    @property
    def image(self) -> MetadataImage:
        """The latest image that was published."""
        return self._replayer.image

    @property
    def kraft_version(self) -> int:
        """The quorum's, which no image holds."""
        return self._quorum.kraft_version

    def add_publisher(self, publisher: Publisher) -> None:
        """Call `publisher(delta, image)` after each change; first with everything there is."""
        self._publishers.append(publisher)
        if self.image is not EMPTY_IMAGE:
            publisher(MetadataDelta(EMPTY_IMAGE, self.image), self.image)

    async def wait_for_offset(self, offset: int) -> None:
        """Return once the record at `offset` has been replayed and published."""
        if self._replayed_offset >= offset:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (offset, next(self._order), future))
        await future

    # --- QuorumListener -----------------------------------------------------------------------

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
        """Nothing: an image does not depend on who leads."""

    def handle_commit(self, batch: CommittedBatch) -> None:
        before = self._replayer.image
        if batch.records:
            try:
                self._replayer.apply_batch(
                    batch.records,
                    base_offset=batch.base_offset,
                    epoch=batch.epoch,
                    timestamp_ms=batch.append_timestamp_ms,
                )
            except ReplayError as error:
                raise InvariantViolated(str(error)) from error
        else:
            self._replayer.skip(
                Provenance(batch.last_offset, batch.epoch, batch.append_timestamp_ms)
            )
        self._quorum.replayed(batch.size_bytes)
        self._publish(before, batch.last_offset, self._replayer.take_touched())

    def handle_snapshot(self, snapshot: SnapshotReader) -> Iterator[None]:
        """Loads it a batch at a time; publishes once, at the end."""
        before = self._replayer.image
        image = EMPTY_IMAGE
        try:
            for batch in snapshot.batches():
                image = replay_all(image, batch.records)
                yield
        except (ReplayError, ProtocolError) as error:
            raise InvariantViolated(f"{snapshot.path} cannot be loaded: {error}") from error
        provenance = Provenance(
            snapshot.id.offset - 1, snapshot.id.epoch, snapshot.last_contained_timestamp_ms
        )
        _log.info("loaded a metadata snapshot", offset=snapshot.id.offset, epoch=snapshot.id.epoch)
        self._replayer = Replayer(image.at(provenance))
        self._publish(before, provenance.offset, None)

    def _publish(
        self, before: MetadataImage, replayed_offset: int, touched: TouchedTopics | None
    ) -> None:
        image = self._replayer.image
        if image is not before:
            delta = MetadataDelta(before, image, touched)
            for publisher in tuple(self._publishers):
                publisher(delta, image)
        self._replayed_offset = replayed_offset
        while self._waiting and self._waiting[0][0] <= replayed_offset:
            _, _, future = heapq.heappop(self._waiting)
            if not future.done():
                future.set_result(None)
        if self._quorum.snapshot_due(image):
            self._supervisor.spawn("write a metadata snapshot", self._write_snapshot(image))

    async def _write_snapshot(self, image: MetadataImage) -> None:
        try:
            written = await self._quorum.create_snapshot(image)
        except OSError as error:
            # The log is whole without it; the next one is tried when it is due.
            _log.error("a metadata snapshot could not be written", why=str(error))
            return
        except Exception as error:  # noqa: BLE001 - nor does the node need it to go on
            self._supervisor.survive("metadata snapshot", error)
            return
        if written is not None:
            _log.info("wrote a metadata snapshot", offset=written.offset, epoch=written.epoch)
