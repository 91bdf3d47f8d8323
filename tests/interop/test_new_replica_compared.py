"""KIP-1023 on Apache Kafka 4.4 and on us: the beginning of an empty replica of a tiered topic.

Each topic is a case. Broker 2 has it alone; then broker 3 gets a replica, and leads it. Both sides
agree on the first offset that the new replica copied, its log start, and its epochs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from storage.log.checkpoints import LEADER_EPOCH_CHECKPOINT, decode_epochs
from testkit.kafka.jars import kafka_libs, tiered_store
from testkit.processes.waiting import until
from tests.interop import tier_sides
from tests.interop.election_sides import Side, Topic, running
from tests.interop.tier_sides import SEGMENT_BYTES

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("default"),
    pytest.mark.rest,
    pytest.mark.skipif(
        kafka_libs() is None,
        reason="no Java or Maven to get Kafka's jars with (docs/gaps.md)",
    ),
]

LEADER, NEW = 2, 3
SWITCHED_ON = {"follower.fetch.last.tiered.offset.enable": "true"}
TIERED = {
    "remote.storage.enable": "true",
    "retention.ms": "-1",
    "internal.segment.bytes": str(SEGMENT_BYTES),
}
GIVEN_UP_S = 8.0
"""By then a follower with a backoff of at most a second has tried several times."""


class Case(NamedTuple):
    """The state of a leader's log of 170 records, and the beginning of the new replica."""

    name: str
    configs: dict[str, str]
    deleted_to: int
    log_start: int
    copied_from: int
    beyond: str = ""
    """Why it does not join the ISR in Kafka."""


CASES = (
    # The leader has offset 0 on its disk (case 1).
    Case("at-hand", {}, 0, 0, 0),
    # It is in the tier alone (case 2.2), or gone (case 2.1); 150 is the first untiered offset.
    Case("moved", {"local.retention.bytes": str(2 * SEGMENT_BYTES)}, 0, 0, 150),
    Case("pruned", {}, 70, 70, 150),
    # Nothing was ever copied below its beginning.
    Case(
        "not-copied",
        {"remote.log.copy.disable": "true"},
        20,
        20,
        20,
        beyond="Kafka looks for the copy before it, and goes on looking",
    ),
)


def topic(case: Case) -> Topic:
    return Topic(case.name, (LEADER,), {**TIERED, **case.configs})


class Player:
    """A side. `now_ms` is the same for both."""

    def __init__(self, side: Side, now_ms: int) -> None:
        self.side = side
        self._now_ms = now_ms

    def fill(self) -> None:
        """Fill the topics in three leader epochs."""
        self.side.create([topic(case) for case in CASES])
        until(f"{self.side.name} has made them", self.side.all_as_expected, every_s=0.1)
        for first, batches in ((0, 6), (60, 8), (140, 3)):
            if first:
                self.side.stop(LEADER)
                self.side.start(LEADER)
                until(f"{self.side.name} leads again", self.side.all_as_expected, 60, every_s=0.1)
            for case in CASES:
                tier_sides.fill(self.side, case.name, first, batches, self._now_ms)
        for case in CASES:
            if case.deleted_to:
                tier_sides.delete_records(self.side, case.name, case.deleted_to)
        until(f"{self.side.name} has copied", self._is_copied, 60, every_s=0.2)

    def _is_copied(self) -> bool:
        found = tier_sides.offsets(self.side, [case.name for case in CASES])
        return all(
            found[case.name].earliest == case.log_start
            and (case.beyond or found[case.name].tiered == 149)
            and (case.name != "moved" or found[case.name].local > 0)
            for case in CASES
        )

    def folder(self, broker: int, case: Case) -> Path:
        return self.side.cluster.nodes[broker].data / f"{case.name}-0"

    def epochs(self, broker: int, case: Case) -> list[tuple[int, int]]:
        path = self.folder(broker, case) / LEADER_EPOCH_CHECKPOINT
        return [tuple(one) for one in decode_epochs(path.read_bytes())]

    def give(self) -> dict[str, tuple[int, int]]:
        """Return log start and first copied offset of the new replicas that are in sync."""
        before = {case.name: self.epochs(LEADER, case) for case in CASES}
        for case in CASES:
            self.side.move(case.name, (LEADER, NEW))
        joining = {case.name for case in CASES if not (case.beyond and self.side.theirs)}

        def joined() -> set[str]:
            states = self.side.states()
            return {case.name for case in CASES if NEW in states[case.name].isr}

        until(f"{self.side.name} is in sync", lambda: joined() >= joining, 60, every_s=0.1)
        if self.side.theirs:
            time.sleep(GIVEN_UP_S)
        assert joined() == joining
        for name in joining:
            self.side.move(name, (NEW, LEADER))
        until(f"{self.side.name} has moved them", lambda: self._moved(joining), 60, every_s=0.1)
        for name in joining:
            self.side.move(name, (NEW,))
        until(f"{self.side.name} leads there", lambda: self._led_by_new(joining), 60, every_s=0.1)
        told = tier_sides.offsets(self.side, sorted(joining))
        found = {}
        for case in CASES:
            if case.name in joining:
                log_start = told[case.name].earliest
                first = min(int(path.stem) for path in self.folder(NEW, case).glob("*.log"))
                found[case.name] = (log_start, first)
                own = self.epochs(NEW, case)[: len(before[case.name])]
                assert own == before[case.name], f"{self.side.name}: {case.name}"
        return found

    def _moved(self, names: set[str]) -> bool:
        states = self.side.states()
        return all(states[name].isr == (LEADER, NEW) for name in names)

    def _led_by_new(self, names: set[str]) -> bool:
        states = self.side.states()
        return all(states[name].leader == NEW for name in names)


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    """Start Kafka's side and ours."""
    kafka, own = tmp_path / "kafka", tmp_path / "ours"
    for folder in (kafka, own):
        folder.mkdir()
    with (
        running(
            "kafka",
            kafka,
            kafka=True,
            brokers=2,
            settings={**tier_sides.settings(kafka), **SWITCHED_ON},
            of_kafka=tiered_store(kafka / "store"),
        ) as theirs,
        running(
            "ours",
            own,
            kafka=False,
            brokers=2,
            settings={**tier_sides.settings(own), **SWITCHED_ON},
        ) as ours,
    ):
        yield theirs, ours


def test_empty_replica_starts_at_same_offset_as_kafkas(sides: tuple[Side, Side]) -> None:
    now_ms = time.time_ns() // 1_000_000
    players = [Player(side, now_ms) for side in sides]
    with ThreadPoolExecutor(2) as both:
        list(both.map(Player.fill, players))
        kafka, ours = both.map(Player.give, players)
    expected = {case.name: (case.log_start, case.copied_from) for case in CASES}
    assert ours == expected
    assert kafka == {case.name: expected[case.name] for case in CASES if not case.beyond}
