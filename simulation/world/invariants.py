"""The exception of a broken promise, and the key of a partition."""

from __future__ import annotations


class Violation(AssertionError):
    """A broken promise of the product."""


def require(holds: bool, message: str) -> None:
    """Raise Violation unless `holds` is true."""
    if not holds:
        raise Violation(message)


Key = tuple[bytes, int]
"""A partition: topic id, index."""
