"""The composition root: roles wired into one node, started and stopped in order.

A node is the same object in a process on uvloop with real files and in a simulation on a virtual
loop with files in memory; everything it needs from outside is an argument of `build_node`.

Start: lock the directory and read who we are; open the metadata log; listen as a controller; open
the partitions, listen and register as a broker. Stop is the reverse: the broker leaves while the
controller can still answer it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime.log import get_logger

if TYPE_CHECKING:
    pass

_log = get_logger("kraftbox.node")

HTTP_DEFAULT_IS_A_WISH = "kraftbox.http.listener"
"""Unless this key was given, a taken port is replaced by one of the kernel's."""
