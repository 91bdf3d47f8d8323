"""Brokers that are unreachable before the metadata shows it.

When a broker's process dies its connections close and its port refuses new ones. Its followers see
that within a millisecond. The controller decides later: after the session, or after
`kraftbox.broker.connection.loss.fence.ms`. A client that requests metadata in between would be sent
to the dead leader. A client that accepts this response (librdkafka) repeats the request only in its
next round, a second later.

The evidence is a lost connection, and then an attempt to connect that failed at once. The loss
alone is a suspicion, which the attempt settles. The evidence applies to one registration. It is
withdrawn as soon as the broker is reached, and it counts for one session at most. If brokers cannot
reach each other and clients can, clients then see the metadata again.

Consequences:

- For a short time, a response about partitions of such a leader waits. Most often the metadata
  decides in that time, and the client is sent to the next leader, however it treats errors. The
  time is short, since replies of a connection go in order: others may wait behind this one.
- Then those partitions have no leader, as they will in the metadata.
- When the metadata has decided, the broker stays in the list of brokers for a while. If one
  response has both a new leader and no old one any more, librdkafka 2.16 ends the old one in one
  thread and moves its partitions in another. If the first is later, the partitions have no broker
  until the next round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from broker.metadata.cache import MetadataCache

HOLD_MAX_MS: Final = 250.0
"""How long after the loss a response may wait. With connection-loss fencing at 100 ms the next
leader is known after 120."""
LISTED_MS: Final = 2_000.0
"""How long a broker is listed after the decision: two of librdkafka's rounds."""

_NOBODY: Final[frozenset[int]] = frozenset()


class _Loss(NamedTuple):
    """The loss of a broker. `decided_ms`: when the metadata confirmed it; None before."""

    broker_epoch: int
    since_ms: float
    unreachable: bool = False
    decided_ms: float | None = None


class LostBrokers:
    """Evidence from this broker's own connections on other brokers. Times are monotonic
    milliseconds."""

    def __init__(self, metadata: MetadataCache, session_ms: float) -> None:
        """Start without evidence. `session_ms` is `broker.session.timeout.ms`."""
        self._metadata = metadata
        self._session_ms = session_ms
        self._losses: dict[int, _Loss] = {}
        self._waiting: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        """Return whether any broker was lost; if not, callers can skip all other checks."""
        return bool(self._losses)

    # --- evidence -----------------------------------------------------------------------------

    def lost(self, broker_id: int, now_ms: float) -> None:
        """Note the loss of a connection to the broker, which is being reconnected."""
        epoch = self._alive_epoch(broker_id)
        loss = self._losses.get(broker_id)
        if epoch is not None and (loss is None or loss.broker_epoch != epoch):
            self._losses[broker_id] = _Loss(epoch, now_ms)

    def unreachable(self, broker_id: int) -> None:
        """Note a failed attempt to connect to the broker. Without a loss before it this proves
        nothing: the address may never have been valid."""
        loss = self._losses.get(broker_id)
        if loss is not None:
            self._losses[broker_id] = loss._replace(unreachable=True)

    def reached(self, broker_id: int) -> None:
        """Note that the broker answers."""
        if self._losses.pop(broker_id, None) is not None:
            self._wake()

    def withdraw(self, broker_id: int) -> None:
        """Withdraw undecided evidence, because no component connects to the broker any more: only
        the metadata can decide now."""
        loss = self._losses.get(broker_id)
        if loss is not None and loss.decided_ms is None:
            self.reached(broker_id)

    def published(self, now_ms: float) -> None:
        """Compare the evidence with a new image. Call it for each image, after it is in place."""
        for broker_id, loss in list(self._losses.items()):
            if loss.decided_ms is None and self._alive_epoch(broker_id) != loss.broker_epoch:
                self._losses[broker_id] = loss._replace(decided_ms=now_ms)
        self._forget(now_ms)
        self._wake()

    def when_changed(self, fn: Callable[[], None]) -> None:
        """Call `fn` once, when a broker was reached or the metadata is newer."""
        self._waiting.append(fn)

    # --- consequences -------------------------------------------------------------------------

    def hold_ms(self, leaders: Iterable[int], now_ms: float) -> float:
        """Return how long a response about partitions of these leaders may wait, in
        milliseconds."""
        losses = [self._losses[leader] for leader in leaders if leader in self._losses]
        ends = [loss.since_ms + HOLD_MAX_MS for loss in losses if loss.decided_ms is None]
        return max(0.0, max(ends, default=now_ms) - now_ms)

    def gone(self, now_ms: float) -> frozenset[int]:
        """Return the unreachable brokers that the metadata still shows as alive: no client should
        be sent there."""
        return self._unreachable(now_ms, decided=False)

    def still_listed(self, now_ms: float) -> frozenset[int]:
        """Return the unreachable brokers that the metadata has fenced or removed within the last
        LISTED_MS."""
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
        """Return the epoch of an unfenced broker's registration, or None."""
        broker = self._metadata.image.cluster.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.epoch
