"""Stories of tiered storage on Apache Kafka 4.4 and on us, with equal offsets after each step.

`tier_stories.txt` has the stories. Both clusters take each step at the same time. Transactions,
which our brokers do not accept, are tested with a log that Kafka wrote: our tier returns the same
as Kafka's.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from client.admin import Admin
from client.elections import ElectionType
from protocol.ids import uuid_to_text
from storage.tiered.records import METADATA_TOPIC
from testkit.kafka.jars import kafka_libs, tiered_store
from testkit.kafka.tools import KafkaTools
from testkit.processes.waiting import until
from tests.interop import tier_formats, tier_sides, tier_transactions
from tests.interop.election_sides import Side, Topic, running
from tests.interop.tier_sides import RECORDS, SEGMENT_BYTES, Offsets

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(
        kafka_libs() is None,
        reason="no Java or Maven to get Kafka's jars with (docs/gaps.md)",
    ),
]

STORIES = Path(__file__).with_name("tier_stories.txt")
HOUR_MS = 3_600_000
UNITS = {"S": SEGMENT_BYTES, "D": 24 * HOUR_MS, "H": HOUR_MS}
AGE_DAYS = 3
BROKERS = 2
STEP_S = 30.0


class Step:
    """Commands, and the expected offsets of the topics on each side afterwards."""

    def __init__(self, name: str, before: Step | None) -> None:
        self.name = name
        self.commands: list[list[str]] = []
        self.kafkas: dict[str, Offsets] = {} if before is None else dict(before.kafkas)
        self.ours: dict[str, Offsets] = {} if before is None else dict(before.ours)
        self.beyond: dict[str, str] = {}
        """Why the sides differ, by topic; they must."""

    def expect(self, line: str) -> None:
        words = line.removeprefix("beyond ").partition(": ")
        name, *numbers = words[0].split()
        expected = Offsets(*map(int, numbers))
        self.ours[name] = expected
        if words[1]:
            assert expected != self.kafkas[name], f"{self.name}: {line}"
            self.beyond[name] = words[2]
        else:
            self.kafkas[name] = expected


class Story(NamedTuple):
    topics: dict[str, Topic]
    steps: list[Step]


def value(text: str) -> str:
    return str(int(text[:-1]) * UNITS[text[-1]]) if text[-1] in UNITS else text


def configs(text: str) -> dict[str, str]:
    return {key: value(given) for key, _, given in (one.partition("=") for one in text.split(","))}


def read_story() -> Story:
    topics: dict[str, Topic] = {}
    steps: list[Step] = []
    common = {
        "remote.storage.enable": "true",
        "retention.ms": "-1",
        "internal.segment.bytes": str(SEGMENT_BYTES),
    }
    for line in STORIES.read_text().splitlines():
        words = line.split()
        if not line or line.startswith("#"):
            continue
        if words[0] == "topic":
            _, name, replicas, *given = words
            own = configs(given[0]) if given else {}
            topics[name] = Topic(name, tuple(map(int, replicas.split(","))), {**common, **own})
        elif words[0] == "step:":
            steps.append(Step(line.removeprefix("step: "), steps[-1] if steps else None))
        elif line.startswith(" "):
            steps[-1].expect(line.strip())
        else:
            steps[-1].commands.append(words)
    return Story(topics, steps)


class Player:
    """A side on which the story is played. `now_ms` is the same for both."""

    def __init__(self, side: Side, topics: Mapping[str, Topic], now_ms: int) -> None:
        self.side = side
        self.topics = topics
        self.now_ms = now_ms
        self.ends = dict.fromkeys(topics, 0)

    def create(self, *names: str) -> None:
        self.side.create([self.topics[name] for name in names])
        until(f"{self.side.name} has made them", self.side.all_as_expected, every_s=0.1)
        self.ends.update(dict.fromkeys(names, 0))

    def play(self, step: Step) -> dict[str, Offsets]:
        """Take a step and return the offsets once they are as expected, or after the time limit."""
        for verb, *given in step.commands:
            getattr(self, f"do_{verb}")(*given)
        expected = step.ours if not self.side.theirs else step.kafkas
        deadline = time.monotonic() + STEP_S
        while True:
            found = self.look()
            if found == expected or time.monotonic() > deadline:
                return found
            time.sleep(0.05)

    def look(self) -> dict[str, Offsets]:
        return as_kafka(tier_sides.offsets(self.side, list(self.topics)))

    def do_fill(self, topic: str, batches: str, days: str = str(AGE_DAYS)) -> None:
        written_ms = self.now_ms - int(days) * UNITS["D"]
        tier_sides.fill(self.side, topic, self.ends[topic], int(batches), written_ms)
        self.ends[topic] += int(batches) * RECORDS

    def do_set(self, topic: str, given: str) -> None:
        tier_sides.configure(self.side, topic, configs(given))

    def do_prune(self, topic: str, offset: str) -> None:
        tier_sides.delete_records(self.side, topic, int(offset))

    def do_stop(self, broker: str) -> None:
        self.side.stop(int(broker))

    def do_kill(self, broker: str) -> None:
        self.side.kill(int(broker))

    def do_start(self, broker: str) -> None:
        self.side.start(int(broker))
        until(f"{self.side.name} is in sync", self.side.all_as_expected, every_s=0.1)

    def do_elect(self, topic: str) -> None:
        self.side.elect(ElectionType.PREFERRED, topic)

    def do_drop(self, topic: str) -> None:
        self.side.ask(lambda c: Admin(c).delete_topic(topic))

    def do_create(self, topic: str) -> None:
        self.create(topic)

    def do_formats(self) -> None:
        """Do nothing: `check_formats` handles both sides at once."""


def as_kafka(found: Mapping[str, Offsets]) -> dict[str, Offsets]:
    """Return our offsets with the one general difference removed: see tier_stories.txt."""
    return {
        name: one._replace(pending=-1) if one.pending == one.latest else one
        for name, one in found.items()
    }


def check_formats(side: Side, tools: KafkaTools) -> None:
    """Check that Kafka's tools and our code read the same records in this side's metadata topic."""
    written = side.ask(tier_formats.records)
    assert written
    assert tier_formats.same(tier_formats.consumed(tools, side.bootstrap, len(written)), written)
    for broker in sorted(side.live):
        folders = side.cluster.nodes[broker].data.glob(f"{METADATA_TOPIC}-*")
        files = [file for folder in folders for file in folder.glob("*.log")]
        told = tier_formats.dumped(tools, [file for file in files if file.stat().st_size])
        assert tier_formats.same(told, written), "each broker has all partitions"
    listed = side.ask(tier_formats.segments)
    command = [sys.executable, "-m", "kraftbox", "tier", "list", "-b", side.bootstrap, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    shown = json.loads(done.stdout)
    assert [one["segment"] for one in shown["segments"]] == [
        uuid_to_text(one.segment_id) for one in listed
    ]


def held(side: Side, topics: Mapping[str, Topic]) -> list[tuple[object, ...]]:
    """Return the topics' remote segments without random parts."""
    return sorted(
        (
            *(one.partition.topic, one.start_offset, one.end_offset, one.state.name),
            *(one.size_bytes, one.max_timestamp_ms, one.txn_index_empty),
            *(entry.start_offset for entry in one.epochs),
        )
        for one in side.ask(tier_formats.segments)
        if one.partition.topic in topics
    )


