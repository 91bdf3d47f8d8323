"""Order of responses: on one connection they come in the order of their requests (B5). Other
clients rely on it, though this program's own client uses the correlation id."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest import mock

from protocol.transport.client import Connection
from simulation.judges.judge import Judge
from simulation.world.invariants import Violation

if TYPE_CHECKING:
    from simulation.judges.world import JudgedWorld
    from simulation.world.cluster import NodeLife

CORRELATION_ID_BYTES = 4


class AnswerJudge(Judge):
    """Checks each response as it reaches its requester, a client or a node."""

    due_s = math.inf

    def __init__(self, world: JudgedWorld) -> None:
        self._changes = world.changes
        self._broken: list[str] = []

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Hook into the place that every response passes."""
        receive = Connection._receive

        def received(connection: Connection, frame: memoryview) -> None:
            number = int.from_bytes(frame[:CORRELATION_ID_BYTES])
            asked = connection._pending
            first = next(iter(asked), number)
            if number != first and number in asked:
                api = asked[number].api.name
                self._broken.append(f"B5: the answer to {api} {number} overtakes that to {first}")
                self._changes.marked.add(id(self))
            receive(connection, frame)

        with mock.patch.object(Connection, "_receive", received):
            yield

    def after(self, life: NodeLife) -> None:
        """Raise the violation that was found since the last call."""
        if self._broken:
            raise Violation(self._broken[0])
