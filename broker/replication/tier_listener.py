"""The port to tiered storage (KIP-405): what becomes of replicas, told in the order it happens.

All calls are plain, and come after the replica is what they say that it is.
"""

from __future__ import annotations

from typing import Protocol

from broker.replication.partition import Partition


class TierListener(Protocol):
    """Whoever has to do with the remote segments of replicas."""

    def led(self, partition: Partition) -> None:
        """This broker leads it in a new epoch."""

    def followed(self, partition: Partition) -> None:
        """It has another leader, or none, or its leader another epoch."""

    def stopped(self, partition: Partition) -> None:
        """It serves nothing any more: deleted, moved away, its disk broken."""

    def configured(self, partition: Partition) -> None:
        """The settings of its topic may be others. Not told of a deleted topic's replicas: these
        keep what they had."""

    def keeps_folder(self, partition: Partition) -> bool:
        """Whether the folder of a replica that goes must stay for now; `folder_kept` follows."""

    def folder_kept(self, topic: str, index: int, topic_id: bytes | None, folder: str) -> None:
        """The folder of a replica that is none of this broker's any more has this path now."""


class NoTier:
    """Nothing is tiered."""

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
