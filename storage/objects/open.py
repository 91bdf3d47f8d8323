"""Opening the object store that a node's settings name."""

from __future__ import annotations

from storage.objects.port import Objects
from storage.objects.settings import StoreSettings


def open_objects(settings: StoreSettings) -> Objects:
    """Return the store of these settings, without sending a request.

    Call it on the running event loop of a process that no longer forks. Raises ObjectRefused, and
    ImportError without the extra `tiered`.
    """
    from storage.objects.obstore_objects import ObstoreObjects

    return ObstoreObjects(settings)
