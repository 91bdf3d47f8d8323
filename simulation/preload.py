"""Imports of every module that a node may import, before a world begins: inside it files cannot be
opened, and the order of imports must not depend on earlier seeds."""

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
    """Import all modules, once in a process."""
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(module.name)
    importlib.import_module("kraftbox.node")
    # Modules stay, so the garbage collection after each run need not visit them.
    gc.collect()
    gc.freeze()
