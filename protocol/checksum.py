"""CRC-32C, from the C extension of the package `crc32c`.

The package's own `__init__` looks up its version among all installed packages, which imports forty
modules and takes a tenth of a node's start. So only the extension is loaded, if it is at its usual
place.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crc32c import crc32c

PACKAGE, EXTENSION = "crc32c", "crc32c._crc32c"


def _extension() -> Any:
    """Load the extension; None if the package does not have it."""
    package = find_spec(PACKAGE)
    folders = package.submodule_search_locations if package is not None else None
    found = PathFinder.find_spec(EXTENSION, folders) if folders else None
    if found is None or found.loader is None:
        return None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


if not TYPE_CHECKING:
    crc32c = getattr(_extension(), PACKAGE, None)
    if crc32c is None:
        from crc32c import crc32c

__all__ = ["crc32c"]
