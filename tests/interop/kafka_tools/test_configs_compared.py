"""`kafka-configs --describe --all` on Apache Kafka and on a node of ours, compared key by key.

Both have the same server.properties and get the same changes. Every key's value, source, synonyms,
type, read-only and sensitive flags are compared, as is the output of kafka-configs. docs/tools.md
lists each difference with its reason, and no others.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from protocol.transport.client import Connection
from testkit.kafka.tool_table import Row, check_rows
from testkit.kafka.tools import KafkaTools
from testkit.kafka.twins import COMMON_FEATURES, NODE_ID, KraftboxServer, NodeDirectory, kafka_at
from testkit.processes.waiting import until

pytestmark = pytest.mark.interop

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
LATEST = 4

SETTINGS = {
    "broker.rack": "r1",
    "log.retention.hours": "50",
    "log.retention.bytes": "123456789",
    "log.roll.hours": "99",
    "log.segment.bytes": "2097152",
    "log.cleanup.policy": "compact,delete",
    "log.message.timestamp.type": "LogAppendTime",
    "log.cleaner.delete.retention.ms": "7200000",
    "min.insync.replicas": "1",
    "group.consumer.session.timeout.ms": "46000",
    "message.max.bytes": "2000000",
    "ssl.keystore.password": "hidden",
    "listener.name.other.max.connections": "900",
    "some.unknown.key": "x",
}
CHANGES = (
    ("topics", "described", "retention.ms=3600000,cleanup.policy=[delete],max.message.bytes=3000"),
    ("brokers", None, "num.io.threads=9,log.retention.ms=7000000,max.connections=5000"),
    ("brokers", str(NODE_ID), "num.io.threads=10,log.cleaner.threads=2"),
    ("brokers", str(NODE_ID), "log.cleaner.dedupe.buffer.size=140000000"),
    ("brokers", str(NODE_ID), "listener.name.other.max.connections=700"),
    ("client-metrics", "cm", "interval.ms=70000,metrics=[org.apache.kafka.]"),
    ("groups", "g", "consumer.session.timeout.ms=50000"),
)
"""Thread counts may at most double, and a node learns of the change before a little later.

