"""Shell: The operator of a simulated cluster: admin requests that are repeated until they are
answered.

A request changes the expectations from the moment of its sending: a topic to be deleted has no
ledger any more, and one that may elect uncleanly is in `given_up`. The effect of a request without
a response is read from the records that the controllers committed.
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
"""Seconds for which an operator repeats an unanswered request; far more than any fault lasts."""
PAUSE_S = 0.3
TRANSACTIONS = "x-"
"""Begin of the names of topics with transactions, which clients and operators leave alone."""


class Operator:
    """The operator of a world, on the clients' host."""

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
        """Held while a topic is created, or a strategy set: no topic may be without a strategy of
        its own while all others may elect any replica."""
        self.anybody = False
        """True if the strategy of the cluster is, or is about to be, Aggressive."""

    async def close(self) -> None:
        await self._cluster.close()

    async def insist(self, ask: Callable[[], Awaitable[Any]]) -> ErrorCode:
        """Repeat a request until it is answered.

        Returns: NONE, or an error that a retry cannot change.
        Raises: Violation (P26) after `PATIENCE_S`.
        """
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
        """Return the clients' topics, as the controllers have committed them, by name."""
        image = self._promises.metadata.image
        own = ("__", TRANSACTIONS)
        found = [one for one in image.topics.by_id.values() if not one.name.startswith(own)]
        return sorted(found, key=lambda one: one.name)

    def topic(self, which: int) -> TopicImage | None:
        """Return the topic for a number, modulo the present topics."""
        found = self.topics()
        return found[which % len(found)] if found else None

    def partition(self, which: int) -> tuple[str, int, PartitionImage] | None:
        """Return topic, index and image of the partition for a number, modulo the present ones."""
        found = [
            (topic.name, index, topic.partitions[index])
            for topic in self.topics()
            for index in sorted(topic.partitions)
        ]
        return found[which % len(found)] if found else None

    def is_moving(self, topic: str, index: int) -> bool:
        """Return whether a reassignment of the partition is in progress."""
        for one in self.topics():
            image = one.partitions.get(index) if one.name == topic else None
            if image is not None and (image.adding or image.removing):
                return True
        return False

    # --- what changes what may be expected ----------------------------------------------------

    def relies_on(self, topic: TopicImage) -> bool:
        """Return whether clients use the topic and no operator has requested its deletion."""
        return any(one.topic_id == topic.id for one in self._load.ledgers.partitions)

    def deleting(self, topic: TopicImage) -> None:
        """End the topic's promises, and, since a request may be late, those of its name."""
        self._promises.may_vanish.add(topic.name)
        self._load.ledgers.end(topic.id)

    async def remove(self, name: str) -> None:
        """Delete a topic with transactions, if it exists."""
        for topic in list(self._promises.metadata.image.topics.by_id.values()):
            if topic.name == name:
                self.deleting(topic)
                await self.insist(lambda: self.admin.delete_topic(name))

    def moving(self, partition: tuple[str, int], replicas: Sequence[int]) -> None:
        """Allow these replicas for the partition from now on."""
        moves = self._promises.metadata.moves
        moves.setdefault(partition, set()).add(frozenset(replicas))

    def may_give_up(self, topic: str) -> bool:
        """Return whether it is a topic of clients, and another one with all promises is left. The
        promises of groups depend on the offsets topic, so that one never qualifies."""
        topics = self.topics()
        kept = {one.name for one in topics if self.relies_on(one)}
        theirs = any(one.name == topic for one in topics)
        return theirs and bool(kept - self._promises.given_up - {topic})

    def giving_up(self, topic: str) -> None:
        """Waive the promises that unclean elections of the topic may break."""
        self._promises.given_up.add(topic)

    def letting_go(self, topic: str) -> None:
        """Allow the deletion of the topic's old records from now on."""
        self._promises.may_shrink.add(topic)
        self._promises.let_go.add(topic)

    def look(self) -> None:
        """Let clients use the topics and partitions that exist now, and no others."""
        topics = {topic.id: topic for topic in self.topics()}
        for gone in {one.topic_id for one in self._load.ledgers.partitions} - set(topics):
            self._load.ledgers.end(gone)
        for topic in topics.values():
            self._load.ledgers.found(topic.name, topic.id, len(topic.partitions))


FINAL = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Retriable for clients that wait for a topic; an operator knows the topics that exist."""
