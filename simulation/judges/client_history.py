"""The history of a run's clients in the form that `kraftbox.chaos` judges, so that simulated and
real clusters share one implementation of H1 to H12. Pure.

Topics that were deleted or are in `given_up` are left out: there anything may be missing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kraftbox.chaos.checks import BROKEN, Finding, judge
from kraftbox.chaos.history import (
    NO_OFFSET,
    Assign,
    End,
    History,
    Poll,
    Process,
    Send,
    SendOutcome,
    Topic,
    value_id,
)
from simulation.world.invariants import Key

LAG = "H12 lag"
NOBODYS = -1
LAST_READER = "last reader"
"""The client that reads every log to its end at the end of the run."""


class Saw(NamedTuple):
    """One action of a client, with its place and result.

    `what` is "send", "read", "place", or "final" for a read of the whole log in the end. `answer`
    is "ok", the name of an error that guarantees no effect, or begins with "?": it may have an
    effect.

    `offset` is the first one of a send, the start of a read, or the position of a reader; `offsets`
    are those of the records read; `producer_id` is -1 without idempotence. `serial` counts requests
    in the order in which they began: concurrent ones may end in another order.
    """

    client: str
    what: str
    partition: str
    begin_s: float
    end_s: float
    answer: str
    offset: int = -1
    values: tuple[bytes, ...] = ()
    key: Key = (b"", -1)
    offsets: tuple[int, ...] = ()
    acks: int = -1
    producer_id: int = -1
    serial: int = 0


def broken_rules(saw: Sequence[Saw], without: Collection[str]) -> list[Finding]:
    """Return the broken promises. `without` are the names of topics that are left out.

    Topics that the last reader has not read were deleted in the meantime: no lag is reported there.
    """
    kept = [one for one in saw if one.partition.rpartition("-")[0] not in without]
    read = {one.key[0] for one in kept if one.client == LAST_READER}
    found: list[Finding] = []
    for is_whole in (True, False):
        some = [one for one in kept if (one.key[0] in read) is is_whole]
        rules = judge(_History(some).history)
        found += [one for one in rules if is_whole or one.rule != LAG]
    return [one for one in found if one.severity == BROKEN]


class _History:
    """Combines the results of several attempts at one batch."""

    def __init__(self, saw: Sequence[Saw]) -> None:
        self.history = History()
        self._topics: dict[bytes, int] = {}
        self._processes: dict[str, int] = {}
        self._values: dict[bytes, int] = {}
        self._sends: dict[int, Send] = {}
        self._numbers: dict[int, int] = {}
        ends: dict[tuple[int, int], Saw] = {}
        for one in sorted((one for one in saw if one.what == "send"), key=lambda one: one.serial):
            self._send(one)
        for one in saw:
            topic, process = self._topic(one), self._process(one.client, one.what)
            begin_us, end_us = _us(one.begin_s), _us(one.end_s)
            if one.what == "place":
                self.history.assigns.append(
                    Assign(process, topic, one.key[1], begin_us, one.offset)
                )
            elif one.what in ("read", "final"):
                final = one.what == "final"
                values = [self._values.get(value, NOBODYS) for value in one.values]
                offsets = list(one.offsets)
                self.history.polls.append(
                    Poll(process, topic, one.key[1], begin_us, end_us, offsets, values, final)
                )
                if final:
                    ends[topic, one.key[1]] = one
        self.history.sends = list(self._sends.values())
        for (topic, index), one in ends.items():
            at = one.offsets[-1] + 1 if one.offsets else one.offset
            begin_us, end_us = _us(one.begin_s), _us(one.end_s)
            process = self._process(one.client, one.what)
            self.history.ends.append(End(process, topic, index, begin_us, end_us, at, True))

    def _topic(self, one: Saw) -> int:
        topic_id = one.key[0]
        if topic_id not in self._topics:
            self._topics[topic_id] = len(self._topics)
            name = one.partition.rpartition("-")[0]
            self.history.topics.append(Topic(name, topic_id, 0, 0, 0))
        return self._topics[topic_id]

    def _process(self, client: str, what: str) -> int:
        if client not in self._processes:
            number = self._processes[client] = len(self._processes) + 1
            role = {"send": "producer", "final": "reader"}.get(what, "consumer")
            self.history.processes.append(Process(number, role, client))
        return self._processes[client]

    def _send(self, one: Saw) -> None:
        process = self._process(one.client, one.what)
        for index, data in enumerate(one.values):
            if data not in self._values:
                number = self._numbers.get(process, 0)
                self._numbers[process] = number + 1
                self._values[data] = value_id(process, number)
            value = self._values[data]
            sure = one.answer == "ok" and one.acks != 1
            offset = one.offset + index if sure else NO_OFFSET
            outcome = SendOutcome.OK if sure else SendOutcome.UNKNOWN
            if not one.answer.startswith("?") and one.answer != "ok":
                outcome = SendOutcome.FAILED
            before = self._sends.get(value)
            begin_us = _us(one.begin_s)
            if before is not None:
                begin_us = before.begin_us
                if before.outcome == SendOutcome.OK:
                    outcome, offset = SendOutcome.OK, before.offset
                elif outcome == SendOutcome.FAILED:
                    outcome = SendOutcome(before.outcome)
            self._sends[value] = Send(
                process,
                self._topic(one),
                one.key[1],
                value,
                begin_us,
                _us(one.end_s),
                outcome,
                offset,
                self._numbers[process] if before is None else before.order,
                one.acks,
                one.answer,
                producer_id=one.producer_id,
            )


def _us(at_s: float) -> int:
    return int(at_s * 1e6)