Each of these is allowed whether it has arrived or not.
"""
ADDED = re.compile(r"([\w.-]+)=(\[.*?\]|[^,]*)")
TOOL = "org.apache.kafka.tools.ConfigCommand"

RESOURCES = {
    "topic": (TOPIC, "described"),
    "broker": (BROKER, str(NODE_ID)),
    "brokers": (BROKER, ""),
    "group": (GROUP, "g"),
    "unset group": (GROUP, "other"),
    "client metrics": (CLIENT_METRICS, "cm"),
    "unset client metrics": (CLIENT_METRICS, "other"),
}

REASONS = {
    "log.retention.hours": "a dynamic `log.retention.ms` makes Kafka forget the static values of "
    "its synonyms, and show a default that its own list of synonyms puts last",
}
"""The reason of every difference. Keys that begin with `kraftbox.` need none."""


class Shown(NamedTuple):
    """A node's whole description of one key, without the node's name."""

    value: str | None
    source: int
    synonyms: tuple[tuple[str, str | None, int], ...]
    type: int
    read_only: bool
    sensitive: bool


Described = dict[tuple[str, str], Shown]


class Twins(NamedTuple):
    kafka: NodeDirectory
    ours: NodeDirectory


@pytest.fixture(scope="module")
def twins(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    """Start Apache Kafka and ours, with a topic and the same changes on both."""
    folder = tmp_path_factory.mktemp("twins")
    places = Twins(
        NodeDirectory(folder / "kafka", SETTINGS), NodeDirectory(folder / "ours", SETTINGS)
    )
    for place in places:
        place.format(tools, *COMMON_FEATURES)
    kafka, ours = kafka_at(places.kafka), KraftboxServer(places.ours)
    try:
        kafka.start()
        ours.start()
        for place in places:
            _change(tools, place)
        yield places
    finally:
        kafka.stop()
        ours.stop()


def _change(tools: KafkaTools, place: NodeDirectory) -> None:
    at = ("--bootstrap-server", place.bootstrap)
    create = ("--create", "--topic", "described")
    done = tools.run("org.apache.kafka.tools.TopicCommand", *at, *create)
    assert done.code == 0, done.text
    for kind, name, changes in CHANGES:
        whom = ("--entity-type", kind, *entity(name))
        done = tools.run(TOOL, *at, "--alter", *whom, "--add-config", changes)
        assert done.code == 0, done.text
    until("all changes are shown", lambda: _expected() <= _values(place))


def _values(place: NodeDirectory) -> set[tuple[str, str, str | None]]:
    """Yield resource, key and value of everything described."""
    described, _ = describe(place, place.bootstrap)
    return {(label, name, shown.value) for (label, name), shown in described.items()}


def _expected() -> set[tuple[str, str, str | None]]:
    labels = {(kind, name): label for label, (kind, name) in RESOURCES.items()}
    kinds = {"topics": TOPIC, "brokers": BROKER, "groups": GROUP, "client-metrics": CLIENT_METRICS}
    return {
        (labels[kinds[kind], name or ""], key, value.strip("[]"))
        for kind, name, changes in CHANGES
        for key, value in ADDED.findall(changes)
    }


def entity(name: str | None) -> tuple[str, ...]:
    return ("--entity-default",) if name is None else ("--entity-name", name)


def describe(place: NodeDirectory, address: str) -> tuple[Described, list[str]]:
    """Describe every key of every resource. Returns: the keys, and those without documentation."""
    response = asyncio.run(_ask(address))
    described: Described = {}
    undocumented = []
    for (label, _), result in zip(RESOURCES.items(), response.results, strict=True):
        assert result.error_code == 0, (label, result.error_message)
        for entry in result.configs:
            described[label, entry.name] = _shown(place, entry)
            if not entry.documentation:
                undocumented.append(entry.name)
    return described, undocumented


async def _ask(address: str) -> DescribeConfigsResponse:
    host, _, port = address.rpartition(":")
    connection = await Connection.connect(host, int(port), "configs", 10_000)
    try:
        return await connection.request(
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsRequest.DescribeConfigsResource(
                        resource_type=kind, resource_name=name, configuration_keys=None
                    )
                    for kind, name in RESOURCES.values()
                ],
                include_synonyms=True,
                include_documentation=True,
            ),
            10_000,
            version=LATEST,
        )
    finally:
        await connection.close()


def _shown(
    place: NodeDirectory, entry: DescribeConfigsResponse.DescribeConfigsResourceResult
) -> Shown:
    return Shown(
        place.anonymous(entry.value),
        entry.config_source,
        tuple((s.name, place.anonymous(s.value), s.source) for s in entry.synonyms),
        entry.config_type,
        entry.read_only,
        entry.is_sensitive,
    )


def differences(kafka: Described, ours: Described, by: str = "") -> list[Row]:
    """Return a row for every key with different descriptions, or with one of the two only."""
    found: list[Row] = []
    for label, name in sorted({*kafka, *ours}):
        theirs, mine = kafka.get((label, name)), ours.get((label, name))
        if theirs != mine and not name.startswith("kraftbox."):
            cells = (_cell(theirs, mine), _cell(mine, theirs))
            found.append((label + by, f"`{name}`", *cells, REASONS[name]))
    return found


def _cell(shown: Shown | None, other: Shown | None) -> str:
    if shown is None:
        return "not shown"
    if other is None:
        return f"`{shown.value}`"
    parts = [
        f"{field.replace('_', '-')} `{mine}`"
        for field, mine, theirs in zip(Shown._fields, shown, other, strict=True)
        if mine != theirs
    ]
    return "; ".join(parts)


def test_every_key_is_shown_as_kafka_shows_it(twins: Twins) -> None:
    kafka, undocumented = describe(twins.kafka, twins.kafka.bootstrap)
    ours, ours_undocumented = describe(twins.ours, twins.ours.bootstrap)
    assert len(kafka) > 250
    assert set(ours_undocumented) <= set(undocumented)
    found = differences(kafka, ours)
    kafka, undocumented = describe(twins.kafka, twins.kafka.controller)
    ours, ours_undocumented = describe(twins.ours, twins.ours.controller)
    assert len(kafka) > 250
    assert set(ours_undocumented) <= set(undocumented)
    check_rows("configs", [*found, *differences(kafka, ours, ", by a controller")])


def test_kafka_configs_prints_the_same(twins: Twins, tools: KafkaTools) -> None:
    different = set()
    for kind, name in (
        ("topics", "described"),
        ("brokers", str(NODE_ID)),
        ("brokers", None),
        ("groups", "g"),
        ("client-metrics", "cm"),
    ):
        for options in ((), ("--all",)):
            if name is None and options:
                continue
            whom = ("--entity-type", kind, *entity(name), *options)
            kafka, ours = (_printed(tools, place, whom) for place in twins)
            assert kafka
            for key in {*kafka, *ours}:
                if kafka.get(key) != ours.get(key) and not key.startswith("kraftbox."):
                    different.add(key)
    assert different == REASONS.keys()


def _printed(tools: KafkaTools, place: NodeDirectory, whom: tuple[str, ...]) -> dict[str, str]:
    """Return the text behind each key, and all other text under the empty key."""
    done = tools.run(TOOL, "--bootstrap-server", place.bootstrap, "--describe", *whom)
    assert done.code == 0, done.text
    text = place.anonymous(done.out) or ""
    lines = (line.strip().partition("=") for line in text.splitlines())
    return {key if equals else "": rest or key for key, equals, rest in lines}
