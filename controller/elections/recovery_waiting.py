"""The waiting list of unclean recovery: leaderless partitions, and those to examine next.

A partition is in one of these stages. Being queued for an examination is independent of it.

- not listed: it has a leader, or it was not examined yet.
- waiting: for a replica or an operator; no timeout runs.
- querying: only answers are missing, and a timeout runs.
- complete: all answers are there, but it gives answers about other partitions a moment to arrive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from controller.configs.topic_settings import RecoveryStrategy
from controller.decision import ControllerView
from controller.elections.recovery_questions import PartitionKey
from controller.elections.recovery_rules import Verdict, WaitsFor
from metalog.image.values import NO_LEADER

SCANNED_PER_TURN: Final = 2_000
"""Partitions scanned for missing leaders in one step."""
NO_VERDICTS: Final[Mapping[RecoveryStrategy, Verdict]] = {}


class Waiting(NamedTuple):
    """The kind of wait of a partition, the brokers it waits for, and its monotonic begin."""

    waits: WaitsFor
    brokers: tuple[int, ...]
    since_ms: float


class Leaderless:
    """State of one leaderless partition.

    queried: brokers with a pending query. requested: verdicts by the strategies that operators
    requested. newer_epoch: the newest leader epoch beyond the controller's that a replica has
    reported.
    """

    __slots__ = ("name", "newer_epoch", "queried", "replicas", "requested", "since_ms", "verdict")

    def __init__(self) -> None:
        self.name = ""
        self.verdict: Verdict | None = None
        self.since_ms = 0.0
        self.queried: frozenset[int] = frozenset()
        self.requested: Mapping[RecoveryStrategy, Verdict] = NO_VERDICTS
        self.replicas: tuple[int, ...] = ()
        self.newer_epoch = -1

    def still_waited_for(self, verdict: Verdict) -> tuple[int, ...]:
        """Return the brokers that the verdict waits for, without those that have answered since."""
        if verdict.waits is not WaitsFor.ANSWERS:
            return verdict.brokers
        return tuple(b for b in verdict.brokers if b in self.queried)


class WaitingList:
    """Leaderless partitions, in the order in which they were found.

    counts: number of partitions by what they wait for; kept up to date.
    """

    __slots__ = ("_counts", "_must_scan", "_partitions", "_queue", "_scan")

    def __init__(self, counts: Counter[WaitsFor]) -> None:
        self._counts = counts
        self._partitions: dict[PartitionKey, Leaderless] = {}
        self._queue: dict[PartitionKey, None] = {}
        self._scan: Iterator[None] | None = None
        self._must_scan = False

    def __bool__(self) -> bool:
        return bool(self._partitions)

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._partitions

    def __iter__(self) -> Iterator[PartitionKey]:
        return iter(self._partitions)

    def get(self, key: PartitionKey) -> Leaderless | None:
        """Return the state of a partition; None if it is not listed."""
        return self._partitions.get(key)

    def clear(self) -> None:
        """Empty the list and the queue, and end a scan."""
        self._counts.clear()
        self._partitions.clear()
        self._queue.clear()
        self._scan, self._must_scan = None, False

    # --- members ------------------------------------------------------------------------------

    def add(self, key: PartitionKey) -> Leaderless:
        """List a partition. Returns: its state, which it may have already."""
        state = self._partitions.get(key)
        if state is None:
            state = self._partitions[key] = Leaderless()
        return state

    def remove(self, key: PartitionKey) -> Leaderless | None:
        """Remove a partition. Returns: its last state, None if it was not listed."""
        state = self._partitions.pop(key, None)
        if state is not None:
            self._uncount(state)
        return state

    def note(self, state: Leaderless, verdict: Verdict, now_ms: float) -> None:
        """Store the verdict of a partition that has to wait."""
        before = state.verdict
        assert verdict.waits is not None, "a partition with a winner is elected, and does not wait"
        if before is None or before.waits is not verdict.waits:
            state.since_ms = now_ms
            self._uncount(state)
            self._counts[verdict.waits] += 1
        state.verdict = verdict

    def _uncount(self, state: Leaderless) -> None:
        if state.verdict is not None and state.verdict.waits is not None:
            self._counts[state.verdict.waits] -= 1

    def waits_for(self, key: PartitionKey) -> Waiting | None:
        """Return what a partition waits for; None if it is not listed or not examined yet."""
        state = self._partitions.get(key)
        if state is None or state.verdict is None or state.verdict.waits is None:
            return None
        brokers = state.still_waited_for(state.verdict)
        return Waiting(state.verdict.waits, brokers, state.since_ms)

    # --- examinations -------------------------------------------------------------------------

    def queue(self, keys: Iterable[PartitionKey]) -> None:
        """Queue partitions for an examination, listed or not."""
        self._queue.update(dict.fromkeys(keys))

    def unqueue(self, key: PartitionKey) -> None:
        """Remove a partition from the queue."""
        self._queue.pop(key, None)

    @property
    def has_queued(self) -> bool:
        """True if a partition waits for its examination."""
        return bool(self._queue)

    @property
    def is_due(self) -> bool:
        """True if there is a partition to examine, or to scan."""
        return bool(self._queue) or self._must_scan

    def take(self, limit: int) -> list[PartitionKey]:
        """Return the next partitions to examine, at most `limit`, in the order of the queue."""
        keys = list(islice(self._queue, limit))
        for key in keys:
            del self._queue[key]
        return keys

    def begin_scan(self) -> None:
        """Let `scan` find the leaderless partitions of the next view."""
        self._must_scan = True

    def scan(self, view: ControllerView) -> None:
        """Queue more leaderless partitions of the view, in the order of topic names.

        A scan takes several calls. Changes in the meantime come as records.
        """
        if self._must_scan and self._scan is None:
            self._scan = self._leaderless(view)
        if self._scan is not None and next(self._scan, self) is self:
            self._scan, self._must_scan = None, False

    def _leaderless(self, view: ControllerView) -> Iterator[None]:
        seen = 0
        for _, topic in sorted(view.image.topics.by_name.items()):
            for index, partition in topic.partitions.items():
                if partition.leader == NO_LEADER:
                    self._queue[topic.id, index] = None
            seen += len(topic.partitions)
            if seen >= SCANNED_PER_TURN:
                seen = 0
                yield
