"""Histories as EDN for Elle's list-append check, an independent second check. Pure.

A partition is a list: a send appends its value, and the final read returns all values. In Jepsen a
process has one operation at a time, and after an operation with unknown outcome it is never used
again. Our producers have several sends in flight, so each of our processes becomes several of
Jepsen's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kraftbox.chaos.history import History, SendOutcome

TYPES = {SendOutcome.OK: ":ok", SendOutcome.FAILED: ":fail", SendOutcome.UNKNOWN: ":info"}


class Operation(NamedTuple):
    """An operation of one client: times, outcome, and its EDN value at invocation and
    completion.
    """

    process: int
    begin_us: int
    end_us: int
    outcome: SendOutcome
    asked: str
    told: str


def edn_lines(history: History) -> Iterator[str]:
    """Yield the lines of a file: one map each, sorted by time."""
    first_us = min((one.begin_us for one in _operations(history)), default=0)
    moments: list[tuple[int, int, int, str]] = []
    for number, (operation, process) in enumerate(_with_processes(_operations(history))):
        begin_us, end_us = operation.begin_us, max(operation.end_us, operation.begin_us)
        end = TYPES[operation.outcome]
        for at_us, place, kind, value in (
            (begin_us, 0, ":invoke", operation.asked),
            (end_us, 1, end, operation.told),
        ):
            # At equal times an end comes before a begin, but never before its own begin.
            order = 1 - place if end_us > begin_us else 2
            text = f":type {kind}, :f :txn, :value [{value}], :process {process}"
            text += f", :time {(at_us - first_us) * 1000}"
            moments.append((at_us, order, 2 * number + place, text))
    for index, (*_, text) in enumerate(sorted(moments)):
        yield f"{{:index {index}, {text}}}"


def _operations(history: History) -> list[Operation]:
    """Return sends and final reads, sorted by their begin."""
    found = []
    for send in history.sends:
        append = f"[:append {_key(history, send.topic, send.partition)} {send.value}]"
        outcome = SendOutcome(send.outcome)
        found.append(Operation(send.process, send.begin_us, send.end_us, outcome, append, append))
    reads: dict[tuple[int, int, int], list[tuple[int, int, list[tuple[int, int]]]]] = {}
    for poll in history.polls:
        if poll.final:
            those = reads.setdefault((poll.process, poll.topic, poll.partition), [])
            records = list(zip(poll.offsets, poll.values, strict=True))
            those.append((poll.begin_us, poll.end_us, records))
    for (process, topic, partition), polls in reads.items():
        key = _key(history, topic, partition)
        # A reader that restarted read some records twice. Values of other writers are left out.
        at = {offset: value for *_, records in polls for offset, value in records if value >= 0}
        values = " ".join(str(at[offset]) for offset in sorted(at))
        begin_us, end_us = min(one[0] for one in polls), max(one[1] for one in polls)
        request, answer = f"[:r {key} nil]", f"[:r {key} [{values}]]"
        found.append(Operation(process, begin_us, end_us, SendOutcome.OK, request, answer))
    return sorted(found, key=lambda one: (one.begin_us, one.end_us))


def _with_processes(operations: Iterable[Operation]) -> Iterator[tuple[Operation, int]]:
    """Yield each operation with a Jepsen process that is free at its begin."""
    free: dict[int, list[tuple[int, int]]] = {}
    made = 0
    for one in operations:
        lanes = free.setdefault(one.process, [])
        at = next((at for at, (end_us, _) in enumerate(lanes) if end_us < one.begin_us), None)
        if at is None:
            process, made = made, made + 1
        else:
            _, process = lanes.pop(at)
        if one.outcome is not SendOutcome.UNKNOWN:
            lanes.append((one.end_us, process))
        yield one, process


def _key(history: History, topic: int, partition: int) -> str:
    name = history.topics[topic].name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{name}-{partition}"'
