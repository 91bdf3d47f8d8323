"""The judge of leaders' ListOffsets answers for tiered partitions: accepted and refused answers."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from simulation.clients import readers, tier_listers
from simulation.clients.ledgers import Ledgers
from simulation.clients.readers import Lister
from simulation.clients.tier_listers import TierLister
from simulation.judges.committed import PartitionTruth
from simulation.judges.ledger import PartitionLedger
from simulation.judges.tier_offsets import Listed, Reported, judge_listed
from simulation.shapes.shape import TIERED
from simulation.world.invariants import Violation

TIMES = (10, 40, 20, 30, 40, 5, 50, 35)
EPOCHS = (2, 2, 2, 4, 4, 4, 4, 4)
TRUTH = PartitionTruth(
    "t-0",
    end=8,
    batches={at: (at, at + 1, epoch, 0) for at, epoch in enumerate(EPOCHS)},
    times=dict(enumerate(TIMES)),
)
ENDS, BOUNDS = {2, 5}, [(1, 4), (1, 6)]


def edge(offset: int, epoch: int = -1) -> Reported:
    return Reported(offset, -1, epoch)


LISTED = Listed(
    name="broker 1, t-0",
    key=(b"t", 0),
    leader_id=1,
    committed=8,
    at_s=1.0,
    strict=True,
    wanted_ms=35,
    first=edge(1, 2),
    local=edge(6, 4),
    tiered=edge(5, 4),
    pending=edge(6, 4),
    by_time=Reported(1, 40, 2),
    highest=Reported(6, 50, 4),
    start=edge(1, 2),
    latest=edge(8),
)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"local": edge(4, 4)},
        {"tiered": edge(-1), "pending": edge(-1)},
        {"highest": edge(-1)},
        {"pending": edge(-1), "strict": False},
        {"wanted_ms": 60, "by_time": edge(-1)},
        {"committed": 6, "wanted_ms": 45, "by_time": edge(-1)},
    ],
)
def test_s8_true_offsets_are_accepted(changes: dict[str, Any]) -> None:
    judge_listed(replace(LISTED, **changes), TRUTH, ENDS, -1, BOUNDS)


@pytest.mark.parametrize(
    "changes",
    [
        {"first": edge(2, 2)},
        {"first": edge(1, 4)},
        {"local": edge(5, 4)},
        {"start": edge(0, 2)},
        {"latest": edge(9)},
        {"tiered": edge(4, 4)},
        {"tiered": edge(5, 2)},
        {"tiered": edge(2, 2)},
        {"pending": edge(5, 4)},
        {"pending": edge(-1)},
        {"pending": edge(7, 4)},
        {"by_time": Reported(3, 30, 4)},
        {"by_time": Reported(4, 40, 4)},
        {"by_time": Reported(1, 30, 2)},
        {"by_time": edge(-1)},
        {"by_time": Reported(0, 10, 2), "wanted_ms": 5},
        {"highest": Reported(4, 40, 4)},
        {"highest": Reported(7, 50, 4)},
    ],
)
def test_s8_wrong_offsets_are_found(changes: dict[str, Any]) -> None:
    with pytest.raises(Violation, match="S8"):
        judge_listed(replace(LISTED, **changes), TRUTH, ENDS, -1, BOUNDS)


def test_a_copy_of_long_ago_is_known_when_all_is_quiet() -> None:
    older = replace(LISTED, local=edge(4, 4), tiered=edge(2, 2), pending=edge(3, 4))
    with pytest.raises(Violation, match="a gap"):
        judge_listed(older, TRUTH, ENDS, -1, BOUNDS)
    begun = replace(older, first=edge(3, 4), local=edge(3, 4), start=edge(3, 4))
    begun = replace(begun, by_time=Reported(4, 40, 4))
    judge_listed(begun, TRUTH, ENDS, 2, [(3, 3)])
    with pytest.raises(Violation, match="copied long ago"):
        judge_listed(begun, TRUTH, ENDS, 5, [(3, 3)])


@pytest.mark.parametrize("namesakes", [set(), {"t"}])
@pytest.mark.parametrize("deleted", [False, True])
async def test_answers_of_a_topic_that_is_deleted_between_them_are_not_judged(
    deleted: bool, namesakes: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests are by name, so a re-created topic may give some of the answers.

    It gives the answer after the deletion (tiered seed 282) or the one before (seed 1059).
    """
    one = SimpleNamespace(topic="t", topic_id=b"t", index=0)
    topics: dict[bytes, str] = {b"t": "t"}

    async def asked(*_arguments: Any) -> Any:
        if deleted:
            topics.clear()
        return SimpleNamespace(offset=1, timestamp=-1, leader_epoch=2)

    async def leader(_one: Any) -> Any:
        return SimpleNamespace(node_id=1)

    monkeypatch.setattr(tier_listers, "ask_offset", asked)
    load: Any = SimpleNamespace(
        ledgers=SimpleNamespace(partitions=[one], namesakes=namesakes),
        listed=[],
        strict=False,
        now_s=lambda: 1.0,
        leader=leader,
        promises=SimpleNamespace(
            configs=lambda _topic: {TIERED: "true"},
            partitions={(b"t", 0): TRUTH},
            exists=lambda topic_id: topic_id in topics,
        ),
    )
    await TierLister(load).step(random.Random(1))
    assert bool(load.listed) is not (deleted or bool(namesakes))


@pytest.mark.parametrize(
    ("deleted", "namesakes"), [(False, set[str]()), (True, set[str]()), (False, {"t"})]
)
async def test_the_latest_offset_of_a_namesake_is_not_held_against_it(
    deleted: bool, namesakes: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """P14: a topic that is deleted and created again begins at 0 (tiered seed 321).

    A broker that does not know of the deletion returns offsets of the topic before (seed 1059).
    """
    one = PartitionLedger("t", 0, b"t")
    offsets = iter((307, 0))

    async def asked(*_arguments: Any) -> Any:
        return SimpleNamespace(offset=next(offsets))

    async def leader(_one: Any) -> Any:
        return SimpleNamespace(node_id=1, epoch=0)

    monkeypatch.setattr(readers, "ask_offset", asked)
    there = iter((True, not deleted))
    promises = SimpleNamespace(given_up=frozenset(), exists=lambda _topic_id: next(there))
    ledgers = SimpleNamespace(partitions=[one], namesakes=namesakes)
    load: Any = SimpleNamespace(leader=leader, promises=promises, ledgers=ledgers)
    lister = Lister(load)
    await lister.step(random.Random(1))
    forgiven = deleted or namesakes
    with nullcontext() if forgiven else pytest.raises(Violation, match="^P14: .*it was 307 in 0"):
        await lister.step(random.Random(1))


def test_a_topic_that_is_made_again_has_a_namesake() -> None:
    """This holds whichever of the two topics a client finds first."""
    promises: Any = SimpleNamespace(compacted=frozenset({"k"}))
    ledgers = Ledgers(promises)
    for topic in ("t", "k"):
        ledgers.found(topic, b"1", 1)
        ledgers.found(topic, b"1", 2)
    assert ledgers.namesakes == set()
    ledgers.found("t", b"2", 1)
    assert ledgers.namesakes == {"t"}
    ledgers.found("t", b"1", 1)
    assert [one.topic_id for one in ledgers.partitions] == [b"2"]
