"""Offsets of deleted topics: offsets of a shard whose topic does not exist any more.

A topic that is created again under its old name has another id and begins at offset 0. An offset of
the old topic must never be returned for it, whether or not its tombstone was written.

An offset is recorded with its topic's id (version 4 of the record). The id is compared with the
metadata image whenever the offset is used. This needs no memory: it works after a failover, after a
refused append, and after a failure before the tombstones.

An id that the image lacks is that of a deleted topic, not of one that this broker has yet to learn
of. Earlier coordinators accepted commits by images that are older than the record that made this
broker the leader, and its own image has that record.

Records of Kafka before 4.1, and of commits with a retention time of their own (OffsetCommit v2-4),
have no id. Such an offset is stale if the image lacks its topic or partition. It is also stale if
this coordinator saw the deletion: `DeletedTopics` keeps the offsets that existed by then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from broker.coordinators.group.hard_state import HardState
from broker.coordinators.group.records import CommittedOffset, TopicPartition
from broker.coordinators.group.transactions import ByProducer
from protocol.ids import ZERO_UUID

Value: TypeAlias = CommittedOffset | ByProducer
"""An offset, or the pending ones of a partition that has no committed one."""


class TopicLookup(Protocol):
    """The topics that exist now."""

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id, or None."""

    def topic_id(self, name: str) -> bytes | None:
        """Return the id of the topic with this name, or None."""

    def has_partition(self, name: str, partition: int) -> bool: ...


class DeletedTopics(NamedTuple):
    """Topics that were deleted together, and the shard's state at that moment (`before`). If the
    groups have been loaded again since, `here` is the state after loading; otherwise it is
    `before`."""

    names: Collection[str]
    before: HardState
    here: HardState

    def covers(self, group_id: str, at: TopicPartition, value: Value) -> bool:
        """Return whether this offset was committed before the deletion. An equal one that was
        committed later is another object."""
        if at.topic not in self.names or value_of(self.here, group_id, at) is not value:
            return False
        return self.here is self.before or value_of(self.before, group_id, at) == value


class Deletions:
    """The deletions of topics that one shard knows of, in order; `entries` may be read."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[DeletedTopics] = []

    def note(self, names: Iterable[str], state: HardState) -> None:
        """Add the deletion of topics with these names; `state` is the shard's appended one."""
        if self.entries and self.entries[-1].before is state:
            names = {*self.entries.pop().names, *names}
        self.entries.append(DeletedTopics(frozenset(names), state, state))

    def take_over(self, earlier: Iterable[DeletedTopics], state: HardState) -> None:
        """Add the deletions that an earlier shard of this partition saw; `state` is that of this
        shard, which has just been loaded."""
        self.entries.extend(one._replace(here=state) for one in earlier)

    def forget(self, deleted: Sequence[DeletedTopics]) -> None:
        """Remove these deletions, after tombstones for all their offsets were appended."""
        done = {id(one) for one in deleted}
        self.entries = [one for one in self.entries if id(one) not in done]


def value_of(state: HardState, group_id: str, at: TopicPartition) -> Value | None:
    return state.offsets_of(group_id).get(at) or state.pending_of(group_id).get(at)


def values(state: HardState) -> Iterator[tuple[str, TopicPartition, Value]]:
    """Yield everything that `value_of` finds, with its group and partition."""
    for group_id, offsets in state.offsets.items():
        for at, committed in offsets.items():
            yield group_id, at, committed
    for group_id, pending in state.transactions.offsets.items():
        for at, producers in pending.items():
            if at not in state.offsets_of(group_id):
                yield group_id, at, producers


def is_stale(
    topics: TopicLookup,
    deleted: Sequence[DeletedTopics],
    group_id: str,
    at: TopicPartition,
    value: Value,
) -> bool:
    """Return whether the topic of this offset was deleted; a new topic may have its name."""
    topic_id = topics.topic_id(at.topic)
    if topic_id is None:
        return True
    if isinstance(value, CommittedOffset):
        if value.topic_id != ZERO_UUID:
            return value.topic_id != topic_id
    else:
        pending = [each.value for each in value.values() if each.value is not None]
        if ids := {each.topic_id for each in pending} - {ZERO_UUID}:
            return topic_id not in ids
    return not topics.has_partition(*at) or any(
        each.covers(group_id, at, value) for each in deleted
    )
