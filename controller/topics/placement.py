"""Placement of new replicas, striped over racks.

Rules, in order of weight
1. Replicas of one partition are on different brokers, in as many racks as possible; then each rack
   gets a second replica, and so on.
2. The first replica, the preferred leader, is never on a fenced broker. Other replicas are placed
   on fenced brokers only if their rack has no unfenced one left for this partition.
3. Over many partitions leaders and replicas spread evenly: racks take turns, and inside a rack
   brokers take turns. Racks and brokers start at a random place, so that many small topics spread
   as well as one large topic. They are shuffled again after each round over all brokers, so that
   the same two brokers do not always share their partitions.

Brokers without a rack form one rack of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from random import Random


class UsableBroker(NamedTuple):
    """A broker that may hold a new replica."""

    id: int
    rack: str | None
    fenced: bool


class _Ring:
    """Brokers that take turns: the first choice moves on by one per partition."""

    __slots__ = ("_brokers", "_start", "_used")

    def __init__(self, brokers: list[int], rng: Random) -> None:
        self._brokers = brokers
        rng.shuffle(self._brokers)
        self._start = -1
        self._used = 0

    def begin_partition(self) -> None:
        self._used = 0

    def rotate(self) -> None:
        if self._brokers:
            self._start = (self._start + 1) % len(self._brokers)

    def take(self) -> int | None:
        """Return the next broker for this partition, None if all have been taken."""
        if self._used >= len(self._brokers):
            return None
        broker = self._brokers[(self._start + self._used) % len(self._brokers)]
        self._used += 1
        return broker


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self, brokers: Sequence[UsableBroker], rng: Random) -> None:
        self.unfenced = _Ring([b.id for b in brokers if not b.fenced], rng)
        self.fenced = _Ring([b.id for b in brokers if b.fenced], rng)

    def begin_partition(self) -> None:
        self.unfenced.begin_partition()
        self.fenced.begin_partition()

    def rotate(self) -> None:
        self.unfenced.rotate()
        self.fenced.rotate()

    def take(self) -> int | None:
        broker = self.unfenced.take()
        return self.fenced.take() if broker is None else broker


class _Striper:
    """Assigns replicas over racks; each call of `place` returns one replica list."""

    __slots__ = ("_brokers", "_by_rack", "_in_round", "_racks", "_rng", "_turn")

    def __init__(self, brokers: Sequence[UsableBroker], rng: Random) -> None:
        self._brokers = brokers
        self._rng = rng
        by_rack: dict[str | None, list[UsableBroker]] = {}
        for broker in sorted(brokers, key=lambda b: b.id):
            by_rack.setdefault(broker.rack, []).append(broker)
        names = sorted(by_rack, key=lambda name: (name is not None, name or ""))
        self._by_rack = [by_rack[name] for name in names]
        self._shuffle()

    def _shuffle(self) -> None:
        self._racks = [_Rack(rack, self._rng) for rack in self._by_rack]
        self._rng.shuffle(self._racks)
        self._turn = 0
        self._in_round = 0
        for rack in self._racks:
            rack.rotate()

    def place(self, replication_factor: int) -> tuple[int, ...]:
        if self._in_round >= max(len(self._brokers), 2):
            self._shuffle()
        self._in_round += 1
        for rack in self._racks:
            rack.begin_partition()
        replicas = [self._take_leader()]
        rack_index = self._turn
        self._turn = (self._turn + 1) % len(self._racks)
        while len(replicas) < replication_factor:
            rack_index = (rack_index + 1) % len(self._racks)
            broker = self._racks[rack_index].take()
            if broker is not None:
                replicas.append(broker)
        return tuple(replicas)

    def _take_leader(self) -> int:
        """Return the leader, from the next rack with an unfenced broker; `_turn` ends at that
        rack."""
        for _ in self._racks:
            rack = self._racks[self._turn]
            rack.rotate()
            leader = rack.unfenced.take()
            if leader is not None:
                return leader
            self._turn = (self._turn + 1) % len(self._racks)
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "all brokers are fenced")


def place_replicas(
    brokers: Iterable[UsableBroker],
    *,
    partition_count: int,
    replication_factor: int,
    rng: Random,
) -> Iterator[tuple[int, ...]]:
    """Return replica lists for `partition_count` new partitions, the preferred leader first.

    Raises:
        ApiError: INVALID_REPLICATION_FACTOR, there are fewer brokers than replicas, or all brokers
            are
            fenced.
    """
    usable = list(brokers)
    if replication_factor > len(usable):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is higher than the number of "
            f"registered brokers, {len(usable)}",
        )
    if all(broker.fenced for broker in usable):
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "all brokers are fenced")
    if len(usable) == 1:
        # a single node leaves no choice
        return repeat((usable[0].id,), partition_count)
    striper = _Striper(usable, rng)
    return (striper.place(replication_factor) for _ in range(partition_count))
