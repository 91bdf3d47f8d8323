"""Names of partition folders."""

from __future__ import annotations

import posixpath

from storage.log.errors import CorruptLog


def split_directory_name(directory: str) -> tuple[str, int]:
    """(topic, partition) of `.../<topic>-<partition>`. Raises CorruptLog."""
    topic, _, partition = posixpath.basename(directory).rpartition("-")
    if not topic or not partition.isascii() or not partition.isdigit():
        raise CorruptLog(f"{directory!r} is not named <topic>-<partition>")
    return topic, int(partition)
