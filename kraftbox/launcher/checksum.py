"""CRC-32C as `protocol.checksum` has it, for users' processes: `protocol` may be theirs there.

The package's own start looks its version up among all that is installed: forty modules, and a tenth
of what a node's start takes. So the extension is loaded alone, if it is where it always was.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crc32c import crc32c

PACKAGE, EXTENSION = "crc32c", "crc32c._crc32c"


def _extension() -> Any:
    """The loaded extension; None where the package does not have it."""
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
