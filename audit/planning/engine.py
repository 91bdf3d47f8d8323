"""Selection of an audit's engine: the command's own processes, or Spark."""

from __future__ import annotations

HERE_BYTES_MAX = 1 << 30
"""Some 24 million records of a metadata log. Spark is slightly faster per record and takes long
to start; at about this size it catches up on one machine (docs/audit.md, Where `auto` changes).
"""


def is_for_spark(size_bytes: int, *, tables: bool, requested: bool, installed: bool) -> bool:
    """Return whether the engine `auto` is Spark.

    Args:
        size_bytes: size of the input.
        tables: tables are requested, which only Spark writes.
        requested: a Spark master, or a setting only for Spark, was given.
        installed: Spark is installed. Without it the command does what it can.
    """
    return requested or (installed and (tables or size_bytes > HERE_BYTES_MAX))
