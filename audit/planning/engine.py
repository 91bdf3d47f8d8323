"""The choice of an audit's engine: this process, or Spark."""

from __future__ import annotations

HERE_BYTES_MAX = 192 << 20
"""Some four million records of a metadata log, which this process replays in about the time that
Spark takes to start. By rates that were measured one by one Spark has caught up a little later
(docs/audit.md, Where `auto` changes)."""


def is_for_spark(size_bytes: int, *, tables: bool, asked: bool, installed: bool) -> bool:
    """Whether an audit that nobody gave an engine goes to Spark.

    size_bytes: what is to be read. tables: only Spark writes them. asked: a master, or a setting
    that only Spark has, was named. Where Spark is not installed, this process does what it can.
    """
    return asked or (installed and (tables or size_bytes > HERE_BYTES_MAX))
