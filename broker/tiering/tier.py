"""Shell: tiered storage of one broker (KIP-405), put together, started and stopped.

There is one only where `remote.log.storage.system.enable` is true; else `BrokerContext.tier` is
None, and nothing of this is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from broker.tiering.settings import RemoteSettings
from runtime.config import NodeConfig
from storage.objects import Objects, StoreSettings
from storage.tiered.segment_store import SegmentStore

ObjectsFactory: TypeAlias = Callable[[StoreSettings], Objects]


class Tier:
    """The parts of a broker that deal with remote segments."""

    def __init__(self, settings: RemoteSettings, *, open_objects: ObjectsFactory) -> None:
        """Must be called on the running loop of a process that forks no more."""
        self.settings = settings
        self.store = SegmentStore(open_objects(settings.store))

    def follow(self, node: NodeConfig) -> None:
        """Dynamic values have changed."""
        self.settings = RemoteSettings.of(node)

    async def close(self) -> None:
        """Gives the store's connections back."""
        await self.store.objects.close()
