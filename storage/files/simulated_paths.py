"""Cached path operations for the simulated disks, which use the same few hundred paths."""

from __future__ import annotations

import posixpath
from functools import lru_cache

_KEPT = 4096


@lru_cache(_KEPT)
def normal_path(path: str) -> str:
    """Return `posixpath.normpath(path)`, cached."""
    return posixpath.normpath(path)


@lru_cache(_KEPT)
def split_path(path: str) -> tuple[str, str]:
    """Return `posixpath.split(path)`, cached."""
    return posixpath.split(path)
