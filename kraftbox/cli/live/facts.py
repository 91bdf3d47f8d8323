"""The nodes' answers and the view derived from them, each value with its request time. Pure.

A value older than FRESH_MS is not shown; the view shows for how long the node has been silent
instead. The view is drawn every DRAW_MS, so nothing on it is ever older than a second, whatever
node is paused, cut off or dead. Times are monotonic milliseconds. An answer is as old as its
request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

DRAW_MS = 250.0
FRESH_MS = 1_000.0 - DRAW_MS
ASK_MS = 300.0
"""The interval of requests, and the timeout of each."""
EVENTS_MAX = 200
NAMED_MAX = 3
"""The number of partitions that an event names; the others are counted."""
RATE_MS = 2_000.0
"""A rate covers a time span of one to two times RATE_MS."""


class Partition(NamedTuple):
    """A partition as a broker reports it.

    `leader` is -1 without a leader. `elr` are its eligible leader replicas (KIP-966).
    """

    topic: str
    number: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"

    @property
    def is_whole(self) -> bool:
        return self.leader >= 0 and len(self.isr) == len(self.replicas)


class ClusterReport(NamedTuple):
    """A broker's view of the cluster.

    `is_cut`: there are more partitions than the response holds.
    """

    asked_ms: float
    fenced: frozenset[int]
    partitions: tuple[Partition, ...]
    is_cut: bool = False


class Quorum(NamedTuple):
    """The active controller's view of the quorum; `ends` are log ends by replica, -1 if unknown."""

    asked_ms: float
    leader: int
    epoch: int
    high_watermark: int
    ends: Mapping[int, int]


class Groups(NamedTuple):
    """The groups of one coordinator: their states and committed offsets."""

    asked_ms: float
    states: Mapping[str, str]
    committed: Mapping[str, Mapping[tuple[str, int], int]]


class Event(NamedTuple):
    """A difference between two views. `at_ms` is the time when it was noticed."""

    at_ms: float
    text: str
    is_bad: bool = False


class NodeRow(NamedTuple):
    """The row of a node; None for a value that was not reported in time.

    `state` is the supervisor's, or `fenced` as the cluster reports; None if the supervisor is
    silent. `silent_ms` is the time since the last answer, None if the node answers or is not
    queried.
    """

    node_id: int
    roles: str
    state: str | None
    error: str | None
    age_ms: float | None
    silent_ms: float | None
    leads: int | None
    in_sync: int | None
    replicas: int | None
    behind: int | None
    per_s: float | None
    is_active: bool
    rack: str | None
    address: str


class TopicRow(NamedTuple):
    """The row of a topic: partitions, those without leader, those lacking replicas, records/s."""

    name: str
    partitions: int
    leaderless: int
    lacking: int
    per_s: float | None


class GroupRow(NamedTuple):
    """The row of a consumer group.

    `lag` is None if its coordinator is silent. `unknown` counts partitions without a known log end.
    """

    name: str
    state: str
    lag: int | None
    unknown: int


class Seen(NamedTuple):
    """Everything to show. `age_ms` is the age of the oldest value."""

    at_ms: float
    age_ms: float
    supervisor_silent_ms: float | None
    supervisor_error: str | None
    nodes: Sequence[NodeRow]
    quorum: Quorum | None
    partitions: Sequence[Partition] | None
    is_cut: bool
    topics: Sequence[TopicRow]
    groups: Sequence[GroupRow]
    events: Sequence[Event]


class _Rate:
    """The growth rate of an offset over the last one to two RATE_MS."""

    __slots__ = ("_first", "_last", "_middle")

    def __init__(self, at_ms: float, value: int) -> None:
        self._first = self._middle = self._last = (at_ms, value)

    def add(self, at_ms: float, value: int) -> None:
        if value < self._last[1]:
            # Start again: it is a new log with the same name, or the log was truncated.
            self.__init__(at_ms, value)  # type: ignore[misc]
            return
        self._last = (at_ms, value)
        if at_ms - self._middle[0] >= RATE_MS:
            self._first, self._middle = self._middle, self._last

    @property
    def end(self) -> tuple[float, int]:
        """The newest offset, with its request time."""
        return self._last

    def per_s(self, now_ms: float) -> float | None:
        """Return the rate; None before there are two values, or if the last one is old."""
        span_ms = self._last[0] - self._first[0]
        if span_ms <= 0 or now_ms - self._last[0] > FRESH_MS:
            return None
        return (self._last[1] - self._first[1]) * 1000.0 / span_ms


