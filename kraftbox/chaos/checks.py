"""Checks of a client history: the promises of a cluster that its clients saw broken. Pure.

The rules are those of Jepsen's queue workload (reliability H1-H12) and of idempotent producers
(T1). Each returns findings with a total and a few examples; `judge` runs them all. A finding is
`broken` or `noted`. Noted means unusual but allowed: a paused leader may report an old log end
until it learns of its successor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from kraftbox.chaos.history import (
    NO_OFFSET,
    NO_TRANSACTION,
    SEQUENCE_BITS,
    End,
    History,
    PartitionNumber,
    Poll,
    Send,
    SendOutcome,
)

EXAMPLES_MAX = 5
BROKEN = "broken"
NOTED = "noted"


class Finding(NamedTuple):
    """A violation of one rule. `rule` is its number and name; `examples` are sentences."""

    rule: str
    severity: str
    total: int
    message: str
    examples: list[str]


@dataclass
class _Log:
    """The operations on one partition, by offset and by value."""

    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    values_at: dict[int, set[int]] = field(default_factory=dict)
    offsets_of: dict[int, set[int]] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)
    """Maps a value to the end time of the first poll that returned it."""
    read_finally: set[int] = field(default_factory=set)
    highest_read: int = NO_OFFSET
    final_position: int | None = None

    def see(self, offset: int, value: int) -> None:
        self.values_at.setdefault(offset, set()).add(value)
        self.offsets_of.setdefault(value, set()).add(offset)


class _Evidence:
    """A history, indexed by partition."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.logs: dict[PartitionNumber, _Log] = defaultdict(_Log)
        self.sends: dict[int, Send] = {}
        for send in history.sends:
            self.logs[send.topic, send.partition].sends.append(send)
            self.sends[send.value] = send
            if send.outcome == SendOutcome.OK and send.offset != NO_OFFSET:
                self.logs[send.topic, send.partition].see(send.offset, send.value)
        for end in history.ends:
            self.logs[end.topic, end.partition].ends.append(end)
        for poll in history.polls:
            self._take_poll(poll)
        self.outcomes = {one.transaction: one.outcome for one in history.transactions}

    def _take_poll(self, poll: Poll) -> None:
        log = self.logs[poll.topic, poll.partition]
        log.polls.append(poll)
        for offset, value in zip(poll.offsets, poll.values, strict=True):
            log.see(offset, value)
            first = log.read.get(value)
            log.read[value] = poll.end_us if first is None else min(first, poll.end_us)
            log.highest_read = max(log.highest_read, offset)
            if poll.final:
                log.read_finally.add(value)
                log.final_position = max(log.final_position or 0, offset + 1)
        if poll.final and log.final_position is None:
            log.final_position = 0

    def name(self, partition: PartitionNumber) -> str:
        topic, number = partition
        return f"{self.history.topics[topic].name}-{number}"

    def each(self) -> Iterator[tuple[str, _Log]]:
        for partition in sorted(self.logs):
            yield self.name(partition), self.logs[partition]


def judge(history: History) -> list[Finding]:
    """Return the findings of all rules; an empty list means a clean history."""
    evidence = _Evidence(history)
    findings = [finding for rule in RULES for finding in rule(evidence)]
    return sorted(findings, key=lambda finding: finding.severity != BROKEN)


def is_broken(findings: Iterable[Finding]) -> bool:
    """Return whether a finding breaks a promise."""
    return any(finding.severity == BROKEN for finding in findings)


def summary(history: History) -> dict[str, int]:
    """Return the number of operations by kind and outcome."""
    outcomes = [send.outcome for send in history.sends]
    return {
        "sends": len(outcomes),
        "ok": outcomes.count(SendOutcome.OK),
        "failed": outcomes.count(SendOutcome.FAILED),
        "unknown": outcomes.count(SendOutcome.UNKNOWN),
        "polls": len(history.polls),
        "read": sum(len(poll.offsets) for poll in history.polls),
        "faults": len(history.faults),
    }


