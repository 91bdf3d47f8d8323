"""Elections among replicas with unequal local logs (KIP-1303): `local_logs.txt`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from controller.configs.topic_settings import LOCAL_LOG_BYTES, LOCAL_LOG_MS
from controller.elections.context import ElectionContext
from controller.elections.on_request import decide_elect_leaders
from controller.elections.passed_over import elections_by_local_logs, passed_over
from controller.elections.upkeep import decide_rebalance
from controller.writer.stats import word_of
from metalog.image import local_log
from metalog.image.snapshot import local_log_entries
from metalog.image.values import NO_LEADER, ConfigResourceType, ElectedAs, MetadataImage
from protocol.errors import ErrorCode
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.metadata import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from testkit.memory.controller import Cluster, directory
from testkit.records.metadata_logs import LogBuilder, audited

TABLE = Path(__file__).parent / "local_logs.txt"
TOPIC, TOPIC_ID = "orders", b"topic of a table"
UNITS_MS = {"ms": 1, "m": 60_000, "h": 3_600_000}
BYTES = 500
UNCHANGED = -2
BROKERS = (1, 2, 3)


class Row(NamedTuple):
    """A row of the file: `line` is its line number, the rest are its columns."""

    line: int
    thresholds: dict[str, str]
    logs: str
    state: dict[str, str]
    events: list[str]
    order: str
    result: str


def rows() -> Iterator[local_log.Row]:
    thresholds: dict[str, str] = {}
    for number, line in enumerate(TABLE.read_text().splitlines(), 1):
        if line.startswith("@"):
            thresholds = dict(part.split("=") for part in line[1:].split())
        elif line and not line.startswith("#"):
            logs, state, events, order, result = (part.strip() for part in line.split("|"))
            given = dict(part.split("=") for part in state.split())
            yield Row(number, thresholds, logs, given, events.split(", "), order, result)


def ids(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def age_ms(text: str) -> int:
    match = re.fullmatch(r"(-?\d+)([a-z]+)", text)
    assert match is not None, text
    return int(match[1]) * UNITS_MS[match[2]]


class World(Cluster):
    """A row's partition."""

    def __init__(self, row: Row) -> None:
        self.log = LogBuilder()
        super().__init__(elr=True, min_insync_replicas="2")
        self.start(*BROKERS)
        self.told: list[ErrorCode] = []
        self.changes: list[PartitionChangeRecord] = []
        self.passed_over = 0
        self._configure(row.thresholds)
        self._place(row)
        for broker_id in ids(row.state.get("fenced", "")):
            self.fence(broker_id)
        self._lead(row)

    def _configure(self, thresholds: dict[str, str]) -> None:
        keys = {"ms": LOCAL_LOG_MS, "bytes": LOCAL_LOG_BYTES}
        for name, value in thresholds.items():
            of_topic = name.startswith("topic-")
            kind = ConfigResourceType.TOPIC if of_topic else ConfigResourceType.BROKER
            record = ConfigRecord(
                resource_type=int(kind),
                resource_name=TOPIC if of_topic else "",
                name=keys[name.removeprefix("topic-")],
                value=value,
            )
            self.apply([record])

    def _place(self, row: Row) -> None:
        replicas = [int(part.partition("=")[0]) for part in row.logs.split()]
        topic = TopicRecord(name=TOPIC, topic_id=TOPIC_ID)
        # No broker leads while brokers are fenced: the effect of fencing is no part of the row.
        partition = PartitionRecord(
            partition_id=0,
            topic_id=TOPIC_ID,
            replicas=replicas,
            directories=[directory(r) for r in replicas],
            isr=[],
            leader=NO_LEADER,
        )
        self.apply([topic, partition])

    def _lead(self, row: Row) -> None:
        replicas = list(self.partition(TOPIC).replicas)
        change = PartitionChangeRecord(
            partition_id=0,
            topic_id=TOPIC_ID,
            isr=ids(row.state["isr"]) if "isr" in row.state else replicas,
            leader=int(row.state.get("leader", replicas[0])),
            eligible_leader_replicas=ids(row.state.get("elr", "")),
            last_known_elr=[],
            local_logs=local_log_entries(
                PartitionChangeRecord, local_log.LocalLogTable.of(self._table(row.logs))
            ),
        )
        self.apply([change])

    def _table(self, logs: str) -> Iterator[Row]:
        for log in sorted(logs.split()):
            broker, _, told = log.partition("=")
            age, _, size = told.partition("/")
            unknown = age == "?"
            start_ms = -1 if unknown else self.now_ms - age_ms(age)
            size_bytes = int(size) if size else -1 if unknown else BYTES
            epoch = self.image.cluster.brokers[int(broker)].epoch
            yield (int(broker), epoch), start_ms, size_bytes, self.now_ms

    def apply(self, records: Sequence[Any]) -> None:
        super().apply(records)
        self.log.now_ms = self.now_ms
        if records:
            self.log.add(*records, after_ms=0)
        if hasattr(self, "changes"):
            self.changes += [r for r in records if type(r) is PartitionChangeRecord]
            counted = elections_by_local_logs(self.image, records)
            self.passed_over += passed_over(self.view(), counted)

    def happen(self, event: str) -> None:
        what, _, about = event.partition(" ")
        if what == "wait":
            self.advance(age_ms(about))
            for broker in self.image.cluster.brokers.values():
                self.touch(broker.id)
        elif what == "rebalance":
            assert self.run(decide_rebalance) is None
        elif what == "fenced":
            self.fence(int(about))
        elif what == "heard":
            self.heartbeat(int(about))
        else:
            self.elect({"preferred": 0, "unclean": 1}[what])

    def elect(self, election: int) -> None:
        named = ElectLeadersRequest.TopicPartitions(topic=TOPIC, partitions=[0])
        request = ElectLeadersRequest(election_type=election, topic_partitions=[named])
        self.told += [o.error for o in self.run(lambda view: decide_elect_leaders(view, request))]

    @property
    def order(self) -> str:
        elections = ElectionContext(self.view())
        topic = self.image.topics.by_name[TOPIC]
        return " ".join(map(str, elections.candidates(topic, 0, self.partition(TOPIC))))

    @property
    def result(self) -> str:
        elected = [r for r in self.changes if r.leader not in (UNCHANGED, NO_LEADER)]
        if elected:
            kind = word_of(ElectedAs(elected[-1].election_kind))
            over = " over" if self.passed_over else ""
            return f"leader={elected[-1].leader} {kind}/{elected[-1].election_cause}{over}"
        refusals = [error.name for error in self.told if error is not ErrorCode.NONE]
        return " ".join(["nothing", *refusals])


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: f"line{row.line}")
def test_election_transcript_has_expected_leader(row: Row) -> None:
    world = World(row)
    before: MetadataImage = world.image
    replicas = world.partition(TOPIC).replicas
    world.changes, world.passed_over = [], 0
    for event in row.events:
        world.happen(event)
    assert (world.order, world.result) == (row.order, row.result)
    assert world.partition(TOPIC).replicas == replicas, "an election moves no replica"
    assert before.topics.by_name[TOPIC].partitions[0].replicas == replicas


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: f"line{row.line}")
def test_the_audit_sees_whom_an_election_passed_over(row: Row, tmp_path: Path) -> None:
    """The audit derives it from the log alone, by another method than the controller's counter."""
    world = World(row)
    world.passed_over, begin = 0, world.log.offset
    for event in row.events:
        world.happen(event)
    elections = audited(world.log.write(tmp_path))["elections"]
    over = [one for one in elections if one["offset"] >= begin and one["passed_over"]]
    assert len(over) == world.passed_over
    replicas = world.partition(TOPIC).replicas
    for one in over:
        ahead = replicas[: replicas.index(one["to_leader"])]
        assert set(one["passed_over"]) <= set(ahead)
