"""Opening the object store that a node's settings name."""

from __future__ import annotations

from storage.objects.port import Objects
from storage.objects.settings import StoreSettings


def open_objects(settings: StoreSettings) -> Objects:
    """The store of these settings; nothing is sent yet. Call it on the running loop of a process
    that forks no more. Raises ObjectRefused, and ImportError without the extra `tiered`."""
    from storage.objects.obstore_objects import ObstoreObjects

    return ObstoreObjects(settings)
