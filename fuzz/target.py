"""Protocol of a fuzz target, and the list of all targets."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Protocol

NAMES = ("batches", "compression", "frames", "logs", "messages", "node", "poison", "records",
         "snapshots", "texts")  # fmt: skip


class Finding(AssertionError):
    """An inconsistency found by the target itself in bytes that the code accepted."""


class Target(Protocol):
    """A consumer of untrusted bytes.

    `run` returns or raises, and every exception is a finding: expected errors of the code under
    test for bad bytes are caught inside `run`.
    """

    def seeds(self, rng: random.Random) -> Sequence[bytes]:
        """Return good inputs, for the engine to damage."""

    def run(self, data: bytes) -> None: ...

    def close(self) -> None: ...


def make(name: str) -> Target:
    """Return the target of a module of `fuzz.targets`."""
    factory: Callable[[], Target] = import_module(f"fuzz.targets.{name}").make
    return factory()
