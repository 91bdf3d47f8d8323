"""`_testing`: the process that speaks Kafka's protocol for a test's process.

Questions come as frames on standard input, each is answered with one on standard output: a
`value`, or an `error`. It ends with its input.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from client.admin import Admin
from kraftbox.cli.connect import run
from kraftbox.cli.output import CommandFailed
from kraftbox.launcher import frames

Question = Mapping[str, Any]


def create_topic(question: Question) -> None:
    run(
        question["bootstrap"],
        lambda client: Admin(client).create_topic(
            question["name"],
            question["partitions"],
            question["replication_factor"],
            question["configs"],
        ),
    )


def delete_topic(question: Question) -> None:
    run(question["bootstrap"], lambda client: Admin(client).delete_topic(question["name"]))


def topics(question: Question) -> dict[str, list[dict[str, Any]]]:
    """Partitions by topic, without internal ones."""
    reply = run(question["bootstrap"], lambda client: client.metadata())
    return {
        topic.name or "": [
            {
                "index": partition.partition_index,
                "leader": partition.leader_id,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replica_nodes),
                "isr": list(partition.isr_nodes),
            }
            for partition in sorted(topic.partitions, key=lambda p: p.partition_index)
        ]
        for topic in reply.topics
        if question["internal"] or not topic.is_internal
    }


def status(question: Question) -> dict[str, Any]:
    """What `kraftbox status --json` shows."""
    from kraftbox.cli.cluster_view import snapshot
    from kraftbox.launcher.place import ClusterPlace

    return snapshot(ClusterPlace(Path(question["dir"])), STATUS_MS)


STATUS_MS = 1_000.0
"""Tests rather wait for a slow machine than ask again."""

ANSWERS: dict[str, Callable[[Question], Any]] = {
    "create_topic": create_topic,
    "delete_topic": delete_topic,
    "topics": topics,
    "status": status,
}


def answer(question: Question) -> dict[str, Any]:
    try:
        return {"value": ANSWERS[question["do"]](question)}
    except CommandFailed as error:
        return {"error": str(error)}


def main() -> int:
    decoder = frames.Decoder()
    while data := os.read(0, 1 << 16):
        for question in decoder.feed(data):
            sys.stdout.buffer.write(frames.encode(answer(question)))
            sys.stdout.buffer.flush()
    return 0
