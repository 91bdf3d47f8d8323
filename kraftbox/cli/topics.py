"""`kraftbox topics`: list, create, describe, alter and delete topics."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from client.admin import Admin, NewTopic
from client.cluster_client import ClusterClient
from client.topic_pages import DescribedTopic
from kraftbox.cli import completion
from kraftbox.cli.connect import BOOTSTRAP_DEFAULT, BootstrapOption, run
from kraftbox.cli.output import (
    CommandFailed,
    JsonFlag,
    command_group,
    counted,
    progress,
    say,
    say_error,
    say_json,
    table,
)
from protocol.ids import uuid_to_text

app = command_group("Create, list, describe, alter and delete topics.")

Names = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of the topics.")]
KnownNames = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC...", help="Names of the topics.", autocompletion=completion.topics
    ),
]


def settings(pairs: list[str]) -> dict[str, str]:
    """Parse `KEY=VALUE` options into a mapping; raise BadParameter for another form."""
    result = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"expected KEY=VALUE, got {pair!r}")
        result[key] = value
    return result


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """List the topics with their number of partitions."""
    found = run(bootstrap, lambda client: Admin(client).describe_topics())
    topics = [topic for topic in found if internal or not topic.is_internal]
    if as_json:
        say_json([_topic_json(topic) for topic in topics])
        return
    table(["TOPIC", "PARTITIONS"], [(t.name, len(t.partitions)) for t in topics])


@app.command()
def create(
    names: Names,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", "-p", help="Number of partitions; -1 for the cluster's default."
        ),
    ] = -1,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            "-r",
            help="Replicas of each partition; -1 for the cluster's default.",
        ),
    ] = -1,
    configs: Annotated[
        list[str],
        typer.Option(
            "--config", metavar="KEY=VALUE", help="Set a topic configuration; repeatable."
        ),
    ] = [],
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic exists.")
    ] = False,
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Create topics; partitions and replication factor default to the cluster's settings."""
    chosen = settings(configs)
    wanted = [NewTopic(name, partitions, replication_factor, chosen) for name in names]
    created = run(
        bootstrap, lambda client: Admin(client).create_topics(wanted, exist_ok=if_not_exists)
    )
    if as_json:
        say_json(
            [
                {
                    "name": topic.name,
                    "topicId": uuid_to_text(topic.topic_id),
                    "partitions": topic.num_partitions,
                    "replicationFactor": topic.replication_factor,
                }
                for topic in created
            ]
        )
        return
    for topic in created:
        say(f"created {topic.name} with {counted(topic.num_partitions, 'partition')}")


@app.command()
def describe(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC...]",
            help="Names of the topics; default: all.",
            autocompletion=completion.topics,
        ),
    ] = None,
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Describe topics: each partition's leader, epoch, replicas, ISR and ELR (KIP-966)."""
    found = run(bootstrap, lambda client: Admin(client).describe_topics(names or None))
    if as_json:
        say_json([_topic_json(topic) for topic in found])
        return
    rows = [
        (
            topic.name,
            partition.partition_index,
            partition.leader_id if partition.leader_id >= 0 else None,
            partition.leader_epoch,
            *map(
                _ids,
                (
                    partition.replica_nodes,
                    partition.isr_nodes,
                    partition.eligible_leader_replicas,
                    partition.last_known_elr,
                ),
            ),
        )
        for topic in found
        for partition in topic.partitions
    ]
    columns = ["TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "ELR", "LAST KNOWN ELR"]
    table(columns, rows)
    if any(one.eligible_leader_replicas is None for topic in found for one in topic.partitions):
        say_error("the brokers do not support DescribeTopicPartitions: ELR unknown")


def _ids(nodes: list[int] | None) -> str | None:
    """Return broker IDs for one cell; None (a dash) for an empty or unknown list."""
    return ",".join(map(str, nodes)) if nodes else None


@app.command()
def alter(
    name: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", help="Name of the topic.", autocompletion=completion.topics
        ),
    ],
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, help="New number of partitions.")
    ],
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Add partitions to a topic. Change configurations with `kraftbox configs alter`."""
    run(bootstrap, lambda client: Admin(client).create_partitions(name, partitions))
    if as_json:
        say_json({"name": name, "partitions": partitions})
        return
    say(f"{name} has {counted(partitions, 'partition')}")


@app.command()
def delete(
    names: KnownNames,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed if the topic does not exist.")
    ] = False,
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Delete topics with all their records."""

    async def work(client: ClusterClient) -> list[str]:
        gone = []
        with progress("deleting", len(names)) as ticker:
            for name in names:
                if await Admin(client).delete_topic(name, missing_ok=if_exists):
                    gone.append(name)
                ticker.advance()
        return gone

    gone = run(bootstrap, work)
    if as_json:
        say_json([{"name": name} for name in gone])
        return
    for name in gone:
        say(f"deleted {name}")


def _topic_json(topic: DescribedTopic) -> dict[str, Any]:
    if topic.name is None:
        raise CommandFailed("invalid answer: a topic without a name")
    return {
        "name": topic.name,
        "topicId": uuid_to_text(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": partition.partition_index,
                "leader": partition.leader_id,
                "leaderEpoch": partition.leader_epoch,
                "replicas": partition.replica_nodes,
                "isr": partition.isr_nodes,
                "elr": partition.eligible_leader_replicas,
                "lastKnownElr": partition.last_known_elr,
                "offline": partition.offline_replicas,
            }
            for partition in topic.partitions
        ],
    }
