"""Packages and syntax trees, for checks of the source code."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

PACKAGES: Final = (
    "kraftbox",
    "controller",
    "broker",
    "audit",
    "serving",
    "metalog",
    "storage",
    "client",
    "protocol",
    "runtime",
    "simulation",
)
"""The packages in the wheel, the upper layers first."""


def nodes_of(tree: ast.AST) -> Sequence[ast.AST]:
    """Return a tree's nodes in the order of `ast.walk`, which takes three times as long."""
    found = [tree]
    for node in found:
        for value in vars(node).values():
            if isinstance(value, list):
                found.extend(part for part in value if isinstance(part, ast.AST))
            elif isinstance(value, ast.AST):
                found.append(value)
    return found
