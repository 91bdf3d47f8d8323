"""kafka-topics.sh: create, list, describe, alter and delete topics."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from client.admin import Admin, NewTopic, ResourceType
from client.cluster_client import ClusterClient
from kraftbox.cli.connect import run
from kraftbox.cli.output import CommandFailed, say, say_cells
from kraftbox.kafka_tools.options import (
    add_actions,
    add_bootstrap,
    bootstrap_of,
    chosen,
    pairs,
    parser,
)
from protocol.ids import uuid_to_text
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsResponse

Topic: TypeAlias = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
Partition: TypeAlias = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition

TIMEOUT_MS = 30_000
DEFAULT_SOURCE = 5


def main(name: str, arguments: Sequence[str]) -> int:
    options = _options(name, arguments)
    bootstrap = bootstrap_of(options)
    action = chosen(options, ACTIONS)
    if action in ("create", "alter", "delete") and not options.topic:
        raise CommandFailed(f"--{action} needs --topic")
    run(bootstrap, lambda client: ACTIONS[action](client, options))
    return 0


def _options(name: str, arguments: Sequence[str]) -> argparse.Namespace:
    options = parser(name, __doc__ or "")
    add_bootstrap(options)
    add_actions(options, ACTIONS)
    options.add_argument("--topic", help="topic name; a regular expression except with --create")
    options.add_argument("--topic-id", help="topic id, instead of --topic with --describe")
    options.add_argument("--partitions", type=int)
    options.add_argument("--replication-factor", type=int)
    options.add_argument(
        "--replica-assignment", metavar="1:2,2:3", help="broker ids of each partition"
    )
    options.add_argument("--config", action="append", metavar="NAME=VALUE")
    options.add_argument("--timeout", type=int, default=TIMEOUT_MS, help="milliseconds")
    for flag in (
        "if-not-exists",
        "if-exists",
        "exclude-internal",
        "under-replicated-partitions",
        "unavailable-partitions",
        "under-min-isr-partitions",
        "at-min-isr-partitions",
        "topics-with-overrides",
    ):
        options.add_argument(f"--{flag}", action="store_true")
    return options.parse_args(arguments)


def assignment(text: str) -> dict[int, list[int]]:
    """Parse `1:2,2:3` into broker IDs by partition. Raises CommandFailed."""
    try:
        return {at: [int(b) for b in one.split(":")] for at, one in enumerate(text.split(","))}
    except ValueError:
        raise CommandFailed(
            f"--replica-assignment: expected a list such as 1:2,2:3, got {text!r}"
        ) from None


async def _create(client: ClusterClient, options: argparse.Namespace) -> None:
    assigned = assignment(options.replica_assignment) if options.replica_assignment else {}
    topic = NewTopic(
        options.topic,
        options.partitions or -1,
        options.replication_factor or -1,
        pairs(options.config, "--config"),
        assigned,
    )
    if not await _admin(client, options).create_topics([topic], exist_ok=options.if_not_exists):
        return
    if "." in options.topic or "_" in options.topic:
        say(
            "WARNING: names with '.' and '_' may collide in metrics; it is best to use either, "
            "but not both."
        )
    say(f"Created topic {options.topic}.")


def _admin(client: ClusterClient, options: argparse.Namespace) -> Admin:
    return Admin(client, options.timeout)


async def topics_of(client: ClusterClient, options: argparse.Namespace) -> list[Topic]:
    """Return the topics of the options, all of them without --topic. Raises CommandFailed."""
    return _meant(await Admin(client).describe_topics(), options)


def _meant(found: Iterable[Topic], options: argparse.Namespace) -> list[Topic]:
    topics = [t for t in found if not (options.exclude_internal and t.is_internal)]
    if options.topic_id:
        topics = [t for t in topics if uuid_to_text(t.topic_id) == options.topic_id]
    elif options.topic:
        # Kafka's tool treats a comma-separated list as alternatives.
        pattern = re.compile(options.topic.strip().replace(",", "|").strip("\"'"))
        topics = [t for t in topics if pattern.fullmatch(t.name or "")]
    if not topics and (options.topic or options.topic_id) and not options.if_exists:
        raise CommandFailed(f"Topic '{options.topic or options.topic_id}' does not exist")
    return topics


async def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    options.if_exists = True
    for topic in await topics_of(client, options):
        say(topic.name or "")


async def _describe(client: ClusterClient, options: argparse.Namespace) -> None:
    topics = await topics_of(client, options)
    configs = await _configs(client, [topic.name or "" for topic in topics])
    partly = (
        options.under_replicated_partitions
        or options.unavailable_partitions
        or options.under_min_isr_partitions
        or options.at_min_isr_partitions
    )
    for topic in topics:
        own, least = configs[topic.name or ""]
        if options.topics_with_overrides and not own:
            continue
        partitions = sorted(topic.partitions, key=lambda p: p.partition_index)
        if not partly:
            _heading(topic, own)
        if options.topics_with_overrides:
            continue
        for partition in partitions:
            if not partly or _is_wanted(partition, options, least):
                _line(topic.name or "", partition)


def _is_wanted(partition: Partition, options: argparse.Namespace, min_isr: int) -> bool:
    in_sync = len(partition.isr_nodes)
    return bool(
        (options.under_replicated_partitions and in_sync < len(partition.replica_nodes))
        or (options.unavailable_partitions and partition.leader_id < 0)
        or (options.under_min_isr_partitions and in_sync < min_isr)
        or (options.at_min_isr_partitions and in_sync == min_isr)
    )


def _heading(topic: Topic, configs: Mapping[str, str]) -> None:
    shown = ",".join(f"{key}={value}" for key, value in configs.items())
    factor = len(topic.partitions[0].replica_nodes) if topic.partitions else 0
    say_cells(
        f"Topic: {topic.name}",
        f"TopicId: {uuid_to_text(topic.topic_id)}",
        f"PartitionCount: {len(topic.partitions)}",
        f"ReplicationFactor: {factor}",
        f"Configs: {shown}",
    )


def _line(name: str, partition: Partition) -> None:
    def ids(nodes: Sequence[int] | None) -> str:
        return ",".join(map(str, nodes or ()))

    leader = str(partition.leader_id) if partition.leader_id >= 0 else "none"
    say_cells(
        "",
        f"Topic: {name}",
        f"Partition: {partition.partition_index}",
        f"Leader: {leader}",
        f"Replicas: {ids(partition.replica_nodes)}",
        f"Isr: {ids(partition.isr_nodes)}",
        f"Elr: {ids(partition.eligible_leader_replicas)}",
        f"LastKnownElr: {ids(partition.last_known_elr)}",
    )


async def _configs(
    client: ClusterClient, names: Sequence[str]
) -> dict[str, tuple[dict[str, str], int]]:
    """Return non-default configurations, and min.insync.replicas, by topic."""
    if not names:
        return {}
    found = {}
    described = await Admin(client).describe_configs(ResourceType.TOPIC, names)
    for name, configs in described.items():
        values = {c.name: c.value or "" for c in configs}
        own = {c.name: c.value or "" for c in configs if c.config_source != DEFAULT_SOURCE}
        found[name] = (own, int(values.get("min.insync.replicas", "1")))
    return found


async def _alter(client: ClusterClient, options: argparse.Namespace) -> None:
    if options.partitions is None:
        raise CommandFailed("--alter needs --partitions; configurations belong to kafka-configs")
    assigned = assignment(options.replica_assignment) if options.replica_assignment else None
    for topic in await topics_of(client, options):
        new = None
        if assigned is not None:
            new = [brokers for at, brokers in assigned.items() if at >= len(topic.partitions)]
        await _admin(client, options).create_partitions(topic.name or "", options.partitions, new)


async def _delete(client: ClusterClient, options: argparse.Namespace) -> None:
    for topic in await topics_of(client, options):
        await _admin(client, options).delete_topic(topic.name or "")
    sys.stdout.flush()


ACTIONS = {
    "create": _create,
    "list": _list,
    "describe": _describe,
    "alter": _alter,
    "delete": _delete,
}
