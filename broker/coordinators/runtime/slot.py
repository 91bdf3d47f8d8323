"""Shell: A partition that a coordinator's broker leads, with its shard and appends in flight."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Generic

from broker.coordinators.runtime.decision import AnyDecision
from broker.coordinators.runtime.shard import S
from protocol.schema import Response
from runtime.errors import InvariantViolated


class InFlight:
    """A decision whose records are appended and not yet committed.

    - `state`: hard state after it.
    - `reply`: future of the caller's response.
    - `settled`: the outcome of the append is known, and everything before it is settled too.
    """

    __slots__ = (
        "appended",
        "deadline_ms",
        "decision",
        "reply",
        "settled",
        "state",
        "timed_out",
    )

    def __init__(
        self,
        decision: AnyDecision,
        appended: asyncio.Future[None],
        state: Any,
        deadline_ms: float,
    ) -> None:
        self.decision = decision
        self.appended = appended
        self.state = state
        self.deadline_ms = deadline_ms
        self.reply: asyncio.Future[Response] | None = None
        self.settled = False
        self.timed_out = False


class Slot(Generic[S]):
    """A partition this broker leads.

    - `shard`: None while its records are being read.
    - `patient`: entries of `in_flight` whose deadline is still to come, in its order; settled ones
      may be among them.
    """

    __slots__ = ("epoch", "in_flight", "partition", "patient", "shard", "wake", "wake_ms")

    def __init__(self, partition: int, epoch: int) -> None:
        self.partition = partition
        self.epoch = epoch
        self.shard: S | None = None
        self.in_flight: deque[InFlight] = deque()
        self.patient: deque[InFlight] = deque()
        self.wake: asyncio.TimerHandle | None = None
        self.wake_ms = 0.0

    def next_timeout(self) -> InFlight | None:
        """Return the append that times out next."""
        while self.patient and self.patient[0].settled:
            self.patient.popleft()
        return self.patient[0] if self.patient else None

    def loaded(self) -> S:
        """Return the shard. Raises InvariantViolated if it is not loaded."""
        if self.shard is None:
            raise InvariantViolated(f"partition {self.partition} is not loaded yet")
        return self.shard
