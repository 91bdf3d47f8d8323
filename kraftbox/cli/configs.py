"""`kraftbox configs`: describe and alter configurations of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import typer

from client.admin import Admin, ConfigChange, ConfigOperation, ResourceType
from client.cluster_client import ClusterClient
from kraftbox.cli import completion
from kraftbox.cli.connect import BOOTSTRAP_DEFAULT, BootstrapOption, run
from kraftbox.cli.output import JsonFlag, command_group, say, say_json, table
from kraftbox.cli.topics import settings
from protocol.messages.describe_configs import DescribeConfigsResponse

app = command_group("Describe and alter configurations.")

SOURCES = {
    1: "topic",
    2: "dynamic broker",
    3: "dynamic default",
    4: "static",
    5: "default",
    7: "client metrics",
    8: "group",
}
DEFAULT = 5
Config: TypeAlias = DescribeConfigsResponse.DescribeConfigsResourceResult

TopicOption = Annotated[
    str | None,
    typer.Option("--topic", "-t", help="Name of the topic.", autocompletion=completion.topics),
]
BrokerOption = Annotated[
    str | None,
    typer.Option("--broker", help="Id of the broker; empty for the default of all brokers."),
]
GroupOption = Annotated[str | None, typer.Option("--group", "-g", help="Id of the consumer group.")]


def resource(topic: str | None, broker: str | None, group: str | None) -> tuple[ResourceType, str]:
    """Return the one resource that the options name; raise BadParameter otherwise."""
    named = [
        (ResourceType.TOPIC, topic),
        (ResourceType.BROKER, broker),
        (ResourceType.GROUP, group),
    ]
    given = [(kind, name) for kind, name in named if name is not None]
    if len(given) != 1:
        raise typer.BadParameter("give one of --topic, --broker, --group")
    return given[0]


@app.command()
def describe(
    topic: TopicOption = None,
    broker: BrokerOption = None,
    group: GroupOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Include defaults.")] = False,
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Show the values that differ from their defaults, with their sources.

    --all shows every key.
    """
    kind, name = resource(topic, broker, group)

    async def work(client: ClusterClient) -> list[Config]:
        described = await Admin(client).describe_configs(
            kind, [name], synonyms=True, documentation=as_json
        )
        return described[name]

    shown = [c for c in run(bootstrap, work) if everything or c.config_source != DEFAULT]
    shown.sort(key=lambda config: config.name)
    if as_json:
        say_json([_config_json(config) for config in shown])
        return
    rows = [(c.name, c.value, SOURCES.get(c.config_source, "unknown")) for c in shown]
    table(["KEY", "VALUE", "SOURCE"], rows)


@app.command()
def alter(
    topic: TopicOption = None,
    broker: BrokerOption = None,
    group: GroupOption = None,
    to_set: Annotated[
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="Set this key; repeatable.")
    ] = [],
    to_delete: Annotated[
        list[str],
        typer.Option("--delete", metavar="KEY", help="Reset this key to its default; repeatable."),
    ] = [],
    to_append: Annotated[
        list[str],
        typer.Option(
            "--append", metavar="KEY=VALUE", help="Append values to this list; repeatable."
        ),
    ] = [],
    to_subtract: Annotated[
        list[str],
        typer.Option(
            "--subtract", metavar="KEY=VALUE", help="Remove values from this list; repeatable."
        ),
    ] = [],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Validate the change without applying it.")
    ] = False,
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Change single configuration keys; other keys keep their values."""
    kind, name = resource(topic, broker, group)
    changes = [
        *_changes(ConfigOperation.SET, settings(to_set)),
        *_changes(ConfigOperation.DELETE, dict.fromkeys(to_delete)),
        *_changes(ConfigOperation.APPEND, settings(to_append)),
        *_changes(ConfigOperation.SUBTRACT, settings(to_subtract)),
    ]
    if not changes:
        raise typer.BadParameter("give at least one of --set, --delete, --append, --subtract")

    async def work(client: ClusterClient) -> None:
        await Admin(client).alter_configs(kind, name, changes, validate_only=dry_run)

    run(bootstrap, work)
    keys = [change.key for change in changes]
    if as_json:
        say_json({"resource": name, "changed": keys, "dryRun": dry_run})
        return
    say(f"{'would change' if dry_run else 'changed'} {', '.join(keys)}")


def _changes(
    operation: ConfigOperation, values: Mapping[str, str | None] | Mapping[str, str]
) -> list[ConfigChange]:
    return [ConfigChange(key, operation, value) for key, value in values.items()]


def _config_json(config: Config) -> dict[str, Any]:
    return {
        "name": config.name,
        "value": config.value,
        "source": SOURCES.get(config.config_source, "unknown"),
        "readOnly": config.read_only,
        "sensitive": config.is_sensitive,
        "documentation": config.documentation,
        "synonyms": [
            {"name": s.name, "value": s.value, "source": SOURCES.get(s.source, "unknown")}
            for s in config.synonyms
        ],
    }
