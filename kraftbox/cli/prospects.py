"""Outcomes of elections that an operator could request now, with the records at risk. Pure.

The rules are those of the controller (`controller/elections`): a clean candidate leads by itself,
so a partition without leader has none. The ends of logs are those that live brokers report.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from client.admin import ExplainedPartition
from kraftbox.cli.replica_logs import ReplicaLog, Replicas
from protocol.messages.explain_election import ExplainElectionResponse

LIVE_REASONS = ("may lack committed records", "has not said how far its log reaches")
"""Reasons of the controller against a candidate whose broker is live."""
NOTHING = "nothing"


class Prospect(NamedTuple):
    """An election type, its result if it was requested now, and what may be lost (None: -)."""

    kind: str
    result: str
    loss: str | None = None


def prospects(found: ExplainedPartition, replicas: Replicas) -> list[Prospect]:
    """Return the prospect of each election type."""
    first = replicas.assigned[0] if replicas.assigned else -1
    if found.leader >= 0:
        led = f"not needed: broker {found.leader} leads"
        others = [Prospect(kind, led) for kind in ("unclean", *_LONGEST, "designation")]
        return [_preferred(found, first), *others]
    live = [one.broker for one in found.candidates if is_live(one)]
    if not live:
        none = "refused: no replica is live"
        kinds = ("preferred", "unclean", *_LONGEST, "designation")
        return [Prospect(kind, none) for kind in kinds]
    named = Prospect(
        "designation",
        f"{_brokers(live)}: the one that --leader names",
        "; ".join(f"broker {one}: {loss_with(one, found, replicas)}" for one in live),
    )
    return [
        Prospect("preferred", f"refused: broker {first} is not in sync"),
        _would_lead("unclean", live[0], found, replicas),
        _longest(_LONGEST[0], live, (), found, replicas),
        _longest(_LONGEST[1], live, _expected(found, replicas), found, replicas),
        named,
    ]


_LONGEST = ("longest-log-aggressive", "longest-log-balanced")


def is_live(candidate: ExplainElectionResponse.Candidate) -> bool:
    """Return whether a candidate's broker can be elected by an operator."""
    return candidate.eligible or (candidate.reason or "").startswith(LIVE_REASONS)


def _preferred(found: ExplainedPartition, first: int) -> Prospect:
    if found.leader == first:
        return Prospect("preferred", f"not needed: broker {first} leads, the first replica")
    candidate = next((one for one in found.candidates if one.broker == first), None)
    if candidate is not None and candidate.eligible and first in found.isr:
        return Prospect("preferred", f"broker {first} would lead", NOTHING)
    why = candidate.reason if candidate is not None and candidate.reason else "is not in the ISR"
    return Prospect("preferred", f"refused: broker {first} {why}")


def _would_lead(kind: str, broker: int, found: ExplainedPartition, replicas: Replicas) -> Prospect:
    return Prospect(kind, f"broker {broker} would lead", loss_with(broker, found, replicas))


def _longest(
    kind: str,
    live: Sequence[int],
    expected: Iterable[int],
    found: ExplainedPartition,
    replicas: Replicas,
) -> Prospect:
    """Return the prospect of a comparison of logs, which waits for the `expected` replicas."""
    missing = [one for one in expected if one not in live]
    if missing:
        any_of = "one of " if len(missing) > 1 and (found.isr or found.elr) else ""
        return Prospect(kind, f"waits for {any_of}{_brokers(missing)}, which may have every record")
    known = {id_: log for id_, log in replicas.known.items() if id_ in live}
    silent = [one for one in live if one not in known]
    if not known:
        return Prospect(kind, f"waits for the answer of {_brokers(silent)}")
    winner = max(known, key=lambda one: (*known[one].end, -live.index(one)))
    prospect = _would_lead(kind, winner, found, replicas)
    if silent:
        unless = f"{prospect.result}, unless {_brokers(silent)} has a longer log"
        prospect = prospect._replace(result=unless)
    return prospect


def _expected(found: ExplainedPartition, replicas: Replicas) -> list[int]:
    """Return the replicas of which one has every record, by the controller's rule for Balanced."""
    if found.isr or found.elr:
        return [*dict.fromkeys([*found.isr, *found.elr])]
    return list(found.last_known_elr or replicas.assigned)


def loss_with(broker: int, found: ExplainedPartition, replicas: Replicas) -> str:
    """Return what may be lost if this broker leads, from the logs that are known."""
    if broker in found.isr or broker in found.elr:
        return NOTHING
    own = replicas.known.get(broker)
    others = [one for one in replicas.assigned if one != broker]
    silent = [one for one in others if one not in replicas.known]
    if own is None:
        return f"unknown: broker {broker} {replicas.logs.get(broker, 'does not answer')}"
    losses = [
        text
        for one in others
        if one in replicas.known and (text := _beyond(own, one, replicas.known[one]))
    ]
    if silent:
        losses.append(f"unknown records of {_brokers(silent)}, which cannot report now")
    return "; ".join(losses) or "nothing that a replica still has"


def _beyond(own: ReplicaLog, other: int, log: ReplicaLog) -> str | None:
    """Return what another log has beyond the own one, None if that is nothing."""
    if log.end <= own.end:
        return None
    count = log.end_offset - own.end_offset
    if count > 0:
        offsets = "1 offset" if count == 1 else f"{count} offsets"
        return f"at least {offsets}: broker {other}'s log ends at {log.end_offset}"
    return f"records of leader epoch {log.last_epoch} on broker {other}"


def _brokers(ids: Sequence[int]) -> str:
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"
