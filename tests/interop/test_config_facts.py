"""Our configuration tables and rules compared with those of Kafka's own classes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.config import ConfigError, NodeConfig
from runtime.config.schema import ConfigKey, Type
from runtime.config.tables import (
    BROKER_DYNAMIC_KEYS,
    GROUP_KEYS,
    NODE_KEYS,
    TOPIC_KEYS,
)
from testkit.kafka.jars import java_program, kafka_libs

pytestmark = pytest.mark.interop

TABLES = {"node": NODE_KEYS, "topic": TOPIC_KEYS, "group": GROUP_KEYS}
SOURCE = Path(__file__).parent / "java/ConfigFacts.java"

BROKER = (
    "node.id=1|process.roles=broker|controller.listener.names=CONTROLLER"
    "|controller.quorum.voters=2@localhost:9093|"
)
COMBINED = (
    "node.id=1|process.roles=broker,controller|controller.listener.names=CONTROLLER"
    "|controller.quorum.voters=1@localhost:9093|"
)
# docs/gaps.md lists settings that only one of both accepts; they are not here.
CASES = [
    "node.id=1",
    "node.id=1|process.roles=broker,controller",
    "node.id=1|process.roles=broker,controller|controller.listener.names=CONTROLLER",
    "node.id=1|process.roles=broker,controller|controller.listener.names=CONTROLLER|c"
    "ontroller.quorum.voters=1@localhost:9093",
    "COMBINED|listeners=PLAINTEXT://:9092,CONTROLLER://:9093",
    "node.id=1|process.roles=broker,controller|controller.listener.names=CONTROLLER|c"
    "ontroller.quorum.voters=2@localhost:9093|listeners=PLAINTEXT://:9092,CONTROLLER://:9093",
    "node.id=1|process.roles=broker,controller|controller.listener.names=CONTROLLER|c"
    "ontroller.quorum.bootstrap.servers=localhost:9093|listeners=PLAINTEXT://:9092,CONTROLLER://:9093",
    "node.id=1|process.roles=broker,controller|controller.listener.names=CONTROLLER|l"
    "isteners=PLAINTEXT://:9092,CONTROLLER://:9093",
    "BROKER|",
    "node.id=1|process.roles=broker|controller.listener.names=CONTROLLER|controller.q"
    "uorum.voters=1@localhost:9093",
    "BROKER|listeners=PLAINTEXT://:9092,CONTROLLER://:9093",
    "node.id=1|process.roles=controller|controller.listener.names=CONTROLLER|controll"
    "er.quorum.voters=1@localhost:9093|listeners=CONTROLLER://:9093",
    "node.id=1|process.roles=controller|controller.listener.names=CONTROLLER|controll"
    "er.quorum.voters=1@localhost:9093|listeners=CONTROLLER://:9093,PLAINTEXT://:9092",
    "node.id=1|process.roles=controller|controller.listener.names=CONTROLLER|controll"
    "er.quorum.voters=1@localhost:9093|listeners=CONTROLLER://:9093|advertised.listeners=CONTROLLER://h:9093",
    "node.id=1|process.roles=controller|controller.listener.names=CONTROLLER|controll"
    "er.quorum.voters=1@localhost:9093|listeners=CONTROLLER://:9093|advertised.listeners=PLAINTEXT://h:9092",
    "node.id=1|process.roles=controller|controller.listener.names=CONTROLLER|controll"
    "er.quorum.voters=1@localhost:9093",
    "COMBINED|listeners=PLAINTEXT://:9092,CONTROLLER://:9093|advertised.listeners=PLA"
    "INTEXT://h:9092",
    "COMBINED|listeners=PLAINTEXT://:9092,CONTROLLER://:9093|advertised.listeners=PLA"
    "INTEXT://h:9092,CONTROLLER://h:9093",
    "COMBINED|listeners=PLAINTEXT://:9092,CONTROLLER://:9093|advertised.listeners=PLA"
    "INTEXT://0.0.0.0:9092",
    "COMBINED|listeners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093",
    "COMBINED|listeners=PLAINTEXT://:9092,CONTROLLER://:9093|advertised.listeners=OTHER://h:9092",
    "COMBINED|listeners=PLAINTEXT://:9092,CONTROLLER://:9092",
    "COMBINED|listeners=PLAINTEXT://:0,CONTROLLER://:0",
    "COMBINED|listeners=PLAINTEXT://:9092,PLAINTEXT://:9094,CONTROLLER://:9093",
    "COMBINED|listeners=INTERNAL://:9092,CONTROLLER://:9093",
    "COMBINED|listeners=INTERNAL://:9092,CONTROLLER://:9093|listener.security.protoco"
    "l.map=INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "COMBINED|listeners=INTERNAL://:9092,CONTROLLER://:9093|listener.security.protoco"
    "l.map=INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT|inter.broker.listener.name=INTERNAL",
    "COMBINED|listeners=INTERNAL://:9092,CONTROLLER://:9093|listener.security.protoco"
    "l.map=INTERNAL:PLAINTEXT|inter.broker.listener.name=INTERNAL",
    "COMBINED|listeners=INTERNAL://:9092,CONTROLLER://:9093|listener.security.protoco"
    "l.map=INTERNAL:PLAINTEXT,CONTROLLER:FOO|inter.broker.listener.name=INTERNAL",
    "COMBINED|listeners=PLAINTEXT://:9092,CONTROLLER://:9093|inter.broker.listener.name=CONTROLLER",
    "COMBINED|listeners=PLAINTEXT://:9092,CONTROLLER://:9093|inter.broker.listener.na"
    "me=PLAINTEXT|security.inter.broker.protocol=PLAINTEXT",
    "COMBINED|listeners=CONTROLLER://:9093",
    "node.id=1|process.roles=broker,broker|controller.listener.names=CONTROLLER|contr"
    "oller.quorum.voters=2@localhost:9093",
    "BROKER|log.dirs=",
    "BROKER|log.dirs=/a,/a",
    "BROKER|log.retention.ms=0",
    "BROKER|log.retention.hours=0",
    "BROKER|log.retention.minutes=-5",
    "BROKER|replica.fetch.wait.max.ms=40000",
    "BROKER|replica.lag.time.max.ms=100",
    "BROKER|broker.heartbeat.interval.ms=10000",
    "BROKER|broker.heartbeat.interval.ms=5000",
    "BROKER|queued.max.request.bytes=5",
    "BROKER|queued.max.request.bytes=0",
    "BROKER|connection.failed.authentication.delay.ms=700000",
    "BROKER|log.roll.ms=0",
    "BROKER|log.cleaner.dedupe.buffer.size=1000",
    "BROKER|offsets.topic.compression.codec=9",
    "BROKER|group.min.session.timeout.ms=6000000",
    "BROKER|group.consumer.heartbeat.interval.ms=50000",
    "BROKER|group.consumer.max.session.timeout.ms=1000",
    "BROKER|group.coordinator.rebalance.protocols=consumer",
    "BROKER|log.flush.interval.ms=x",
    "BROKER|max.connections.per.ip=0",
    "BROKER|max.connections.per.ip=0|max.connections.per.ip.overrides=127.0.0.1:100",
    "BROKER|max.connections.per.ip.overrides=127.0.0.1#100",
    "BROKER|min.insync.replicas=0",
    "BROKER|broker.id=2",
    "node.id=1|process.roles=broker|controller.listener.names=CONTROLLER|controller.q"
    "uorum.voters=xx",
    "node.id=1|process.roles=broker|controller.listener.names=CONTROLLER|controller.q"
    "uorum.voters=2@localhost",
    "node.id=1|process.roles=broker|controller.listener.names=CONTROLLER|controller.q"
    "uorum.voters=2@0.0.0.0:0",
    "node.id=1|process.roles=broker|controller.listener.names=CONTROLLER|controller.q"
    "uorum.voters=2@h:99999",
    "node.id=1|process.roles=broker|controller.listener.names=CONTROLLER|controller.q"
    "uorum.bootstrap.servers=h",
    "node.id=1|process.roles=broker|controller.listener.names=CONTROLLER,OTHER|contro"
    "ller.quorum.bootstrap.servers=h:1",
    "node.id=1|process.roles=broker|controller.quorum.bootstrap.servers=h:1",
    "BROKER|unknown.key=1",
    "BROKER|listeners=PLAINTEXT:9092",
    "BROKER|listeners=plaintext://:9092",
    "BROKER|listeners=PLAINTEXT://[::1]:9092",
    "BROKER|listeners=PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092",
    "BROKER|advertised.listeners=PLAINTEXT://h:1,FOO://h:2",
    "BROKER|advertised.listeners=PLAINTEXT://h:0",
    "BROKER|log.segment.bytes=100",
    "BROKER|log.cleaner.enable=yes",
    "BROKER|early.start.listeners=FOO",
    "node.id=1|process.roles=broker|controller.listener.names=PLAINTEXT|controller.qu"
    "orum.voters=2@localhost:9093",
    "node.id=1|process.roles=broker,controller|controller.listener.names=CONTROLLER,P"
    "LAINTEXT|controller.quorum.voters=1@localhost:9093|listeners=PLAINTEXT://:9092,CONTROLLER://:9093",
    "BROKER|metadata.log.dir=/x",
    "BROKER|log.cleaner.min.compaction.lag.ms=5|log.cleaner.max.compaction.lag.ms=4",
    "BROKER|transaction.max.timeout.ms=0",
    "BROKER|compression.gzip.level=0",
    "BROKER|compression.type=none",
    "BROKER|socket.request.max.bytes=0",
    "BROKER|group.streams.rack.aware.assignment.tags=zone,rack",
    "BROKER|group.streams.rack.aware.assignment.tags=zone,zone",
    "BROKER|group.streams.num.warmup.replicas=21",
    "BROKER|group.streams.task.offset.interval.ms=14999",
    "BROKER|group.streams.num.standby.replicas=3",
    "BROKER|group.share.delivery.count.limit=11",
    "BROKER|group.share.partition.max.record.locks=4001",
    "BROKER|group.share.record.lock.duration.ms=14999",
    "BROKER|max.decompressed.message.bytes=0",
    "BROKER|max.decompressed.message.bytes=2147483640",
    "BROKER|log.local.retention.ms=5|log.remote.copy.lag.ms=6",
]

BEYOND_KAFKA = ("kraftbox.", "unclean.recovery.", "leader.election.eligible.")
"""Prefixes of keys that no release of Kafka has.