def value_text(value: int) -> str:
    """Return a value as `PROCESS/NUMBER` of its send."""
    if value < 0:
        return "a value of another writer"
    return f"value {value >> SEQUENCE_BITS}/{value & (1 << SEQUENCE_BITS) - 1}"


def _found(
    rule: str, message: str, examples: Sequence[str], severity: str = BROKEN
) -> list[Finding]:
    if not examples:
        return []
    return [Finding(rule, severity, len(examples), message, list(examples[:EXAMPLES_MAX]))]


def _offsets_text(offsets: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(offsets)))


# --- what is in the log -------------------------------------------------------------------------


def inconsistent_offsets(evidence: _Evidence) -> list[Finding]:
    """H1, P6: an offset always holds the same value, for every client."""
    examples = [
        f"{name} offset {offset}: {' and '.join(sorted(map(value_text, values)))}"
        for name, log in evidence.each()
        for offset, values in log.values_at.items()
        if len(values) > 1
    ]
    return _found("H1 inconsistent-offsets", "several values were read at one offset", examples)


def duplicates(evidence: _Evidence) -> list[Finding]:
    """H4, T1: a value is at one offset only."""
    examples = [
        f"{name}: {value_text(value)} at offsets {_offsets_text(offsets)}"
        for name, log in evidence.each()
        for value, offsets in log.offsets_of.items()
        if len(offsets) > 1 and value >= 0
    ]
    return _found("H4 duplicate", "a value is in the log more than once", examples)


def failed_reads(evidence: _Evidence) -> list[Finding]:
    """H2 (G1a): a value whose send certainly failed, or was aborted, is never read."""
    examples = []
    for name, log in evidence.each():
        for value in log.read:
            send = evidence.sends.get(value)
            if send is None:
                continue
            aborted = evidence.outcomes.get(send.transaction) == SendOutcome.FAILED
            if send.outcome == SendOutcome.FAILED or aborted:
                why = "was in an aborted transaction" if aborted else f"failed with {send.error}"
                examples.append(f"{name}: {value_text(value)} was read, but its send {why}")
    return _found("H2 failed-write-read", "a record of a failed send was read", examples)


def phantoms(evidence: _Evidence) -> list[Finding]:
    """Every value read was sent to this partition, before it was read (H10)."""
    strangers, early = [], []
    for name, log in evidence.each():
        sent = {send.value: send for send in log.sends}
        for value, read_us in log.read.items():
            send = sent.get(value)
            if send is None:
                strangers.append(
                    f"{name} offset {_offsets_text(log.offsets_of[value])}: "
                    f"{value_text(value)} was never sent to this partition"
                )
            elif read_us < send.begin_us:
                early.append(
                    f"{name}: {value_text(value)} was read {send.begin_us - read_us} µs "
                    f"before it was sent"
                )
    return [
        *_found("phantom", "a record was read that no client sent", strangers),
        *_found("H10 precommitted-read", "a record was read before it was sent", early),
    ]


# --- what is missing ----------------------------------------------------------------------------


def lost(evidence: _Evidence) -> list[Finding]:
    """H3, H9: an acknowledged value is read, at the latest by the final reader."""
    missing, unseen = [], []
    for name, log in evidence.each():
        for send in log.sends:
            if send.outcome != SendOutcome.OK or send.acks == 0:
                continue
            if send.transaction and evidence.outcomes.get(send.transaction) != SendOutcome.OK:
                continue
            text = f"{name} offset {send.offset}: {value_text(send.value)}"
            if log.final_position is not None and send.value in log.read_finally:
                continue
            if send.value not in log.read and send.offset < log.highest_read:
                missing.append(
                    f"{text} was acknowledged and never read, although offset "
                    f"{log.highest_read} was"
                )
            elif log.final_position is None:
                continue
            elif send.value in log.read:
                missing.append(f"{text} was acknowledged and read, and is missing at the end")
            else:
                unseen.append(
                    f"{text} was acknowledged; the final read ended at {log.final_position}"
                )
    return [
        *_found("H3 lost-write", "an acknowledged record is lost", missing),
        *_found("H9 unseen", "an acknowledged record is beyond the end of the log", unseen),
    ]


