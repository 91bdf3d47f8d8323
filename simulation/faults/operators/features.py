"""Operators and feature levels: metadata.version rises while the cluster runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from client.errors import check
from metalog.image.features import METADATA_VERSION
from protocol.messages.update_features import UpdateFeaturesRequest
from simulation.faults.kind import Args, OperatorKind
from simulation.shapes.shape import LEVELS

if TYPE_CHECKING:
    from random import Random

    from protocol.errors import ErrorCode
    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape

UPGRADE = 1


async def set_level(world: RunWorld, feature: str, level: int, upgrade_type: int) -> bool:
    """Repeat the request until it is answered. Returns: whether the level was set."""
    operator = world.operator
    world.promises.metadata.levels.add((feature, level))

    async def ask() -> None:
        update = UpdateFeaturesRequest.FeatureUpdateKey(
            feature=feature, max_version_level=level, upgrade_type=upgrade_type
        )
        request = UpdateFeaturesRequest(feature_updates=[update])
        answer = await operator.cluster.request_any(request)
        check(answer.error_code, feature, answer.error_message)

    code: ErrorCode = await operator.insist(ask)
    return not code


def _draw(rng: Random, shape: Shape) -> tuple[str, Args]:
    old = shape.metadata_version or LEVELS.max_level
    return METADATA_VERSION, {"level": rng.randint(old, LEVELS.max_level)}


async def _raise(world: RunWorld, event: Event, _rng: Random) -> bool:
    """Raise the level; without effect if it is as high already."""
    now = world.promises.metadata.image.features[METADATA_VERSION]
    if event.args["level"] <= now:
        return False
    done = await set_level(world, METADATA_VERSION, event.args["level"], UPGRADE)
    await asyncio.sleep(event.for_ms / 1000)
    return done


def is_old(shape: Shape) -> bool:
    """Return whether the cluster starts below the highest level."""
    return shape.metadata_version is not None and shape.metadata_version < LEVELS.max_level


KINDS = {
    "metadata level": OperatorKind(
        "operators", "metadata.version is finalised at a higher level", _draw, _raise, is_old
    ),
}
