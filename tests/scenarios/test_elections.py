"""Elections as transcripts (`elections.txt`), and laws for every possible case."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from controller.configs.topic_settings import RecoveryStrategy
from controller.elections.cause import Cause
from controller.elections.eligibility import is_eligible
from controller.elections.log_facts import LogFact
from controller.elections.recovery_rules import Standing, judge
from metalog.image.values import NO_LEADER, ElectedAs, PartitionImage
from tests.scenarios.election_cases import (
    BACK,
    BROKERS,
    EVENTS,
    Before,
    Event,
    Played,
    Rules,
    Step,
    fitness,
    play,
)

TABLE = Path(__file__).with_name("elections.txt")
SETS = {"isr": "isr", "elr": "elr", "lk": "last_known_elr"}
NO_CHANGE = -2
LEADER_LOST = (Cause.BROKER_FENCED, Cause.CONTROLLED_SHUTDOWN, Cause.DIRECTORY_FAILED)


# --- the table ------------------------------------------------------------------------------------


def words(text: str) -> dict[str, str]:
    return dict(word.split("=") for word in text.split())


def ids(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def rules_of(text: str) -> Rules:
    given = words(text)
    return Rules(
        feature=int(given["feature"]),
        min_isr=int(given["min"]),
        strategy=given.get("strategy", "Balanced"),
        manager=given.get("manager") == "on",
    )


def before_of(text: str) -> Before:
    given = words(text)
    isr = ids(given.get("isr", ""))
    return Before(
        isr=isr,
        elr=ids(given.get("elr", "")),
        last_known=ids(given.get("lk", "")),
        leader=int(given.get("leader", isr[0] if isr else NO_LEADER)),
        fenced=ids(given.get("fenced", "")),
        gone=ids(given.get("gone", "")),
        state=int(given.get("state", 0)),
    )


def event_of(text: str) -> Event:
    what, broker = text.split()
    assert what in EVENTS
    return Event(what, int(broker))


def told(step: Step) -> str:
    """Return a record in the format of the table."""
    record, after = step.record, step.after
    parts = [
        f"{short}={','.join(map(str, sorted(getattr(after, name))))}"
        for short, name in SETS.items()
        if getattr(after, name) != getattr(step.before, name)
    ]
    if record.leader != NO_CHANGE:
        parts.append(f"leader={record.leader}")
    if after.recovery_state != step.before.recovery_state:
        parts.append(f"state={int(after.recovery_state)}")
    if record.leader != NO_CHANGE:
        kind = ElectedAs(record.election_kind).name.lower().replace("_", "-")
        parts.append(f"{kind}/{record.election_cause}")
    return " ".join(parts) or "touched"


def outcome(played: Played) -> tuple[str, str]:
    """Return records and reasons in the format of the table."""
    records = " ; ".join(map(told, played.steps)) or "nothing"
    if played.end.leader != NO_LEADER:
        return records, ""
    return records, " ".join(f"{broker}:{word}" for broker, word in played.reasons().items())


def rows() -> list[tuple[str, str, str, str, str]]:
    found, holds = [], ""
    for line in TABLE.read_text().splitlines():
        if line.startswith("@"):
            holds = line[1:].strip()
        elif line and not line.startswith("#"):
            before, event, records, *why = (part.strip() for part in line.split("|"))
            found.append((holds, before, event, records, "".join(why)))
    return found


@pytest.mark.parametrize(("holds", "before", "event", "records", "why"), rows())
def test_transcript(holds: str, before: str, event: str, records: str, why: str) -> None:
    rules, start = rules_of(holds), before_of(before)
    played = play(rules, start, event_of(event))
    assert outcome(played) == (records, why)
    check(rules, start, event_of(event), played)


def test_no_row_stands_twice() -> None:
    asked = [row[:3] for row in rows()]
    assert len(asked) == len(set(asked))


# --- what holds for all ---------------------------------------------------------------------------


def effective(rules: Rules) -> int:
    return min(rules.min_isr, len(BROKERS))


def check(rules: Rules, start: Before, event: Event, played: Played) -> None:
    """Check the promises for each record and for the state after the event."""
    for step in played.steps:
        check_sets(rules, step.before, step.after)
        check_epochs(step)
        check_election(rules, start, event, step)
    check_end(rules, event, played)
    if rules.manager and rules.feature:
        check_whole(rules, played)
    if rules.manager and played.end.leader == NO_LEADER:
        check_recovery(rules, played)


def check_recovery(rules: Rules, played: Played) -> None:
    """Check P21 for a partition that waits."""
    end = played.end
    alive = tuple(b for b, told in fitness(played.image).items() if is_eligible(told))
    elr = end.elr if rules.feature else ()
    sets = (end.replicas, alive, end.isr, elr, end.last_known_elr)
    check_comparisons(RecoveryStrategy[rules.strategy.upper()], Standing(*sets, effective(rules)))


@cache
def check_comparisons(strategy: RecoveryStrategy, standing: Standing) -> None:
    """P21: check the recovery's verdict for any set of answers, in time and overdue.

    The logs grow with the brokers' ids.
    """
    alive, clean = standing.alive, {*standing.isr, *standing.elr}
    known = clean | set(standing.last_known)
    required = set(standing.last_known if len(known) >= standing.min_isr else standing.replicas)
    for answered, overdue in itertools.product(subsets(alive), (False, True)):
        enough = bool(answered) and (answered == alive or overdue)
        if strategy is RecoveryStrategy.BALANCED:
            enough &= not clean and required <= set(answered)
        may = enough and strategy is not RecoveryStrategy.NONE
        facts = {broker: LogFact(1, broker, 1, 0.0) for broker in answered}
        winner = judge(strategy, standing, facts, overdue=overdue).winner
        assert winner == (max(answered) if may else None), "P21"


def check_whole(rules: Rules, played: Played) -> None:
    """P8: check that at least min ISR replicas stay known, whatever happens to them."""

    def is_whole(partition: PartitionImage) -> bool:
        known = {*partition.isr, *partition.elr, *partition.last_known_elr}
        return len(known) >= effective(rules)

    if is_whole(played.start):
        for step in played.steps:
            assert is_whole(step.after), "P8"
            if not step.after.isr and not step.after.elr:
                assert len(step.after.last_known_elr) >= effective(rules), "P8"


def check_sets(rules: Rules, before: PartitionImage, after: PartitionImage) -> None:
    """Check P9, and that there are no sets without the feature."""
    isr, elr = set(after.isr), set(after.elr)
    everyone = isr | elr | set(after.last_known_elr)
    assert everyone <= set(after.replicas)
    assert not isr & elr
    assert not isr & set(after.last_known_elr)
    if len(isr) >= effective(rules) or not rules.feature:
        assert (after.elr, after.last_known_elr) == ((), ())
    if not rules.feature and before.isr:
        assert isr, "without the feature the last member stays (P10)"


def check_epochs(step: Step) -> None:
    """P15: check that leader and partition epochs advance with each change."""
    before, after = step.before, step.after
    assert after.partition_epoch == before.partition_epoch + 1
    changed = after.leader != before.leader
    assert after.leader_epoch == before.leader_epoch + changed


def check_election(rules: Rules, start: Before, event: Event, step: Step) -> None:
    """P21, P22, P11: check the elected replica, the kind of election, and those not elected."""
    record, before, after = step.record, step.before, step.after
    if record.leader in (NO_CHANGE, NO_LEADER):
        if record.leader == NO_LEADER:
            assert ElectedAs(record.election_kind) is ElectedAs.NONE
        return
    leader, kind = record.leader, ElectedAs(record.election_kind)
    crashed = event.broker if event.what in ("unclean", "empty") else None
    assert leader in after.isr
    fit = {b for b, eligibility in fitness(step.image).items() if is_eligible(eligibility)}
    # The broker that leaves is fenced by the record that follows.
    assert leader in fit
    clean_isr = {b for b in before.isr if b in fit and b in after.isr}
    if kind is ElectedAs.ISR:
        assert leader in before.isr
        assert after.recovery_state == before.recovery_state
    elif kind is ElectedAs.ELR:
        assert rules.feature
        assert leader in before.elr and leader not in after.elr
        assert after.isr == (leader,)
        assert not clean_isr
        assert after.recovery_state == before.recovery_state
    elif kind is ElectedAs.LAST_KNOWN_LEADER:
        assert rules.feature and not rules.manager and rules.strategy != "None"
        assert before.last_known_elr == (leader,)
        assert after.isr == (leader,) and after.elr == ()
        assert after.recovery_state == 1
        # Both sets were empty, except for a broker that has just come back from a crash.
        assert set(before.isr) | set(before.elr) <= {crashed}
    else:
        assert kind is ElectedAs.UNCLEAN
        assert rules.strategy == "Aggressive" and not rules.manager
        assert after.isr == (leader,) and after.elr == ()
        assert after.recovery_state == 1
    if crashed == leader and rules.feature:
        assert kind not in (ElectedAs.ISR, ElectedAs.ELR), "P11"
    if event.what == "empty":
        assert leader != event.broker, "F22"


def check_end(rules: Rules, event: Event, played: Played) -> None:
    """Check that the partition neither waits for an ineligible replica nor passes over a
    candidate."""
    end, start = played.end, played.start
    fit = {b for b, eligibility in fitness(played.image).items() if is_eligible(eligibility)}
    brokers = played.image.cluster.brokers
    if end.leader != NO_LEADER:
        assert end.leader in fit and end.leader in end.isr
        for member in end.isr:
            alone = not rules.feature and len(end.isr) == 1
            assert alone or not brokers[member].fenced, "P10"
    else:
        clean = {*end.isr, *end.elr} if rules.feature else set(end.isr)
        assert not clean & fit, "a clean candidate does not lead"
        if rules.feature:
            assert end.isr == ()
    if event.what in ("unclean", "empty") and rules.feature and end.leader != event.broker:
        assert event.broker not in (*end.isr, *end.elr), "P11"
    if rules.feature and event.what not in ("unclean", "empty"):
        check_nobody_forgotten(rules, start, end)


def check_nobody_forgotten(rules: Rules, start: PartitionImage, end: PartitionImage) -> None:
    """Check that below min ISR members of ISR or ELR stay in one of them, or an election was
    unclean."""
    lossy = end.recovery_state and not start.recovery_state
    if len(end.isr) < effective(rules) and not lossy and start.recovery_state == 0:
        assert {*start.isr, *start.elr} <= {*end.isr, *end.elr}


# --- every case -----------------------------------------------------------------------------------

PLACES = ("isr", "elr", "none")
MANAGED_PLACES = (*PLACES, "known")


STRATEGIES = ("Balanced", "Aggressive", "None")
# min ISR has no effect without the feature.
ALL_RULES = [
    Rules(feature, min_isr, strategy, manager)
    for feature, min_isr in ((0, 1), (1, 1), (1, 2), (1, 3))
    for strategy in STRATEGIES
    for manager in (False, True)
]
USUAL_RULES = [
    rules
    for rules in ALL_RULES
    if (not rules.manager and rules.strategy != "None") or rules == Rules(1, 2, manager=True)
]


def subsets(brokers: tuple[int, ...]) -> list[tuple[int, ...]]:
    sizes = range(len(brokers) + 1)
    return [found for size in sizes for found in itertools.combinations(brokers, size)]


def partitions(rules: Rules) -> Iterator[Before]:
    """Yield every partition that a controller could have left, with every set of fenced brokers."""
    places_of = MANAGED_PLACES if rules.manager and rules.feature else PLACES
    for places in itertools.product(places_of, repeat=len(BROKERS)):
        isr, elr, known = (
            tuple(b for b, place in zip(BROKERS, places, strict=True) if place == wanted)
            for wanted in ("isr", "elr", "known")
        )
        if (elr or known) and (not rules.feature or len(isr) >= effective(rules)):
            continue
        if not isr and not rules.feature:
            continue
        for fenced in subsets(BROKERS):
            for before in _led(rules, isr, elr, fenced):
                yield before._replace(last_known=known) if rules.manager else before


def _led(
    rules: Rules, isr: tuple[int, ...], elr: tuple[int, ...], fenced: tuple[int, ...]
) -> Iterator[Before]:
    if set(isr) & set(fenced):
        # Only without the feature, and only the last one.
        if not rules.feature and len(isr) == 1:
            yield Before(isr, leader=NO_LEADER, fenced=fenced)
        return
    if isr:
        for leader in isr:
            yield Before(isr, elr, leader=leader, fenced=fenced)
        return
    if set(elr) - set(fenced):
        return
    if rules.manager:
        yield Before(isr, elr, fenced=fenced)
        return
    for last in (None, *(elr or fenced)):
        yield Before(isr, elr, () if last is None else (last,), fenced=fenced)


def events(before: Before) -> Iterator[Event]:
    for what, broker in itertools.product(EVENTS, BROKERS):
        if what == "heard":
            possible = broker in before.fenced
        else:
            possible = what in BACK or broker not in before.fenced
        if possible:
            yield Event(what, broker)


def every_case(which: list[Rules]) -> Iterator[tuple[Rules, Before, Event]]:
    for rules in which:
        for before in partitions(rules):
            for event in events(before):
                yield rules, before, event


def check_all(cases: Iterable[tuple[Rules, Before, Event]]) -> tuple[int, set[ElectedAs]]:
    """Check all cases. Returns: their number, and the kinds of elections."""
    count, kinds = 0, set()
    for rules, before, event in cases:
        played = play(rules, before, event)
        try:
            check(rules, before, event, played)
        except AssertionError as wrong:
            raise AssertionError(f"{rules} {before} {event}: {outcome(played)}") from wrong
        kinds |= {ElectedAs(s.record.election_kind) for s in played.steps}
        count += 1
    return count, kinds


@pytest.mark.slow
def test_the_promises_hold_in_every_case() -> None:
    """Check P8, P9, P10, P11, P15, P21, P22, and that no clean candidate is passed over."""
    count, kinds = check_all(every_case(USUAL_RULES))
    assert count > 3_000
    assert kinds >= {
        ElectedAs.ISR,
        ElectedAs.ELR,
        ElectedAs.LAST_KNOWN_LEADER,
        ElectedAs.UNCLEAN,
        ElectedAs.NONE,
    }


@pytest.mark.rest
def test_the_promises_hold_by_every_other_rule() -> None:
    """The same for rarer configurations: strategy None, and any strategy with the manager."""
    count, kinds = check_all(every_case([r for r in ALL_RULES if r not in USUAL_RULES]))
    assert count > 3_000
    assert kinds == {ElectedAs.ISR, ElectedAs.ELR, ElectedAs.NONE}


@pytest.mark.rest
@pytest.mark.parametrize("manager", [False, True])
def test_the_promises_hold_where_disks_are_gone(manager: bool) -> None:
    """The directory with the replica is lost on one or two brokers, none of them in the ISR."""
    rules = Rules(1, 2, manager=manager)
    count, kinds = check_all(
        (rules, before._replace(gone=gone), event)
        for _, before, event in every_case([rules])
        for gone in subsets(tuple(b for b in BROKERS if b not in before.isr))
        if 0 < len(gone) < len(BROKERS) and not stands_open(before, gone)
        if event.what != "directory" or event.broker not in gone
    )
    assert count > 1_000
    assert kinds >= {ElectedAs.ISR, ElectedAs.ELR, ElectedAs.NONE}


def stands_open(before: Before, gone: tuple[int, ...]) -> bool:
    """Return whether an eligible replica is not elected, a state that no controller leaves
    behind."""
    return before.leader == NO_LEADER and bool({*before.elr} - {*before.fenced, *gone})
