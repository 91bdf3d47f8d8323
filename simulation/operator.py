"""Shell: The operator of a simulated cluster: admin requests that are repeated until they are
answered.

What an operator asks changes what may be expected, from the moment it is asked: a topic that is to
be deleted has no ledger any more, one that may elect uncleanly has given its records up. What has
become of a request without an answer is read from the records that the controllers committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from client.admin import Admin
from client.cluster_client import ClusterClient
from metalog.image.values import PartitionImage, TopicImage
from protocol.errors import ApiError, ErrorCode
from simulation.world.invariants import Violation

if TYPE_CHECKING:
    from simulation.clients.load import Load
    from simulation.judges.partitions import Promises

REQUEST_MS = 3_000
PATIENCE_S = 120.0
"""How long an operator repeats a request that nobody answers; far more than any trouble lasts."""
PAUSE_S = 0.3


class Operator:
    """One for a world, on the clients' host."""

    def __init__(
        self, bootstrap: Sequence[tuple[str, int]], promises: Promises, load: Load
    ) -> None:
        self._cluster = ClusterClient(bootstrap, "operator")
        self.admin = Admin(self._cluster, REQUEST_MS)
        self.cluster = self._cluster
        self._promises = promises
        self._load = load
        self._loop = asyncio.get_running_loop()
        self.rules = asyncio.Lock()
        """Held while a topic is made, or a strategy set: no topic is without one of its own while
        all others may elect anybody."""
        self.anybody = False
        """Whether the strategy of the cluster is, or is about to be, Aggressive."""

    async def close(self) -> None:
        await self._cluster.close()

    async def insist(self, ask: Callable[[], Awaitable[Any]]) -> ErrorCode:
        """Repeat it until it is answered: NONE, or the error that no patience helps against."""
        deadline_s = self._loop.time() + PATIENCE_S
        while True:
            try:
                await ask()
                return ErrorCode.NONE
            except ApiError as error:
                if not error.code.retriable or error.code in FINAL:
                    return error.code
                last: Exception = error
            except OSError as error:
                last = error
            if self._loop.time() >= deadline_s:
                raise Violation(f"P26: an operator waits since {PATIENCE_S:g} s, last: {last!r}")
            await asyncio.sleep(PAUSE_S)

    # --- what there is ------------------------------------------------------------------------

    def topics(self) -> list[TopicImage]:
        """The clients' topics, as the controllers have committed them, by name."""
        image = self._promises.metadata.image
        found = [one for one in image.topics.by_id.values() if not one.name.startswith("__")]
        return sorted(found, key=lambda one: one.name)

    def topic(self, which: int) -> TopicImage | None:
        """The one that a number means now, counted around."""
        found = self.topics()
        return found[which % len(found)] if found else None

    def partition(self, which: int) -> tuple[str, int, PartitionImage] | None:
        """The one that a number means now: topic, index, image."""
        found = [
            (topic.name, index, topic.partitions[index])
            for topic in self.topics()
            for index in sorted(topic.partitions)
        ]
        return found[which % len(found)] if found else None

    def is_moving(self, topic: str, index: int) -> bool:
        """Whether a reassignment is under way."""
        for one in self.topics():
            image = one.partitions.get(index) if one.name == topic else None
            if image is not None and (image.adding or image.removing):
                return True
        return False

    # --- what changes what may be expected ----------------------------------------------------

    def relies_on(self, topic: TopicImage) -> bool:
        """Whether clients use it, and nobody has asked to delete it."""
        return any(one.topic_id == topic.id for one in self._load.partitions)

    def deleting(self, topic: TopicImage) -> None:
        """From now on nobody relies on it, nor, since a request may be late, on its name."""
        self._promises.may_vanish.add(topic.name)
        self._load.end(topic.id)

    def moving(self, partition: tuple[str, int], replicas: Sequence[int]) -> None:
        """From now on these may be its replicas."""
        moves = self._promises.metadata.moves
        moves.setdefault(partition, set()).add(frozenset(replicas))

    def may_give_up(self, topic: str) -> bool:
        """Whether it is a topic of clients, and another one is left that keeps every promise. What
        groups are told hangs on the coordinators' topic, so nobody gives that up."""
        topics = self.topics()
        kept = {one.name for one in topics if self.relies_on(one)}
        theirs = any(one.name == topic for one in topics)
        return theirs and bool(kept - self._promises.given_up - {topic})

    def giving_up(self, topic: str) -> None:
        """From now on unclean elections may lose what the topic has."""
        self._promises.given_up.add(topic)

    def letting_go(self, topic: str) -> None:
        """From now on old records may be deleted."""
        self._promises.may_shrink.add(topic)
        self._promises.let_go.add(topic)

    def look(self) -> None:
        """Let clients use the topics and partitions that there are now, and no others."""
        topics = {topic.id: topic for topic in self.topics()}
        for gone in {one.topic_id for one in self._load.partitions} - set(topics):
            self._load.end(gone)
        for topic in topics.values():
            self._load.found(topic.name, topic.id, len(topic.partitions))


FINAL = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Retriable for clients that wait for a topic; an operator knows which there are."""
