"""Ports for programs that must be told one.

They lie where those of `kraftbox up` lie: below what the system lends to outgoing connections, so
that nobody takes one before its program binds it, or while a node that was killed is down.
"""

from __future__ import annotations

import random

from kraftbox.launcher.place import PortChooser

_CHOOSER = PortChooser(random.Random(), set())


def free_port() -> int:
    """A port that nobody listens on now, and that this process was not given before."""
    return _CHOOSER.choose()


def free_ports(count: int) -> list[int]:
    """So many of them."""
    return [_CHOOSER.choose() for _ in range(count)]
