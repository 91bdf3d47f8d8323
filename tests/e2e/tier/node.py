"""A node with a tier: its settings, the files on its disk, and the output of `kraftbox tier`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from client.cluster_client import ClusterClient
from protocol.ids import uuid_to_text
from storage.objects import ObjectInfo, StoreSettings, open_objects
from storage.objects.port import listed
from testkit.processes.nodes import KraftboxNode
from testkit.processes.object_servers import ServerMissing, Servers
from testkit.processes.waiting import until
from tests.e2e.numbers import TIMEOUT_S

TASK_MS = 200
"""Milliseconds between two passes of a task over a partition."""
TOPIC = "tiered"


def store_of(servers: Servers, name: str) -> dict[str, str]:
    """Return `rsm.config.*` of a separate part of a server; without a server the test is
    skipped."""
    pytest.importorskip("obstore", reason="obstore is not here (docs/gaps.md)")
    try:
        return servers.options(name)
    except ServerMissing as missing:
        pytest.skip(f"{missing} (docs/gaps.md)")


def tier_settings(store: Mapping[str, str], **metadata: int) -> dict[str, str]:
    """Return settings of a node that keeps segments in a store (its `rsm.config.*`).

    `metadata`: replicas and min_isr of `__remote_log_metadata`, if there is more than one broker.
    """
    topic = "rlmm.config.remote.log.metadata.topic"
    return {
        "remote.log.storage.system.enable": "true",
        **{f"rsm.config.{name}": value for name, value in store.items()},
        f"{topic}.num.partitions": "3",
        f"{topic}.replication.factor": str(metadata.get("replicas", 1)),
        f"{topic}.min.isr": str(metadata.get("min_isr", 1)),
        "remote.log.manager.task.interval.ms": str(TASK_MS),
        "remote.log.manager.task.retry.backoff.ms": "100",
        "remote.log.manager.task.retry.backoff.max.ms": "400",
        "log.retention.check.interval.ms": "200",
        "log.segment.delete.delay.ms": "0",
    }


def segments(node: KraftboxNode, topic: str = TOPIC) -> list[int]:
    """Return base offsets of the segments on the disk."""
    folder = node.directory / "data" / f"{topic}-0"
    return sorted(int(path.stem) for path in folder.glob("*.log"))


def files_in(bucket: Path) -> list[str]:
    """Return names of the files in a store of files."""
    return [path.name for path in bucket.rglob("*") if path.is_file()]


def objects_in(store: Mapping[str, str]) -> list[ObjectInfo]:
    """List the objects on the server of these `rsm.config.*`, without the broker."""

    async def ask() -> list[ObjectInfo]:
        opened = open_objects(StoreSettings.of(store))
        try:
            return await listed(opened, "")
        finally:
            await opened.close()

    return asyncio.run(ask())


def topic_id(node: KraftboxNode, topic: str = TOPIC) -> str:
    """Return the topic's id as text."""

    async def ask() -> str:
        async with await ClusterClient.connect(node.bootstrap) as client:
            return uuid_to_text((await client.topic(topic)).topic_id)

    return asyncio.run(ask())


def send(node: KraftboxNode, first: int, count: int, form: bytes = b"%d") -> None:
    """Send records whose values are numbers, by a producer of their own."""
    producer = Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "batch.num.messages": 100,
            "enable.idempotence": True,
        }
    )
    for number in range(first, first + count):
        producer.produce(TOPIC, form % number)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


def delete_topic(node: KraftboxNode, topic: str = TOPIC) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)


def tier(node: KraftboxNode, *arguments: str) -> tuple[int, Any]:
    """Return exit code and output of `kraftbox tier` about a local cluster."""
    return tier_of(("--dir", str(node.directory)), *arguments)


def tier_of(place: Sequence[str], *arguments: str) -> tuple[int, Any]:
    """Return exit code and output of `kraftbox tier` about the cluster that these options name."""
    command = [sys.executable, "-m", "kraftbox", "tier", *arguments, "--json", *place]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def is_clean(verified: tuple[int, Any]) -> bool:
    """Return whether the store has exactly the objects of finished segments.

    Refused records are no fault: two leaders may both write that a segment is deleted.
    """
    code, told = verified
    return (code, told["findings"]) == (0, [])


def until_clean(place: Sequence[str]) -> None:
    """Wait for a store that `is_clean`, or fail with the last findings."""
    last: list[Any] = []

    def look() -> bool:
        last[:] = tier_of(place, "verify")
        return is_clean((last[0], last[1]))

    try:
        until("a clean store", look)
    except AssertionError as error:
        raise AssertionError(f"{error}: {last}") from None
