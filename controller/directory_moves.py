"""Earlier log directories of replicas that their brokers moved (KIP-858), as soft state.

A broker with several directories reports a move before the copy takes over. It reports the old
directory again if the copy ends early: the new directory failed, or an operator cancelled the move.
The replica then has its complete old log. Only the process that reported the move can know that, so
each entry counts under the broker epoch in which it was made.

A controller may not know of a move, because it has just become active or has noted many moves
since. It then treats the replica as a new one, which may not lead where the partition relies on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from metalog.image.values import BrokerImage, MetadataImage
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.schema import MetadataRecord

MOVES_MAX: Final = 4096
"""Limit of replicas whose moves are kept; the oldest are dropped first."""

Replica = tuple[bytes, int, int]
"""Topic id, partition, broker."""


class DirectoryMoves:
    """For each replica, its earlier directories under the broker's current epoch."""

    def __init__(self) -> None:
        self._moves: dict[Replica, tuple[int, frozenset[bytes]]] = {}

    def __len__(self) -> int:
        return len(self._moves)

    def was_in(self, topic_id: bytes, index: int, broker: BrokerImage, directory: bytes) -> bool:
        """Return whether this process of the broker had the replica in that directory before."""
        epoch, known = self._moves.get((topic_id, index, broker.id), (-1, frozenset()))
        return epoch == broker.epoch and directory in known

    def note(self, before: MetadataImage, records: Iterable[MetadataRecord]) -> None:
        """Note the moves in records that are being appended; `before` is the image without them."""
        places: dict[Replica, bytes] = {}
        for record in records:
            if type(record) is not PartitionChangeRecord or record.directories is None:
                continue
            partition = before.topics.partition(record.topic_id, record.partition_id)
            if partition is None:
                continue
            replicas = partition.replicas if record.replicas is None else record.replicas
            for broker_id, after in zip(replicas, record.directories, strict=True):
                replica = (record.topic_id, record.partition_id, broker_id)
                was = places.get(replica, partition.directory_of(broker_id))
                places[replica] = after
                broker = before.cluster.brokers.get(broker_id)
                if was is not None and was != after and broker is not None:
                    self._moved(replica, broker, was, after)

    def _moved(self, replica: Replica, broker: BrokerImage, was: bytes, after: bytes) -> None:
        if was not in broker.directories or after not in broker.directories:
            # The directory was never reported, has failed, or is on another disk.
            return
        epoch, known = self._moves.pop(replica, (-1, frozenset()))
        earlier = known if epoch == broker.epoch else frozenset()
        self._moves[replica] = broker.epoch, earlier | {was}
        if len(self._moves) > MOVES_MAX:
            del self._moves[next(iter(self._moves))]

    def clear(self) -> None:
        """Forget all moves: this node is no longer the active controller."""
        self._moves.clear()
