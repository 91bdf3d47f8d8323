"""Shell: Application of metadata images to a broker's replicas, from its own registration on.

The first image that contains this process's registration is newer than everything in its logs.
Older images are not applied: with one, the broker could mistake a recreated topic's log for a
leftover and delete it. A later image without that registration ends all leading: another process
with this id may lead the same partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from broker.controller_link.membership import Membership
from broker.metadata.topic_settings import tiered_topics
from broker.replication.appends.held_batches import HeldBatches
from broker.replication.replicas.replica_manager import ReplicaManager
from metalog.image.delta import MetadataDelta
from metalog.image.values import EMPTY_IMAGE, MetadataImage
from runtime.config import keys_remote, keys_topic
from runtime.log import get_logger
from runtime.slices import SLICE_MS

if TYPE_CHECKING:
    from broker.tiering.tier import Tier

NAMED_MAX: Final = 20
"""Maximum number of topics named in one message."""

_log = get_logger("broker.assembly")


class ReplicaImages:
    """The images that a broker's replicas have and have not received.

    Args:
        tiered_storage: whether this broker has tiered storage.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        membership: Membership,
        *,
        tier: Tier | None,
        tiered_storage: bool,
    ) -> None:
        self._replicas = replicas
        self._membership = membership
        self._tier = tier
        self._tiered_storage = tiered_storage
        self._caught_up = False

    def publish(
        self, delta: MetadataDelta, image: MetadataImage, changed: Iterable[str], *, is_own: bool
    ) -> None:
        """Apply a new image.

        Args:
            changed: topics with changed settings.
            is_own: whether the image contains this process's registration.
        """
        if self._caught_up and not is_own:
            # The lifecycle reports the reason.
            self._replicas.lead_nothing()
        elif self._caught_up:
            # Apply the min ISR with which the controller made a new ISR before that ISR.
            self._replicas.reconfigure(changed)
            self._replicas.apply(delta)
        elif is_own and not self._refuses(image):
            self._catch_up(image)

    def _refuses(self, image: MetadataImage) -> bool:
        """Refuse the start if topics are tiered and tiered storage is off: a tiered topic's local
        logs would be mistaken for all of its data. Returns: whether it was refused."""
        if self._tiered_storage:
            return False
        tiered = tiered_topics(image)
        if tiered:
            more = f" and {len(tiered) - NAMED_MAX} more" if len(tiered) > NAMED_MAX else ""
            self._membership.refuse(
                f"{keys_remote.REMOTE_LOG_STORAGE_SYSTEM_ENABLE.name}=false, but the cluster has "
                f"tiered topics: {', '.join(tiered[:NAMED_MAX])}{more}. Switch it on, or delete "
                f"them, or switch their {keys_topic.REMOTE_STORAGE_ENABLE.name} off, before"
            )
        return bool(tiered)

    def _catch_up(self, image: MetadataImage) -> None:
        self._caught_up = True
        strays = self._replicas.set_strays_aside(image)
        if strays:
            _log.warning("renamed logs of unassigned partitions", logs=strays[:NAMED_MAX])
        if self._tier is not None:
            self._tier.caught_up()
        self._replicas.apply(MetadataDelta(EMPTY_IMAGE, image))


class ReplicaBacklog:
    """The replicas' backlog, processed in slices."""

    def __init__(self, replicas: ReplicaManager, held_batches: HeldBatches) -> None:
        self._replicas = replicas
        self._held_batches = held_batches
        self._is_scheduled = False

    def schedule(self) -> None:
        """Process the backlog: a first slice at once, the rest between other work."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._advance()

    def _advance(self) -> None:
        is_more_left = self._replicas.advance(SLICE_MS)
        self._held_batches.roles_changed()
        if is_more_left:
            asyncio.get_running_loop().call_soon(self._advance)
        else:
            self._is_scheduled = False
