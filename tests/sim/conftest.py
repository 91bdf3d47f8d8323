"""Imports of all of a node's modules before its world begins.

Our distribution has a pytest plugin. pytest reads the modules of such a distribution in a way of
its own, through `open`, which is trapped inside a world.
"""

from __future__ import annotations

from simulation.preload import import_nodes

import_nodes()
