"""Since when a partition has its leader, and how it was elected, from the metadata log.

The answer of the controller has the current state only. The log of a local cluster is on this
machine; a cluster elsewhere needs `kraftbox audit` there.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from audit.history import LogEvent, LogHistory
from audit.reading.logs import UnreadableInput
from client.leaders import TopicPartition
from kraftbox.cli import election_words
from kraftbox.cli.moments import clock

LEADER_KINDS = ("election", "leader")


def leadership_events(directory: str, partition: TopicPartition) -> list[LogEvent]:
    """Return the leadership changes of a partition; none if the log cannot be read."""
    found: list[LogEvent] = []

    def take(event: LogEvent) -> None:
        if event.kind in LEADER_KINDS and (event.topic, event.partition) == partition:
            found.append(event)

    try:
        LogHistory([Path(directory)], take).read()
    except (UnreadableInput, OSError):
        return []
    return found


def sentence(leader: int, leader_epoch: int, preferred: int, events: Iterable[LogEvent]) -> str:
    """Return who leads, since when, how and why.

    `events` are the leadership changes in order; without one for this leader, time and reason are
    left out.
    """
    current = next((one for one in reversed(list(events)) if _leader(one) == leader), None)
    since = "" if current is None else f" since {clock(current.timestamp_ms)} UTC"
    if leader < 0:
        text = f"no broker leads{since} (leader epoch {leader_epoch})"
        before = None if current is None else current.facts.get("before")
        return f"{text}; broker {before} led before" if before is not None and before >= 0 else text
    text = f"broker {leader} leads{since} (leader epoch {leader_epoch})"
    if current is not None and current.kind == "election":
        facts = current.facts
        how = election_words.elected(facts["kind"], facts["cause"], facts["from_leader"], leader)
        text += f", elected {how}{election_words.passed_over(facts['passed_over'])}"
        if facts["kind"] in election_words.MAY_LOSE:
            text += "; records may have been lost"
    elif current is not None and current.facts["why"] == "created":
        text += ", as the first leader of the new partition"
    return text if preferred < 0 else f"{text}; preferred is {preferred}"


def _leader(event: LogEvent) -> int:
    leader: int = event.facts["to_leader" if event.kind == "election" else "leader"]
    return leader
