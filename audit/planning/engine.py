"""The choice of an audit's engine: the command's own processes, or Spark."""

from __future__ import annotations

HERE_BYTES_MAX = 1 << 30
"""Some 24 million records of a metadata log: about where Spark, which is a little quicker for each
and takes long to start, catches up on one machine (docs/audit.md, Where `auto` changes)."""


def is_for_spark(size_bytes: int, *, tables: bool, asked: bool, installed: bool) -> bool:
    """Whether an audit that nobody gave an engine goes to Spark.

    size_bytes: what is to be read. tables: only Spark writes them. asked: a master, or a setting
    that only Spark has, was named. Where Spark is not installed, the command does what it can.
    """
    return asked or (installed and (tables or size_bytes > HERE_BYTES_MAX))
