"""Shell: Random streams, one for each name, so that draws from one do not shift another."""

from __future__ import annotations

import random


def stream(seed: int, *names: object) -> random.Random:
    """Return the random stream of this seed and these names; equal in every process."""
    return random.Random("/".join(str(one) for one in (seed, *names)))
