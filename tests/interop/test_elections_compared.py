"""Stories of elections on Apache Kafka 4.4 and on us, with equal states after each step.

`election_stories.txt` has the stories. Both clusters take each step at the same time.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from client.elections import ElectionType
from testkit.audits import elections_of
from testkit.kafka.jars import kafka_libs
from testkit.kafka.tools import KafkaTools
from tests.interop.election_sides import CONTROLLER, Side, State, Topic, as_told, running

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(
        kafka_libs() is None, reason="no Java or Maven to get Kafka's jars with (docs/gaps.md)"
    ),
]

STORIES = Path(__file__).with_name("election_stories.txt")
DESCRIBE = "org.apache.kafka.tools.TopicCommand"
LINE = re.compile(
    r"Topic: (\S+)\s+Partition: 0\s+Leader: (\S+)\s+Replicas: \S+\s+Isr:[ ]?(\S*)\s+"
    r"Elr:[ ]?(\S*)\s+LastKnownElr:[ ]?(\S*)"
)
PROCESSES = ("kill", "stop", "start", "pause", "resume")


class Step(NamedTuple):
    """A command, and the topics that may and must differ after it, with the reason."""

    words: tuple[str, ...]
    beyond: dict[str, str]


def ids(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def stories() -> tuple[list[Topic], list[Step]]:
    topics, steps = [], list[Step]()
    for line in STORIES.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        words = line.split()
        if words[0] == "topic":
            _, name, replicas, min_isr, *rest = words
            configs = dict(word.split("=") for word in rest if "=" in word)
            if min_isr != "min=-":
                configs["min.insync.replicas"] = min_isr.removeprefix("min=")
            topics.append(Topic(name, ids(replicas), configs))
        elif words[0] == "beyond":
            names, reason = line.strip().removeprefix("beyond ").split(": ", 1)
            steps[-1].beyond.update(dict.fromkeys(names.split(","), reason))
        else:
            steps.append(Step(tuple(words), {}))
    return topics, steps


class Growth(NamedTuple):
    """The effect of one step on a partition."""

    leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known: tuple[int, ...]
    leader_epoch: int
    changes: int


def grown(before: dict[str, State], after: dict[str, State]) -> dict[str, Growth]:
    return {
        name: Growth(
            *state[:4],
            state.leader_epoch - before[name].leader_epoch,
            state.changes - before[name].changes,
        )
        for name, state in after.items()
    }


def same(theirs: Growth, ours: Growth, words: tuple[str, ...]) -> bool:
    """Return whether a step had the same effect on a partition.

    Replicas that a move adds join in one ISR change or one after the other, depending on timing.
    """
    if words[0] == "move":
        usual = range(2, 2 + len(ids(words[2])))
        if theirs.changes in usual and ours.changes in usual:
            ours = ours._replace(changes=theirs.changes)
    return theirs == ours


def take(side: Side, words: tuple[str, ...]) -> dict[str, State]:
    """Take a step and wait until it is over; a live broker must report the state in the log."""
    verb, *given = words
    if verb in PROCESSES:
        for broker in ids(given[0]):
            getattr(side, verb)(broker)
    elif verb == "feature":
        side.feature(int(given[0]))
    elif verb == "min":
        side.min_isr(given[0], int(given[1]))
    elif verb == "move":
        side.move(given[0], ids(given[1]))
    elif verb == "cancel":
        side.cancel(given[0])
    elif verb == "elect":
        side.elect(ElectionType[given[0].upper()], given[1])
    else:
        assert verb == "tools", words
    states = side.settle()
    if side.live:
        said = side.told()
        assert {name: said[name] for name in states} == {n: as_told(s) for n, s in states.items()}
    return states


def described(side: Side, tools: KafkaTools) -> dict[str, tuple[int, ...]]:
    """Return the topics as Kafka's own tool shows them."""
    done = tools.run(DESCRIBE, "--bootstrap-server", side.bootstrap, "--describe")
    assert done.code == 0, done.text
    found = {}
    for name, leader, *sets in LINE.findall(done.out):
        isr, elr, last_known = (sorted(ids(one)) for one in sets)
        found[name] = (
            -1 if leader == "none" else int(leader),
            *(-1, *isr),
            *(-1, *elr),
            *(-1, *last_known),
        )
    return found


def elections(side: Side, *broken: str) -> dict[tuple[str, int], tuple[str, int | None, int]]:
    """Return kind, old and new leader by topic and leader epoch, from an audit without other
    findings."""
    told = elections_of(side.cluster.nodes[CONTROLLER].metadata_dir, broken=broken)
    return {(e.topic, e.leader_epoch): (e.kind, e.from_leader, e.to_leader) for e in told}


def check_audits(theirs: Side, ours: Side, apart: set[str]) -> None:
    """Assert that audits of both logs report the same elections.

    Kafka's records do not contain the kind: if one empties the ELR and elects the last leader, the
    audit reports an unclean election. A partition whose only replica is dead has no leader in the
    end. Kafka's cancelled reassignment left a broker in the ELR that is no longer a replica.
    """
    kafkas, own = elections(theirs, "leaderless", "isr-elr-members"), elections(ours, "leaderless")
    same = {key for key in kafkas.keys() | own.keys() if key[0] not in apart}
    for key in sorted(same):
        known, noted = kafkas[key], own[key]
        if (known[0], noted[0]) == ("unclean", "last-known-leader"):
            known = (noted[0], *known[1:])
        assert known == noted, key
    kinds = {kind for kind, _, _ in own.values()}
    assert kinds == {"isr", "elr", "preferred", "unclean", "last-known-leader"}


@pytest.mark.rest
def test_stories(tmp_path: Path, tools: KafkaTools) -> None:
    topics, steps = stories()
    assert len(topics) >= 20
    wrong: list[str] = []
    with (
        running("kafka", tmp_path / "kafka", kafka=True) as theirs,
        running("ours", tmp_path / "ours", kafka=False) as ours,
        ThreadPoolExecutor(2) as both,
    ):
        sides = (theirs, ours)
        for side in sides:
            side.create(topics)
        before = list(both.map(Side.settle, sides))
        for step in steps:
            after = list(both.map(lambda s: take(s, step.words), sides))  # noqa: B023
            kafkas, own = (grown(*pair) for pair in zip(before, after, strict=True))
            for name in kafkas:
                if same(kafkas[name], own[name], step.words) is (name in step.beyond):
                    wrong.append(f"{' '.join(step.words)}: {name}: {kafkas[name]} {own[name]}")
            if step.words == ("tools",):
                for side, states in zip(sides, after, strict=True):
                    assert any(state.elr for state in states.values())
                    assert described(side, tools) == {n: as_told(s) for n, s in states.items()}
            before = after
        assert wrong == [], "\n".join(wrong)
        check_audits(theirs, ours, {name for step in steps for name in step.beyond})
