"""What a target is, and where they are listed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Protocol

NAMES = ("batches", "compression", "frames", "logs", "messages", "node", "poison", "records",
         "snapshots", "texts")  # fmt: skip


class Finding(AssertionError):
    """A target's own complaint: bytes were accepted and something about them does not add up."""


class Target(Protocol):
    """Something that takes bytes from strangers.

    `run` returns or raises; whatever it raises is a finding. What the code under test may raise
    for bad bytes is caught inside.
    """

    def seeds(self, rng: random.Random) -> Sequence[bytes]:
        """Good inputs, to be damaged."""

    def run(self, data: bytes) -> None: ...

    def close(self) -> None: ...


def make(name: str) -> Target:
    """The target of a module of `fuzz.targets`."""
    factory: Callable[[], Target] = import_module(f"fuzz.targets.{name}").make
    return factory()