def gone(evidence: _Evidence) -> list[Finding]:
    """P6: a value that a consumer has read stays in the log, acknowledged or not."""
    examples = []
    for name, log in evidence.each():
        if log.final_position is None:
            continue
        for value in log.read.keys() - log.read_finally:
            send = evidence.sends.get(value)
            if send is not None and send.outcome != SendOutcome.OK:
                examples.append(
                    f"{name} offset {_offsets_text(log.offsets_of[value])}: "
                    f"{value_text(value)} was read and is missing at the end"
                )
    return _found("P6 read-record-lost", "a record that was read is missing at the end", examples)


# --- order --------------------------------------------------------------------------------------


def reordered(evidence: _Evidence) -> list[Finding]:
    """H8, T1: the sends of one process to one partition keep their order in the log.

    Lost sends are ignored. Without idempotence only one send in flight keeps the order.
    """
    broken: list[str] = []
    noted: list[str] = []
    for name, log in evidence.each():
        lanes: dict[int, list[tuple[int, int, Send]]] = defaultdict(list)
        for send in log.sends:
            offsets = log.offsets_of.get(send.value)
            if offsets and len(offsets) == 1:
                lanes[send.process].append((send.order, next(iter(offsets)), send))
        for process, lane in lanes.items():
            lane.sort(key=lambda entry: entry[0])
            for (_, before, first), (_, after, second) in pairwise(lane):
                if after <= before:
                    text = (
                        f"{name}: process {process} sent {value_text(first.value)} (offset "
                        f"{before}) before {value_text(second.value)} (offset {after})"
                    )
                    (broken if second.producer_id >= 0 else noted).append(text)
    message = "the log has sends of one process in another order"
    return [
        *_found("H8 nonmonotonic-send", message, broken),
        *_found("H8 nonmonotonic-send", f"{message} (without idempotence)", noted, NOTED),
    ]


def poll_order(evidence: _Evidence) -> list[Finding]:
    """H5-H7: a consumer reads forward and skips no existing offset."""
    places: dict[tuple[int, PartitionNumber], list[int]] = defaultdict(list)
    for assign in evidence.history.assigns:
        places[assign.process, (assign.topic, assign.partition)].append(assign.at_us)
    found: dict[str, list[str]] = defaultdict(list)
    for partition, log in sorted(evidence.logs.items()):
        by_process: dict[int, list[Poll]] = defaultdict(list)
        for poll in log.polls:
            by_process[poll.process].append(poll)
        known = sorted(log.values_at)
        for process, polls in by_process.items():
            polls.sort(key=lambda poll: poll.begin_us)
            who = f"{evidence.name(partition)}: process {process}"
            _walk(polls, places[process, partition], known, who, found)
    return [
        finding
        for rule, examples in sorted(found.items())
        for finding in _found(rule, "a consumer skipped or repeated records", examples)
    ]


def _walk(
    polls: Sequence[Poll],
    placed_us: Sequence[int],
    known: Sequence[int],
    who: str,
    found: Mapping[str, list[str]],
) -> None:
    """Check the polls of one process in one partition."""
    rank = {offset: index for index, offset in enumerate(known)}
    last: int | None = None
    ended_us = -1
    for poll in polls:
        if any(ended_us < at_us <= poll.begin_us for at_us in placed_us):
            last = None
        inside = False
        for offset in poll.offsets:
            if last is not None:
                prefix = "int-" if inside else ""
                if offset <= last:
                    rule = f"{'H7 int-' if inside else 'H6 '}nonmonotonic-poll"
                    found[rule].append(f"{who} read offset {offset} after {last}")
                elif rank[offset] != rank[last] + 1:
                    rule = f"{'H7 ' if prefix else 'H5 '}{prefix}poll-skip"
                    passed = known[rank[last] + 1 : rank[offset]]
                    text = f"{who} read offset {offset} after {last}; skipped {passed[:5]}"
                    found[rule].append(text)
            last, inside = offset, True
        ended_us = poll.end_us


# --- the end, and progress ------------------------------------------------------------------------


