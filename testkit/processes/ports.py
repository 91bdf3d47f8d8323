"""Ports for programs that need one as an argument.

They are in the range of `kraftbox up`: below the system's ephemeral ports, so that no outgoing
connection takes one before its program binds it, or while a killed node is down.
"""

from __future__ import annotations

import random

from kraftbox.launcher.place import PortChooser

_CHOOSER = PortChooser(random.Random(), set())


def free_port() -> int:
    """Return a port without a listener that this process was not given before."""
    return _CHOOSER.choose()


def free_ports(count: int) -> list[int]:
    """Return this number of free ports."""
    return [_CHOOSER.choose() for _ in range(count)]