def same_segments(sides: Sequence[Side], story: Story) -> None:
    """Wait for equal remote segments: offsets change before an expired segment is deleted."""
    until(
        "both have the same remote segments",
        lambda: held(sides[0], story.topics) == held(sides[1], story.topics),
        STEP_S,
        every_s=0.2,
    )


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Start Kafka's side and ours."""
    kafka, own = (tmp_path_factory.mktemp(name) for name in ("kafka", "ours"))
    with (
        running(
            "kafka",
            kafka,
            kafka=True,
            brokers=BROKERS,
            settings=tier_sides.settings(kafka),
            of_kafka=tiered_store(kafka / "store"),
        ) as theirs,
        running(
            "ours", own, kafka=False, brokers=BROKERS, settings=tier_sides.settings(own)
        ) as ours,
    ):
        yield theirs, ours


def apart(step: Step, found: Sequence[Mapping[str, Offsets]]) -> str:
    """Return a description of the offsets that differ from the expected ones."""
    lines = [
        f"{name}: {what} has {' '.join(map(str, said[name]))}, not {' '.join(map(str, one))}"
        for what, said, expected in zip(
            ("Kafka", "ours"), found, (step.kafkas, step.ours), strict=True
        )
        for name, one in expected.items()
        if said[name] != one
    ]
    return "\n".join([step.name, *lines])