def lag(evidence: _Evidence) -> list[Finding]:
    """H12: the final reader reaches the end of every log that was written to."""
    examples = []
    for name, log in evidence.each():
        if not log.sends:
            continue
        ends = [end.offset for end in log.ends if end.final]
        if log.final_position is None or not ends:
            examples.append(f"{name} was not read by the final read")
        elif log.final_position < max(ends) and not _only_markers(evidence, log):
            examples.append(
                f"{name}: final read ended at {log.final_position}, log end {max(ends)}"
            )
    return _found("H12 lag", "the final read did not reach the end of the log", examples)


def _only_markers(evidence: _Evidence, log: _Log) -> bool:
    """Return whether the end of the log may be transaction markers, which consumers do not see."""
    return bool(evidence.outcomes) and any(send.transaction for send in log.sends)


def progress(evidence: _Evidence) -> list[Finding]:
    """P26: after the last fault, writes are accepted again."""
    history = evidence.history
    if not history.faults or not history.sends:
        return []
    healed_us = max(fault.end_us for fault in history.faults)
    written = {
        (send.topic, send.partition)
        for send in history.sends
        if send.outcome == SendOutcome.OK and send.end_us > healed_us
    }
    tried = {(send.topic, send.partition) for send in history.sends if send.end_us > healed_us}
    examples = [f"{evidence.name(one)}: nothing acknowledged" for one in sorted(tried - written)]
    if not tried:
        examples = ["no send finished after the last fault"]
    return _found("P26 no-progress", "no progress after the end of the last fault", examples)


def stale_ends(evidence: _Evidence) -> list[Finding]:
    """A log end requested after an acknowledgement is above the acknowledged offset.

    Exception: a leader that does not know yet that it was replaced.
    """
    examples = []
    for name, log in evidence.each():
        acked = sorted(
            (send.end_us, send.offset)
            for send in log.sends
            if send.outcome == SendOutcome.OK and send.offset != NO_OFFSET
        )
        highest, at = NO_OFFSET, 0
        for end in sorted(log.ends, key=lambda end: end.begin_us):
            while at < len(acked) and acked[at][0] < end.begin_us:
                highest = max(highest, acked[at][1])
                at += 1
            if end.offset <= highest:
                examples.append(
                    f"{name}: end offset {end.offset} was returned after offset "
                    f"{highest} was acknowledged"
                )
    return _found("stale-end", "a returned end offset is too low", examples, NOTED)


# --- transactions -------------------------------------------------------------------------------


def cycles(evidence: _Evidence) -> list[Finding]:
    """H11, T10: no transactions read from each other in a cycle (G1c)."""
    reads: dict[int, set[int]] = defaultdict(set)
    for poll in evidence.history.polls:
        if poll.transaction == NO_TRANSACTION:
            continue
        for value in poll.values:
            send = evidence.sends.get(value)
            if send is not None and send.transaction not in (NO_TRANSACTION, poll.transaction):
                reads[send.transaction].add(poll.transaction)
    examples = [
        "transactions " + " -> ".join(map(str, [*circle, circle[0]])) for circle in _circles(reads)
    ]
    return _found("H11 wr-cycle", "transactions read from each other in a cycle", examples)


def _circles(edges: Mapping[int, set[int]]) -> Iterator[list[int]]:
    """Yield one cycle per transaction that closes one: a depth-first search without recursion."""
    done: set[int] = set()
    for start in sorted(edges):
        path: list[int] = []
        on_path: set[int] = set()
        stack = [(start, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                on_path.discard(path.pop())
                done.add(node)
            elif node in on_path:
                yield path[path.index(node) :]
            elif node not in done:
                path.append(node)
                on_path.add(node)
                stack.append((node, True))
                stack += [(after, False) for after in sorted(edges.get(node, ()))]


RULES: tuple[Callable[[_Evidence], list[Finding]], ...] = (
    lost,
    gone,
    duplicates,
    reordered,
    inconsistent_offsets,
    failed_reads,
    phantoms,
    poll_order,
    lag,
    progress,
    stale_ends,
    cycles,
)