The second are proposed in KIP-966, the third in KIP-1303.
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    if kafka_libs() is None:
        pytest.skip("no Java or Maven to get Kafka's jars with (docs/gaps.md)")
    return java_program(SOURCE, tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module")
def facts(program: list[str]) -> list[list[str]]:
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


def of_kind(facts: list[list[str]], kind: str) -> Iterator[list[str]]:
    return (fact[1:] for fact in facts if fact[0] == kind)


def range_phrase(text: str, kind: Type) -> str:
    """Return our phrase for `[1,...]` and `[0,...,1]`."""
    match = re.fullmatch(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\]", text)
    assert match is not None, text
    number = float if kind is Type.DOUBLE else int
    what = "a number" if kind is Type.DOUBLE else "an integer"
    if match[2] is None:
        return f"{what} of at least {number(match[1])}"
    return f"{what} from {number(match[1])} to {number(match[2])}"


def described(key: ConfigKey[Any]) -> tuple[str, str, str, str]:
    default = "<required>" if key.required else key.format(key.default)
    return (
        key.type.name,
        "<null>" if default is None else default,
        key.importance.name,
        str(key.internal).lower(),
    )


def test_every_key_has_kafkas_type_default_importance_and_range(facts: list[list[str]]) -> None:
    wrong, seen = [], set()
    for table, name, *rest in of_kind(facts, "key"):
        seen.add((table, name))
        key = TABLES[table].get(name)
        if key is None or described(key) != tuple(rest[:4]):
            wrong.append((table, name, rest, key and described(key)))
        elif rest[4]:
            assert key.validator is not None, name
            assert key.validator.allowed == range_phrase(rest[4], key.type), name
    assert wrong == []
    ours = {
        (table, name)
        for table, keys in TABLES.items()
        for name in keys
        if not name.startswith(BEYOND_KAFKA)
    }
    assert ours == seen


def test_dynamic_update_modes(facts: list[list[str]]) -> None:
    ours = {
        (name, key.dynamic.value)
        for name, key in {**NODE_KEYS, **BROKER_DYNAMIC_KEYS}.items()
        if key.dynamic.value != "read-only" and not name.startswith(BEYOND_KAFKA)
    }
    assert ours == {(name, mode) for name, mode in of_kind(facts, "mode")}


def test_topic_synonyms_and_their_units(facts: list[list[str]]) -> None:
    for topic_key, synonyms in of_kind(facts, "synonym"):
        ours = ",".join(f"{key.name}*{factor}" for key, factor in TOPIC_KEYS[topic_key].synonyms)
        assert ours == synonyms, topic_key


def test_both_accept_and_refuse_the_same(program: list[str]) -> None:
    cases = [c.replace("BROKER|", BROKER).replace("COMBINED|", COMBINED) for c in CASES]
    done = subprocess.run(
        [*program, "cases"],
        input="\n".join(case.strip("|") for case in cases) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    verdicts = [line.split("\t") for line in done.stdout.splitlines() if line[:7] == "verdict"]
    assert len(verdicts) == len(cases)
    different = [(line, kafkas) for _, kafkas, line in verdicts if kafkas != ours(line)]
    assert different == []


def ours(line: str) -> str:
    properties = dict(pair.split("=", 1) for pair in line.split("|"))
    try:
        NodeConfig.parse(properties)
    except ConfigError:
        return "refused"
    return "accepted"
