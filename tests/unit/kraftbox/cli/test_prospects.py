"""Outcomes of elections that an operator could request, and the words for a leadership."""

from __future__ import annotations

from typing import Any

import pytest

from audit.history import LogEvent
from client.admin import ExplainedPartition
from client.elections import ElectionResult, ElectionType
from controller.elections.explanation import MAY_LACK, UNHEARD
from kraftbox.cli.elect import Elected, outcome
from kraftbox.cli.explanation import Explained
from kraftbox.cli.leadership import sentence
from kraftbox.cli.prospects import LIVE_REASONS, Prospect, is_live, loss_with, prospects
from kraftbox.cli.replica_logs import ReplicaLog, Replicas
from protocol.messages.explain_election import ExplainElectionResponse

DOWN = "is down or fenced"


def candidate(broker: int, reason: str | None = None) -> Any:
    return ExplainElectionResponse.Candidate(broker=broker, eligible=reason is None, reason=reason)


def explained(leader: int, *candidates: Any, **more: Any) -> ExplainedPartition:
    return ExplainedPartition(
        topic="t", partition=0, leader=leader, leader_epoch=4, candidates=list(candidates), **more
    )


def test_reasons_of_live_candidates_are_those_of_the_controller() -> None:
    assert is_live(candidate(1, MAY_LACK)) and is_live(candidate(1, UNHEARD))
    assert all(any(known.startswith(one) for known in (MAY_LACK, UNHEARD)) for one in LIVE_REASONS)
    assert not is_live(candidate(1, "is fenced"))


def test_partition_with_leader_needs_the_preferred_election_only() -> None:
    found = explained(2, candidate(1), candidate(2), isr=[1, 2])
    first, *others = prospects(found, Replicas([1, 2], {}))
    assert first == Prospect("preferred", "broker 1 would lead", "nothing")
    assert {one.result for one in others} == {"not needed: broker 2 leads"}
    found = explained(2, candidate(1, "is fenced"), candidate(2), isr=[2])
    assert prospects(found, Replicas([1, 2], {}))[0].result == "refused: broker 1 is fenced"
    led = explained(1, candidate(1), isr=[1])
    assert "broker 1 leads, the first replica" in prospects(led, Replicas([1], {}))[0].result


LOGS = {1: DOWN, 2: ReplicaLog(3, 100), 3: ReplicaLog(3, 120)}
LEADERLESS = explained(
    -1, candidate(1, "is fenced"), candidate(2, MAY_LACK), candidate(3, MAY_LACK), isr=[1]
)


def test_partition_without_leader_shows_each_winner_and_its_loss() -> None:
    """First hours, fault 8: the columns were empty where one must choose whom to elect."""
    unknown = "unknown records of broker 1, which cannot report now"
    found = {one.kind: one for one in prospects(LEADERLESS, Replicas([1, 2, 3], LOGS))}
    assert found["preferred"].result == "refused: broker 1 is not in sync"
    assert found["unclean"] == Prospect(
        "unclean",
        "broker 2 would lead",
        f"at least 20 offsets: broker 3's log ends at 120; {unknown}",
    )
    assert found["longest-log-aggressive"][1:] == ("broker 3 would lead", unknown)
    assert found["longest-log-balanced"].result == (
        "waits for broker 1, which may have every record"
    )
    assert found["designation"].result == "brokers 2, 3: the one that --leader names"


def test_later_epoch_is_longer_than_a_higher_offset() -> None:
    logs = {2: ReplicaLog(3, 100), 3: ReplicaLog(4, 90)}
    found = explained(-1, candidate(2, MAY_LACK), candidate(3, MAY_LACK))
    by_kind = {one.kind: one for one in prospects(found, Replicas([2, 3], logs))}
    assert by_kind["longest-log-aggressive"][1:] == (
        "broker 3 would lead",
        "nothing that a replica still has",
    )
    assert by_kind["longest-log-balanced"].result == "broker 3 would lead"
    assert by_kind["unclean"].loss == "records of leader epoch 4 on broker 3"


def test_silent_live_replica_is_named() -> None:
    logs = {2: ReplicaLog(3, 100), 3: "does not answer"}
    found = explained(-1, candidate(2, MAY_LACK), candidate(3, MAY_LACK))
    (aggressive,) = [
        one for one in prospects(found, Replicas([2, 3], logs)) if one.kind.endswith("aggressive")
    ]
    assert aggressive.result == "broker 2 would lead, unless broker 3 has a longer log"


def test_no_live_replica_refuses_every_election() -> None:
    found = explained(-1, candidate(1, "is fenced"))
    results = {one.result for one in prospects(found, Replicas([1], {1: DOWN}))}
    assert results == {"refused: no replica is live"}


def test_member_of_the_elr_loses_nothing() -> None:
    assert loss_with(2, explained(-1, elr=[2]), Replicas([1, 2], {})) == "nothing"


AT = 1_795_906_066_000


def election(cause: str = "connection-lost", kind: str = "isr") -> LogEvent:
    facts = {"kind": kind, "cause": cause, "from_leader": 2, "to_leader": 3}
    facts |= {"leader_epoch": 4, "passed_over": []}
    return LogEvent(9, AT, "election", facts, "t", 0)


def lost() -> LogEvent:
    facts = {"before": 3, "leader": -1, "leader_epoch": 5, "why": "lost"}
    return LogEvent(10, AT + 1, "leader", facts, "t", 0)


@pytest.mark.parametrize(
    ("leader", "events", "expected"),
    [
        (
            3,
            [election()],
            "broker 3 leads since 2026-11-28 22:47:46.000 UTC (leader epoch 4), elected from the "
            "ISR when the connection of broker 2 was lost; preferred is 1",
        ),
        (
            3,
            [election("operator-request", "designated")],
            "broker 3 leads since 2026-11-28 22:47:46.000 UTC (leader epoch 4), elected because an "
            "operator named it; records may have been lost; preferred is 1",
        ),
        (3, [], "broker 3 leads (leader epoch 4); preferred is 1"),
        (
            -1,
            [election(), lost()],
            "no broker leads since 2026-11-28 22:47:46.001 UTC (leader epoch 4); "
            "broker 3 led before",
        ),
    ],
)
def test_leadership_has_since_when_how_and_why(
    leader: int, events: list[LogEvent], expected: str
) -> None:
    assert sentence(leader, 4, 1, events) == expected


def test_outcome_names_the_leader_its_log_and_the_loss() -> None:
    """First hours, fault 4: the output was "orders-0: elected"."""
    done = ElectionResult(0)
    before = Explained(LEADERLESS, Replicas([1, 2, 3], LOGS))
    after = explained(2)
    text = outcome(Elected(ElectionType.UNCLEAN, done, before, after))
    assert text == (
        "elected broker 2 (leader epoch 4), whose log ends at 100 (last epoch 3); may be lost: at "
        "least 20 offsets: broker 3's log ends at 120; unknown records of broker 1, which cannot "
        "report now"
    )
    preferred = Elected(ElectionType.PREFERRED, done, None, after)
    assert outcome(preferred) == "elected broker 2 (leader epoch 4); nothing is lost"
    assert outcome(Elected(ElectionType.UNCLEAN, done)) == "elected"
