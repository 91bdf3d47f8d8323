"""Metadata of a built package about the project's address: its URLs, and the README's links.

KRAFTBOX_HOME is the address of the repository, which `make release` requires. A package index knows
nothing of the repository's files, so links to them become links to that address at the tag of the
version; without an address, as in an installation from a checkout, they become plain words.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

try:
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:
    # The tests of what is below have no build backend.
    MetadataHookInterface = object

RELATIVE = re.compile(r"\[([^\]]*)\]\((?![a-z]+:|#)([^)]+)\)")
PICTURE = re.compile(r"!\[([^\]]*)\]\((?![a-z]+:|#)([^)]+)\)\n*")


def urls(home: str) -> dict[str, str]:
    """The project's addresses, by the names that package indexes know."""
    return {
        "Homepage": home,
        "Source": home,
        "Documentation": f"{home}/tree/main/docs",
        "Changelog": f"{home}/blob/main/CHANGELOG.md",
        "Issues": f"{home}/issues",
    }


def readme(text: str, home: str, version: str) -> str:
    """The README as an index shows it."""
    if not home:
        return RELATIVE.sub(r"\1", PICTURE.sub("", text))
    text = PICTURE.sub(rf"![\1]({home}/raw/v{version}/\2)\n\n", text)
    return RELATIVE.sub(rf"[\1]({home}/blob/v{version}/\2)", text)


class Hook(MetadataHookInterface):
    """Hatchling's hook for the fields that pyproject.toml declares as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        home = os.environ.get("KRAFTBOX_HOME", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": readme(text, home, metadata["version"]),
        }
        metadata["urls"] = urls(home) if home else {}