class Board:
    """All reported values. `take_*` stores values, `look` derives the view."""

    def __init__(self, now_ms: float) -> None:
        self._began_ms = now_ms
        self.nodes: Sequence[Mapping[str, Any]] = ()
        self._nodes_ms: float | None = None
        self._nodes_error: str | None = None
        self._answered_ms: dict[tuple[int, str], float] = {}
        self._asked_since_ms: dict[int, float] = {}
        self._reports: dict[int, ClusterReport] = {}
        self._quorums: dict[int, Quorum] = {}
        self._groups: dict[int, Groups] = {}
        self._rates: dict[tuple[str, int], _Rate] = {}
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._before = _Before()

    # --- reported values --------------------------------------------------------------------------

    def take_nodes(self, asked_ms: float, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Store the supervisor's view of the nodes."""
        self._nodes_ms, self._nodes_error, self.nodes = asked_ms, None, nodes

    def supervisor_failed(self, why: str) -> None:
        self._nodes_error = why

    def set_requested(self, node_id: int, now_ms: float, *, requested: bool) -> None:
        """Record whether the node is being queried: silence is measured from the first request."""
        if not requested:
            self._asked_since_ms.pop(node_id, None)
        else:
            self._asked_since_ms.setdefault(node_id, now_ms)

    def take_answer(self, node_id: int, role: str, asked_ms: float) -> None:
        """Record that the node answered a request in this role."""
        self._answered_ms[node_id, role] = asked_ms

    def take_report(self, node_id: int, report: ClusterReport) -> None:
        self._reports[node_id] = report

    def take_quorum(self, node_id: int, quorum: Quorum | None) -> None:
        """Store the quorum's state; None if this node is not the active controller."""
        if quorum is None:
            self._quorums.pop(node_id, None)
        else:
            self._quorums[node_id] = quorum

    def take_groups(self, node_id: int, groups: Groups) -> None:
        self._groups[node_id] = groups

    def take_ends(self, asked_ms: float, ends: Mapping[tuple[str, int], int]) -> None:
        """Store the log end offsets that the leaders reported."""
        for partition, end in ends.items():
            rate = self._rates.get(partition)
            if rate is None:
                self._rates[partition] = _Rate(asked_ms, end)
            else:
                rate.add(asked_ms, end)

    # --- the view ---------------------------------------------------------------------------------

    def look(self, now_ms: float) -> Seen:
        """Return the current view, without outdated values.

        Record the events since the last view.
        """
        supervised = _is_fresh(self._nodes_ms, now_ms)
        quorum = max(
            (one for one in self._quorums.values() if _is_fresh(one.asked_ms, now_ms)),
            key=lambda one: one.epoch,
            default=None,
        )
        report = self._best(quorum, now_ms)
        rows = [self._row(node, supervised, quorum, report, now_ms) for node in self.nodes]
        ages = [row.age_ms for row in rows if row.age_ms is not None]
        ages += [now_ms - one.asked_ms for one in (quorum, report) if one is not None]
        if supervised and self._nodes_ms is not None:
            ages.append(now_ms - self._nodes_ms)
        partitions = None if report is None else report.partitions
        if partitions is not None:
            self._forget_all_but(partitions)
        self._note(now_ms, rows, quorum, partitions)
        since_ms = self._began_ms if self._nodes_ms is None else self._nodes_ms
        return Seen(
            now_ms,
            max(ages, default=0.0),
            None if supervised else now_ms - since_ms,
            self._nodes_error,
            rows,
            quorum,
            partitions,
            report is not None and report.is_cut,
            self._topics(partitions or (), now_ms),
            self._group_rows(now_ms),
            list(self._events),
        )

    def _best(self, quorum: Quorum | None, now_ms: float) -> ClusterReport | None:
        """Return the view of the broker with the highest metadata log end offset."""
        reached = {} if quorum is None else quorum.ends
        fresh = {n: one for n, one in self._reports.items() if _is_fresh(one.asked_ms, now_ms)}
        if not fresh:
            return None
        # Among equals always select the same broker, so that the view does not alternate.
        return fresh[max(fresh, key=lambda node_id: (reached.get(node_id, -1), -node_id))]

    def _row(
        self,
        node: Mapping[str, Any],
        supervised: bool,
        quorum: Quorum | None,
        report: ClusterReport | None,
        now_ms: float,
    ) -> NodeRow:
        node_id, roles = int(node["id"]), str(node["roles"])
        answered = [self._answered_ms.get((node_id, role)) for role in roles.split(",")]
        times = [one for one in answered if one is not None]
        # With both roles, the one that has been silent longer counts.
        oldest_ms = min(times) if len(times) == len(answered) else None
        fresh = _is_fresh(oldest_ms, now_ms)
        asked_ms = self._asked_since_ms.get(node_id)
        silent_ms = None
        if not fresh and asked_ms is not None:
            silent_ms = now_ms - max(asked_ms, oldest_ms or asked_ms)
        fenced = report is not None and node_id in report.fenced
        of_broker = report if report is not None and "broker" in roles else None
        hosted = [] if of_broker is None else of_broker.partitions
        leaderships = [one for one in hosted if one.leader == node_id]
        behind = None
        if quorum is not None and quorum.ends.get(node_id, -1) >= 0:
            behind = quorum.ends.get(quorum.leader, -1) - quorum.ends[node_id]
        return NodeRow(
            node_id,
            roles,
            _state(node, fenced=fenced) if supervised else None,
            node.get("error") if supervised else None,
            now_ms - oldest_ms if fresh and oldest_ms is not None else None,
            silent_ms if silent_ms is not None and silent_ms > FRESH_MS else None,
            None if of_broker is None else len(leaderships),
            None if of_broker is None else sum(node_id in one.isr for one in hosted),
            None if of_broker is None else sum(node_id in one.replicas for one in hosted),
            behind,
            None if of_broker is None else self._per_s(leaderships, now_ms),
            quorum is not None and quorum.leader == node_id,
            node.get("rack"),
            _address(node),
        )

    def _per_s(self, partitions: Iterable[Partition], now_ms: float) -> float | None:
        """Return the total records/s of the partitions; None if no rate is known."""
        rates = [self._rates.get((one.topic, one.number)) for one in partitions]
        known = [one.per_s(now_ms) for one in rates if one is not None]
        found = [one for one in known if one is not None]
        return sum(found) if found else None

    def _topics(self, partitions: Sequence[Partition], now_ms: float) -> list[TopicRow]:
        by_topic: dict[str, list[Partition]] = {}
        for one in partitions:
            by_topic.setdefault(one.topic, []).append(one)
        return [
            TopicRow(
                name,
                len(those),
                sum(one.leader < 0 for one in those),
                sum(not one.is_whole for one in those),
                self._per_s(those, now_ms),
            )
            for name, those in sorted(by_topic.items(), key=lambda one: (is_internal(one[0]), one))
        ]

    def _group_rows(self, now_ms: float) -> list[GroupRow]:
        found: dict[str, tuple[float, GroupRow]] = {}
        for groups in self._groups.values():
            fresh = _is_fresh(groups.asked_ms, now_ms)
            for name, state in groups.states.items():
                if name in found and found[name][0] > groups.asked_ms:
                    continue
                row = GroupRow(name, "coordinator not answering", None, 0)
                if fresh:
                    row = self._lag(name, state, groups.committed.get(name, {}), now_ms)
                found[name] = (groups.asked_ms, row)
        return [row for _, (_, row) in sorted(found.items())]

    def _lag(
        self, name: str, state: str, committed: Mapping[tuple[str, int], int], now_ms: float
    ) -> GroupRow:
        lag = unknown = 0
        for partition, offset in committed.items():
            rate = self._rates.get(partition)
            if rate is None or not _is_fresh(rate.end[0], now_ms):
                unknown += 1
            else:
                lag += max(0, rate.end[1] - offset)
        return GroupRow(name, state, lag, unknown)

    def _forget_all_but(self, partitions: Sequence[Partition]) -> None:
        """Drop the rates of deleted partitions."""
        if len(self._rates) > len(partitions):
            kept = {(one.topic, one.number) for one in partitions}
            self._rates = {name: rate for name, rate in self._rates.items() if name in kept}

    # --- events -------------------------------------------------------------------------------

    def _note(
        self,
        now_ms: float,
        rows: Sequence[NodeRow],
        quorum: Quorum | None,
        partitions: Sequence[Partition] | None,
    ) -> None:
        found = [
            *self._before.nodes(rows),
            *self._before.leadership(quorum),
            *self._before.replicas(partitions),
        ]
        self._events.extend(Event(now_ms, text, is_bad) for text, is_bad in found)


class _Before:
    """The values at the last view.

    Each method takes the new values and yields the differences, with a flag for bad ones. A value
    that is unknown now keeps its last state.
    """

    def __init__(self) -> None:
        self._states: dict[int, tuple[str, bool]] = {}
        self._quorum: tuple[int, int] | None = None
        self._partitions: dict[tuple[str, int], Partition] | None = None

    def nodes(self, rows: Sequence[NodeRow]) -> Iterable[tuple[str, bool]]:
        for row in rows:
            if row.state is None:
                continue
            was = self._states.get(row.node_id)
            state = row.state
            if was is not None and (was[0], state) == ("fenced", "running") and row.leads is None:
                # No broker reports now whether the node is still fenced.
                state = "fenced"
            now = (state, row.silent_ms is not None)
            self._states[row.node_id] = now
            if was is None:
                continue
            if now[0] != was[0]:
                why = f": {row.error}" if row.state == "failed" and row.error else ""
                bad = now[0] in ("failed", "killed")
                yield f"node {row.node_id}: {was[0]} -> {now[0]}{why}", bad
            elif now[1] != was[1]:
                says = "stopped answering" if now[1] else "answers again"
                yield f"node {row.node_id} {says}", now[1]

    def leadership(self, quorum: Quorum | None) -> Iterable[tuple[str, bool]]:
        if quorum is None:
            return
        now, was = (quorum.leader, quorum.epoch), self._quorum
        self._quorum = now
        if was is not None and now != was:
            yield f"controller {was[0]} -> {now[0]}, epoch {now[1]}", False

    def replicas(self, partitions: Sequence[Partition] | None) -> Iterable[tuple[str, bool]]:
        if partitions is None:
            return
        was, now = self._partitions, {(one.topic, one.number): one for one in partitions}
        self._partitions = now
        if was is None:
            return
        yield from _topics_changed(was, now)
        pairs = []
        for key in now.keys() & was.keys():
            if now[key].leader_epoch < was[key].leader_epoch:
                # A broker that lags behind reports an older state.
                now[key] = was[key]
            pairs.append((was[key], now[key]))
        yield from _leaders_moved(pairs)
        yield from _isr_changed("left", [(set(old.isr) - set(new.isr), new) for old, new in pairs])
        yield from _isr_changed(
            "joined", [(set(new.isr) - set(old.isr), new) for old, new in pairs]
        )


def _topics_changed(
    was: Mapping[tuple[str, int], Partition], now: Mapping[tuple[str, int], Partition]
) -> Iterable[tuple[str, bool]]:
    before, after = {topic for topic, _ in was}, {topic for topic, _ in now}
    for what, topics in (("new", after - before), ("gone", before - after)):
        if topics:
            yield f"{what} topic{'s' * (len(topics) > 1)}: {named(topics)}", False


def _leaders_moved(pairs: Iterable[tuple[Partition, Partition]]) -> Iterable[tuple[str, bool]]:
    moved: dict[tuple[int, int], list[str]] = {}
    for old, new in pairs:
        if old.leader != new.leader:
            moved.setdefault((old.leader, new.leader), []).append(new.name)
    for (before, after), names in sorted(moved.items()):
        yield f"leader {_leader(before)} -> {_leader(after)}: {named(names)}", after < 0


def _isr_changed(
    what: str, those: Iterable[tuple[set[int], Partition]]
) -> Iterable[tuple[str, bool]]:
    by_node: dict[int, list[str]] = {}
    for nodes, partition in those:
        for node_id in nodes:
            by_node.setdefault(node_id, []).append(partition.name)
    for node_id, names in sorted(by_node.items()):
        yield f"broker {node_id} {what} the ISR of {named(names)}", False


def is_internal(topic: str) -> bool:
    """Return whether a topic is internal; internal topics are shown last."""
    return topic.startswith("__")


def named(names: Iterable[str]) -> str:
    """Return the first NAMED_MAX names and the number of the others."""
    ordered = sorted(names)
    more = len(ordered) - NAMED_MAX
    return ", ".join(ordered[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _leader(node_id: int) -> str:
    return "none" if node_id < 0 else str(node_id)


def _is_fresh(asked_ms: float | None, now_ms: float) -> bool:
    return asked_ms is not None and now_ms - asked_ms <= FRESH_MS


def _state(node: Mapping[str, Any], *, fenced: bool) -> str:
    if node["state"] != "running":
        return str(node["state"])
    return "cut off" if node.get("cutOff") else "fenced" if fenced else "running"


def _address(node: Mapping[str, Any]) -> str:
    """Return the node's first listener, without its name."""
    return str(node["listeners"]).partition(",")[0].partition("://")[2]
