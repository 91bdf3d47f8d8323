"""Everything a node may import, imported before a world begins: inside it files cannot be
opened, and what is imported first must not depend on which seed ran before."""

from __future__ import annotations

import gc
import importlib
import pkgutil
from functools import cache

PACKAGES = (
    "runtime",
    "protocol",
    "storage",
    "metalog",
    "serving",
    "controller",
    "broker",
    "client",
)


@cache
def import_nodes() -> None:
    """Once in a process."""
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(module.name)
    importlib.import_module("kraftbox.node")
    # Modules stay; the collection after each run need not look through them again.
    gc.collect()
    gc.freeze()
