"""Shell: Streams of chance: one for each name, so that nobody's draws depend on another's."""

from __future__ import annotations

import random


def stream(seed: int, *names: object) -> random.Random:
    """The same stream for the same seed and names, in every process."""
    return random.Random("/".join(str(one) for one in (seed, *names)))