@pytest.mark.rest
def test_aborted_transactions_of_a_log_that_kafka_wrote(
    sides: tuple[Side, Side], tmp_path: Path
) -> None:
    """They lie across segments, and so do the markers that end them."""
    kafka, _ = sides
    name, tiered = "transactions", {"remote.storage.enable": "true", "retention.ms": "-1"}
    small = {"internal.segment.bytes": "4000", "index.interval.bytes": "1"}
    kafka.create([Topic(name, (2, 3), {**tiered, **small})])
    until("it is led", kafka.all_as_expected, every_s=0.1)
    steps = tier_transactions.interleaved(random.Random(7), transactions=20, producers=4)
    tier_transactions.write(kafka.bootstrap, name, steps, tmp_path)
    end = tier_sides.offsets(kafka, [name])[name].latest
    on_disk = kafka.ask(lambda c: tier_transactions.kafkas(c, name, [*range(0, end, 10)]))
    starts = tier_transactions.batch_offsets(on_disk)
    on_disk = kafka.ask(lambda c: tier_transactions.kafkas(c, name, starts))
    folder = tmp_path / "copy" / f"{name}-0"
    shutil.copytree(kafka.cluster.nodes[2].data / folder.name, folder)
    bases = sorted(int(file.stem) for file in folder.glob("*.log"))
    assert len(bases) >= 5
    assert tier_transactions.lifespan(on_disk, bases) >= 3
    found = asyncio.run(tier_transactions.ours(folder, starts))
    assert [*found] == [start for start in starts if start < bases[-1]]
    assert found == {start: on_disk[start] for start in found}
    tier_sides.configure(kafka, name, {"local.retention.bytes": "1"})
    until(
        "Kafka has it in its tier alone",
        lambda: tier_sides.offsets(kafka, [name])[name].local == bases[-1],
    )
    remote = kafka.ask(lambda c: tier_transactions.kafkas(c, name, [*found]))
    assert {at: read.in_order for at, read in remote.items()} == {
        at: read.in_order for at, read in found.items()
    }


def row(step: Step, name: str) -> str:
    said = " ".join(f"{number:4}" for number in step.kafkas[name])
    if step.kafkas[name] == step.ours[name]:
        return f"    {name:8} {said}"
    own = " ".join(f"{number:4}" for number in step.ours[name])
    return f"    {name:8} {said}   ours {own}  {step.beyond.get(name, '')}"


@pytest.mark.rest
def test_stories(sides: tuple[Side, Side], tools: KafkaTools) -> None:
    story = read_story()
    now_ms = time.time_ns() // 1_000_000
    players = [Player(side, story.topics, now_ms) for side in sides]
    before: Step | None = None
    with ThreadPoolExecutor(2) as both:
        list(both.map(lambda player: player.create(*story.topics), players))
        for step in story.steps:
            begun = time.monotonic()
            found = list(both.map(lambda player: player.play(step), players))  # noqa: B023
            assert found == [step.kafkas, step.ours], apart(step, found)
            said = [as_kafka(tier_sides.told(side, tools, list(story.topics))) for side in sides]
            assert said == found, apart(step, said)
            if ["formats"] in step.commands:
                for side in sides:
                    check_formats(side, tools)
                same_segments(sides, story)
            print(f"{step.name}  ({time.monotonic() - begun:.1f} s)")
            for name in story.topics:
                if before is None or (step.kafkas[name], step.ours[name]) != (
                    before.kafkas[name],
                    before.ours[name],
                ):
                    print(row(step, name))
            before = step
    same_segments(sides, story)
