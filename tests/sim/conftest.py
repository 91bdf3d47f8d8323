"""Everything a node may import is imported before its world begins.

pytest reads the modules of a distribution that brings a plugin, and ours does, in a way of its own,
through `open`: inside a world that door is locked.
"""

from __future__ import annotations

import importlib
import pkgutil

_PACKAGES = ("runtime", "protocol", "storage", "metalog", "controller", "broker")


def _import_all() -> None:
    for name in _PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(module.name)
    importlib.import_module("kraftbox.node")


_import_all()
