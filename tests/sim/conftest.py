"""Everything a node may import is imported before its world begins.

pytest reads the modules of a distribution that brings a plugin, and ours does, in a way of its own,
through `open`: inside a world that door is locked.
"""

from __future__ import annotations

from simulation.preload import import_nodes

import_nodes()
