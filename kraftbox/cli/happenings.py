"""Lines of `kraftbox events`: from the journal and the metadata log to sentences. Pure."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from audit.history import LogEvent
from audit.reading.journal import Deed
from kraftbox.cli import election_words
from runtime.config.tables import NODE_KEYS

JOURNAL, LOG = "cluster", "metadata"


class Happening(NamedTuple):
    """One line of the time line.

    `nodes` are the nodes that it concerns; `offset` is that of the record, None for an entry of the
    journal.
    """

    time_ms: int
    source: str
    kind: str
    text: str
    nodes: tuple[int, ...]
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    facts: Mapping[str, Any] = {}

    @property
    def place(self) -> str | None:
        """The partition as `orders-0`; None for an event that is not about a partition."""
        return None if self.partition is None else f"{self.topic}-{self.partition}"

    def document(self) -> dict[str, Any]:
        """Return the happening as JSON values."""
        return {
            "timeMs": self.time_ms,
            "source": self.source,
            "kind": self.kind,
            "text": self.text,
            "nodes": list(self.nodes),
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "facts": dict(self.facts),
        }


class Filter(NamedTuple):
    """The happenings that a user wants: those of a node, of a partition and its replicas."""

    since_ms: int | None = None
    until_ms: int | None = None
    node: int | None = None
    partition: str | None = None

    def in_time(self, time_ms: int) -> bool:
        return (self.since_ms is None or time_ms >= self.since_ms) and (
            self.until_ms is None or time_ms <= self.until_ms
        )

    def matches(self, one: Happening, replicas: Iterable[int]) -> bool:
        """Return whether to show a happening; `replicas` are those of the partition.

        With a partition, events of its brokers are shown too: they are the causes. Other
        partitions' are not.
        """
        if not self.in_time(one.time_ms) or (self.node is not None and self.node not in one.nodes):
            return False
        if self.partition is None:
            return True
        if one.place is not None:
            return one.place == self.partition
        if one.topic is not None:
            return one.topic == self.partition.rpartition("-")[0]
        return one.kind in _ABOUT_NODES and (not one.nodes or bool({*one.nodes} & {*replicas}))


# --- the journal --------------------------------------------------------------------------------

_ACTIONS = {
    "kill": "killed",
    "stop": "is stopping",
    "pause": "paused",
    "resume": "resumed",
    "start": "is starting",
    "cut-off": "cut off from the network",
    "reconnect": "reconnected to the network",
    "ready": "is ready",
}
_CLUSTER = {
    "cluster-starting": "the cluster is starting",
    "cluster-ready": "the cluster is ready",
    "cluster-stopping": "the cluster is stopping",
    "cluster-stopped": "the cluster has stopped",
}
_ABOUT_NODES = frozenset({*_ACTIONS, *_CLUSTER, "exited", "network-failed", "links", "broker"})


def of_deed(deed: Deed) -> Happening:
    """Return an entry of the journal as a happening; an unknown event under its own name."""
    facts = deed.facts
    nodes: tuple[int, ...] = () if deed.node is None else (deed.node,)
    by = f" ({facts['by']})" if facts.get("by") else ""
    if deed.event in _ACTIONS:
        text = f"node {deed.node} {_ACTIONS[deed.event]}{by}"
    elif deed.event in _CLUSTER:
        text = f"{_CLUSTER[deed.event]}{by}"
    elif deed.event == "exited":
        text = f"node {deed.node} ended: {_ending(facts.get('code'))}"
        if not facts.get("expected", True):
            text += f", unexpectedly: {facts.get('error') or 'see kraftbox logs'}"
    elif deed.event == "network-failed":
        text = f"the network of node {deed.node} did not change: {facts.get('error')}"
    elif deed.event == "links":
        rules = facts.get("rules") or []
        nodes = tuple(sorted({end for rule in rules for end in rule[:2] if end}))
        text = f"{_links(rules)}{by}"
    else:
        text = f"{deed.event}{by}"
    return Happening(deed.time_ms, JOURNAL, deed.event, text, nodes, facts=facts)


def _ending(code: Any) -> str:
    if not isinstance(code, int) or code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _links(rules: Sequence[Sequence[Any]]) -> str:
    """Return the state of the links: `link 1 -> 2 cut; link 2 -> 1 200 ms`."""
    if not rules:
        return "all links are whole"
    lines = []
    for source, target, loss, delay_ms, jitter_ms, rate, duplicate, reorder in rules:
        effects = [
            (loss >= 1, "cut"),
            (0 < loss < 1, f"{loss:.0%} lost"),
            (delay_ms or jitter_ms, f"{delay_ms:g} +- {jitter_ms:g} ms"),
            (rate, f"{rate} bytes/s"),
            (duplicate, f"{duplicate:.0%} duplicated"),
            (reorder, f"{reorder:.0%} reordered"),
        ]
        ends = " -> ".join("clients" if end == 0 else str(end) for end in (source, target))
        lines.append(f"link {ends} {', '.join(text for holds, text in effects if holds)}")
    return "; ".join(lines)


# --- the metadata log ---------------------------------------------------------------------------

_BROKER = {
    "registered": "registered",
    "lost": "fenced: its connection or its session was lost",
    "stopped": "fenced after its controlled shutdown",
    "fenced": "fenced",
    "unfenced": "unfenced: it is in service",
    "controlled-shutdown": "began its controlled shutdown",
    "log-directory-failed": "lost a log directory",
    "unregistered": "unregistered",
}
_SETS = {"isr": "ISR", "elr": "ELR", "last-known-elr": "last known ELR"}


def of_event(event: LogEvent) -> Happening:
    """Return an event of the metadata log as a happening."""
    facts = event.facts
    at = f"{event.topic}-{event.partition}"
    text, nodes = _WORDS[event.kind](at, facts)
    return Happening(
        event.timestamp_ms,
        LOG,
        event.kind,
        text,
        tuple(sorted({node for node in nodes if node is not None and node >= 0})),
        event.topic if event.kind != "setting" else _topic_of(facts),
        event.partition,
        event.offset,
        facts,
    )


def _election(at: str, facts: Mapping[str, Any]) -> tuple[str, list[Any]]:
    old, new = facts["from_leader"], facts["to_leader"]
    how = election_words.elected(facts["kind"], facts["cause"], old, new)
    loss = "; records may be lost" if facts["kind"] in election_words.MAY_LOSE else ""
    passed = election_words.passed_over(facts["passed_over"])
    text = f"{at}: broker {new} leads (leader epoch {facts['leader_epoch']}), elected {how}"
    return f"{text}{loss}{passed}", [old, new]


def _leader(at: str, facts: Mapping[str, Any]) -> tuple[str, list[Any]]:
    leader, before = facts["leader"], facts["before"]
    led = f"; broker {before} led it" if before is not None and before >= 0 else ""
    words = {
        "created": f"created; broker {leader} leads (leader epoch {facts['leader_epoch']})",
        "deleted": "deleted",
        "lost": f"no leader (leader epoch {facts['leader_epoch']}){led}",
    }
    text = words.get(facts["why"], f"broker {leader} leads (leader epoch {facts['leader_epoch']})")
    return f"{at}: {text}", [before, leader]


def _members(kind: str, at: str, facts: Mapping[str, Any]) -> tuple[str, list[Any]]:
    before, after = facts["before"], facts["after"]
    left = [one for one in before if one not in after]
    joined = [one for one in after if one not in before]
    changes = [f"{ids(some)} {word}" for some, word in ((left, "left"), (joined, "joined")) if some]
    return f"{at}: {_SETS[kind]} {ids(after) or 'empty'} ({', '.join(changes)})", [*before, *after]


def _broker(_: str, facts: Mapping[str, Any]) -> tuple[str, list[Any]]:
    event = facts["event"]
    return f"broker {facts['broker']} {_BROKER.get(event, event)}", [facts["broker"]]


def _quorum(_: str, facts: Mapping[str, Any]) -> tuple[str, list[Any]]:
    return f"controller {facts['leader']} is active (epoch {facts['epoch']})", [facts["leader"]]


def _controller(_: str, facts: Mapping[str, Any]) -> tuple[str, list[Any]]:
    return f"controller {facts['controller']} registered", [facts["controller"]]


def _reassignment(at: str, facts: Mapping[str, Any]) -> tuple[str, list[Any]]:
    parts = [f"replicas {ids(facts['replicas'])}"]
    parts += [f"{name} {ids(facts[name])}" for name in ("adding", "removing") if facts[name]]
    text = f"{at}: reassignment {facts['step']}: {', '.join(parts)}"
    return text, [*facts["replicas"], *facts["adding"], *facts["removing"]]


def _setting(_: str, facts: Mapping[str, Any]) -> tuple[str, list[Any]]:
    kind, resource, name = facts["kind"], facts["resource"], facts["name"]
    key = NODE_KEYS.get(name)
    # A broker's unknown key may be of a later release, and secret there.
    hidden = kind == "broker" and (key is None or key.sensitive)
    before, after = ("(hidden)" if hidden and v is not None else v for v in _values(facts))
    whose = f"{kind} {resource}" if resource else "feature" if kind == "feature" else "all brokers"
    change = "removed" if after is None else f"= {after}"
    was = "" if before is None else f" (before: {before})"
    node = int(resource) if kind == "broker" and resource.isdecimal() else None
    return f"{whose}: {name} {change}{was}", [node]


def _values(facts: Mapping[str, Any]) -> tuple[Any, Any]:
    return facts["before"], facts["after"]


def _topic_of(facts: Mapping[str, Any]) -> str | None:
    return facts["resource"] if facts["kind"] == "topic" else None


_WORDS: Mapping[str, Any] = {
    "election": _election,
    "leader": _leader,
    "isr": lambda at, facts: _members("isr", at, facts),
    "elr": lambda at, facts: _members("elr", at, facts),
    "last-known-elr": lambda at, facts: _members("last-known-elr", at, facts),
    "broker": _broker,
    "quorum": _quorum,
    "controller": _controller,
    "reassignment": _reassignment,
    "setting": _setting,
}


def ids(brokers: Iterable[int]) -> str:
    """Return IDs of brokers, with commas between them."""
    return ",".join(map(str, brokers))


def replicas_of(partition: str, events: Iterable[Happening]) -> set[int]:
    """Return all brokers that the events of a partition name."""
    return {node for one in events if one.place == partition for node in one.nodes}
