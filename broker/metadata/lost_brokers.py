"""Brokers that are gone before the metadata says so.

When a broker's process dies its connections close and its port refuses new ones. Its followers see
that within a millisecond. The controller decides later: after the session, or after
`kraftbox.broker.connection.loss.fence.ms`. A client that asks for metadata in between would be
sent to the dead leader. One that takes that for an answer (librdkafka) asks again with its next
round, a second later.

Evidence is a connection that was lost, and then an attempt to connect that failed at once; the
loss alone is a doubt, which the attempt settles. It is about one registration, whoever reaches the
broker withdraws it, and it counts for one session at most: where brokers cannot reach each other
and clients can, clients are told what the metadata says again.

What is made of it:

- For a moment, an answer about partitions of such a leader waits: most often the metadata decides
  in that time, and the client is sent to the next leader, whatever it does about errors. The
  moment is short, since replies of a connection go in order: others may stand behind this one.
- Then those partitions are without a leader, as they will be for the metadata.
- When the metadata has decided, the broker stays in the list of brokers for a while. One answer
  that has both a new leader and no old one any more makes librdkafka 2.16 end the old one in one
  thread and move its partitions in another; where the first comes last they have no broker until
  the next round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from broker.metadata.cache import MetadataCache

HOLD_MAX_MS: Final = 250.0
"""How long after the loss an answer may wait. With connection-loss fencing at 100 ms the next
leader is known after 120."""
LISTED_MS: Final = 2_000.0
"""How long a broker is listed after the decision: two of librdkafka's rounds."""

_NOBODY: Final[frozenset[int]] = frozenset()


class _Loss(NamedTuple):
    """`decided_ms`: when the metadata said so, too; None before."""

    broker_epoch: int
    since_ms: float
    unreachable: bool = False
    decided_ms: float | None = None


class LostBrokers:
    """What this broker's own connections say of others. Times are monotonic milliseconds."""

    def __init__(self, metadata: MetadataCache, session_ms: float) -> None:
        """`session_ms` is `broker.session.timeout.ms`."""
        self._metadata = metadata
        self._session_ms = session_ms
        self._losses: dict[int, _Loss] = {}
        self._waiting: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        """Whether anybody was lost: if not, nothing else needs to be asked."""
        return bool(self._losses)

    # --- what is heard ------------------------------------------------------------------------

    def lost(self, broker_id: int, now_ms: float) -> None:
        """A connection to the broker was lost, and is being made anew."""
        epoch = self._alive_epoch(broker_id)
        loss = self._losses.get(broker_id)
        if epoch is not None and (loss is None or loss.broker_epoch != epoch):
            self._losses[broker_id] = _Loss(epoch, now_ms)

    def unreachable(self, broker_id: int) -> None:
        """The broker could not be connected to. Without a loss before it this says nothing: an
        address that was never right is no death."""
        loss = self._losses.get(broker_id)
        if loss is not None:
            self._losses[broker_id] = loss._replace(unreachable=True)

    def reached(self, broker_id: int) -> None:
        """The broker answers."""
        if self._losses.pop(broker_id, None) is not None:
            self._wake()

    def withdraw(self, broker_id: int) -> None:
        """Nobody tries to reach the broker any more: from now on only the metadata knows."""
        loss = self._losses.get(broker_id)
        if loss is not None and loss.decided_ms is None:
            self.reached(broker_id)

    def published(self, now_ms: float) -> None:
        """The metadata is newer. Called for each image, after it is in place."""
        for broker_id, loss in list(self._losses.items()):
            if loss.decided_ms is None and self._alive_epoch(broker_id) != loss.broker_epoch:
                self._losses[broker_id] = loss._replace(decided_ms=now_ms)
        self._forget(now_ms)
        self._wake()

    def when_changed(self, fn: Callable[[], None]) -> None:
        """Call `fn` once, when a broker was reached or the metadata is newer."""
        self._waiting.append(fn)

    # --- what it means ------------------------------------------------------------------------

    def hold_ms(self, leaders: Iterable[int], now_ms: float) -> float:
        """How long an answer about partitions of these leaders may wait; 0: answer."""
        losses = [self._losses[leader] for leader in leaders if leader in self._losses]
        ends = [loss.since_ms + HOLD_MAX_MS for loss in losses if loss.decided_ms is None]
        return max(0.0, max(ends, default=now_ms) - now_ms)

    def gone(self, now_ms: float) -> frozenset[int]:
        """The brokers to whom no client should be sent, though the metadata has them alive."""
        return self._unreachable(now_ms, decided=False)

    def still_listed(self, now_ms: float) -> frozenset[int]:
        """The brokers that are dead for the metadata as well, and were not a moment ago."""
        return self._unreachable(now_ms, decided=True)

    def _unreachable(self, now_ms: float, *, decided: bool) -> frozenset[int]:
        if not self._losses:
            return _NOBODY
        self._forget(now_ms)
        return frozenset(
            broker_id
            for broker_id, loss in self._losses.items()
            if loss.unreachable and (loss.decided_ms is not None) is decided
        )

    def _forget(self, now_ms: float) -> None:
        for broker_id, loss in list(self._losses.items()):
            if loss.decided_ms is None:
                over = now_ms - loss.since_ms >= self._session_ms
            else:
                alive = self._alive_epoch(broker_id) is not None
                over = alive or now_ms - loss.decided_ms >= LISTED_MS
            if over:
                del self._losses[broker_id]

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for fn in waiting:
            fn()

    def _alive_epoch(self, broker_id: int) -> int | None:
        """The epoch of an unfenced broker's registration."""
        broker = self._metadata.image.cluster.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.epoch
