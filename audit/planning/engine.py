"""The choice of an audit's engine: this process, or Spark."""

from __future__ import annotations

HERE_BYTES_MAX = 192 << 20
"""Spark takes some 19 s to start. This process replays this much of a metadata log, some four
million records, in about that time (docs/audit.md, Cost)."""


def is_for_spark(size_bytes: int, *, tables: bool, asked: bool, installed: bool) -> bool:
    """Whether an audit that nobody gave an engine goes to Spark.

    size_bytes: what is to be read. tables: only Spark writes them. asked: a master, or a setting
    that only Spark has, was named. Where Spark is not installed, this process does what it can.
    """
    return asked or (installed and (tables or size_bytes > HERE_BYTES_MAX))
