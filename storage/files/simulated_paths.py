"""Paths of the simulated disks, which are asked for the same few hundred again and again."""

from __future__ import annotations

import posixpath
from functools import lru_cache

_KEPT = 4096


@lru_cache(_KEPT)
def normal_path(path: str) -> str:
    """As `posixpath.normpath`."""
    return posixpath.normpath(path)


@lru_cache(_KEPT)
def split_path(path: str) -> tuple[str, str]:
    """As `posixpath.split`."""
    return posixpath.split(path)
