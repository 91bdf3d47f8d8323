"""Differences between two metadata images, found by object identity.

Replay shares every value that a record did not touch, so an unchanged value is the same object. A
value replaced by an equal one counts as changed: an extra notification does no harm, a missed one
does. Each part is computed when it is first accessed.

Parts with text or bytes as keys are sorted by them. The order of the maps depends on hashes, which
differ between processes; the effects of a delta must not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

from metalog.image.replay import TouchedTopics
from metalog.image.values import (
    BrokerImage,
    ConfigKey,
    ControllerImage,
    MetadataImage,
    PartitionImage,
    QuotaEntity,
    TopicImage,
)

K = TypeVar("K")
V = TypeVar("V")


class Change(NamedTuple, Generic[V]):
    """A value before and after; None if it does not exist."""

    before: V | None
    after: V | None

    @property
    def created(self) -> bool:
        return self.before is None

    @property
    def deleted(self) -> bool:
        return self.after is None


class PartitionChange(NamedTuple):
    """The change of one partition. `topic` is the one after the change, or before a deletion."""

    topic: TopicImage
    partition_index: int
    before: PartitionImage | None
    after: PartitionImage | None


def diff(
    before: Mapping[K, V], after: Mapping[K, V], keys: Iterable[K] | None = None
) -> dict[K, Change[V]]:
    """Return the keys whose value is another object; with `keys`, compare only those."""
    if before is after:
        return {}
    changes: dict[K, Change[V]] = {}
    if keys is not None:
        for key in keys:
            old, new = before.get(key), after.get(key)
            if old is not new:
                changes[key] = Change(old, new)
        return changes
    for key, value in after.items():
        old = before.get(key)
        if old is not value:
            changes[key] = Change(old, value)
    for key, value in before.items():
        if key not in after:
            changes[key] = Change(value, None)
    return changes


def _itself(key: Any) -> Any:
    return key


def _sorted(changes: dict[K, Change[V]], order: Callable[[K], Any] = _itself) -> dict[K, Change[V]]:
    if len(changes) < 2:
        return changes
    return {key: changes[key] for key in sorted(changes, key=order)}


def _entity_order(entity: QuotaEntity) -> list[tuple[str, str]]:
    """Sort key of an entity; a name of None is the default entity."""
    return [(kind, name or "") for kind, name in entity]


class MetadataDelta:
    """The difference of two images.

    Args:
        touched: limits the comparison to some topics (see Replayer).
    """

    def __init__(
        self, before: MetadataImage, after: MetadataImage, touched: TouchedTopics | None = None
    ) -> None:
        self.before = before
        self.after = after
        self._touched = touched

    @cached_property
    def topics(self) -> dict[bytes, Change[TopicImage]]:
        """Topics that were created, deleted or have a changed partition, by topic id."""
        touched = self._touched
        keys = None if touched is None or touched.any_topic else touched.partitions
        return _sorted(diff(self.before.topics.by_id, self.after.topics.by_id, keys))

    def changed_in(self, topic: TopicImage, before: TopicImage | None) -> list[int]:
        """Return the numbers of partitions that differ from `before`, sorted.

        Only touched partitions are compared: of a thousand mostly one has changed.
        """
        old: Mapping[int, PartitionImage] = {} if before is None else before.partitions
        touched, new = self._touched, topic.partitions
        looked_at: Iterable[int] = new
        if touched is not None and not touched.any_topic:
            looked_at = touched.partitions.get(topic.id, ())
        return sorted(index for index in looked_at if old.get(index) is not new[index])

    @property
    def deleted_topics(self) -> list[TopicImage]:
        return [c.before for c in self.topics.values() if c.after is None and c.before is not None]

    def partitions(self) -> Iterator[PartitionChange]:
        """Yield every partition that was created, deleted or changed, by topic."""
        for change in self.topics.values():
            topic = change.after or change.before
            assert topic is not None
            before = {} if change.before is None else change.before.partitions
            after = {} if change.after is None else change.after.partitions
            for index, partition in diff(before, after).items():
                yield PartitionChange(topic, index, partition.before, partition.after)

    @cached_property
    def brokers(self) -> dict[int, Change[BrokerImage]]:
        return diff(self.before.cluster.brokers, self.after.cluster.brokers)

    @cached_property
    def controllers(self) -> dict[int, Change[ControllerImage]]:
        return diff(self.before.cluster.controllers, self.after.cluster.controllers)

    @cached_property
    def configs(self) -> dict[ConfigKey, Change[Mapping[str, str]]]:
        """Resources with a changed key, by (resource type, resource name)."""
        return _sorted(diff(self.before.configs, self.after.configs))

    @cached_property
    def features(self) -> dict[str, Change[int]]:
        return {
            name: change
            for name, change in _sorted(diff(self.before.features, self.after.features)).items()
            if change.before != change.after
        }

    @cached_property
    def client_quotas(self) -> dict[QuotaEntity, Change[Mapping[str, float]]]:
        changes: dict[QuotaEntity, Change[Mapping[str, float]]] = diff(
            self.before.client_quotas, self.after.client_quotas
        )
        return _sorted(changes, _entity_order)
