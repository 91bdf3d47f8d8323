"""Port to tiered storage (KIP-405): events of replicas, in the order in which they happen.

All calls are synchronous. Each is made after the replica has reached the state that it reports.
"""

from __future__ import annotations

from typing import Protocol

from broker.replication.partition.partition import Partition


class TierListener(Protocol):
    """The component that manages the remote segments of replicas."""

    def led(self, partition: Partition) -> None:
        """Note that this broker leads the partition in a new epoch."""

    def followed(self, partition: Partition) -> None:
        """Note that the replica has a new leader, no leader, or the same leader in a new epoch."""

    def stopped(self, partition: Partition) -> None:
        """Note that the replica serves nothing any more: it was deleted or moved away, or its disk
        failed."""

    def configured(self, partition: Partition) -> None:
        """Note that the topic's settings may have changed. Not called for replicas of a deleted
        topic, which keep their settings."""

    def keeps_folder(self, partition: Partition) -> bool:
        """Return whether the folder of a removed replica must stay; `folder_kept` follows."""

    def folder_kept(self, topic: str, index: int, topic_id: bytes | None, folder: str) -> None:
        """Note the new path of the folder of a replica that this broker no longer has."""


class NoTier:
    """A listener for brokers without tiered storage."""

    def led(self, partition: Partition) -> None:
        return

    def followed(self, partition: Partition) -> None:
        return

    def stopped(self, partition: Partition) -> None:
        return

    def configured(self, partition: Partition) -> None:
        return

    def keeps_folder(self, partition: Partition) -> bool:
        return False

    def folder_kept(self, topic: str, index: int, topic_id: bytes | None, folder: str) -> None:
        return
