"""`kraftbox configs`: describe and alter what topics, brokers and groups are configured with."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kraftbox.cli.client import BOOTSTRAP_DEFAULT, BootstrapOption, check, run
from kraftbox.cli.output import JsonFlag, say, say_json, table
from kraftbox.cli.topics import settings
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

app = typer.Typer(help="Describe and alter configurations.", no_args_is_help=True)

TOPIC, BROKER, GROUP = 2, 4, 32
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
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

TopicOption = Annotated[str | None, typer.Option("--topic", "-t", help="The topic.")]
BrokerOption = Annotated[
    str | None, typer.Option("--broker", help="The broker's number; empty for all brokers.")
]
GroupOption = Annotated[str | None, typer.Option("--group", "-g", help="The consumer group.")]


def resource(topic: str | None, broker: str | None, group: str | None) -> tuple[int, str]:
    """The one resource that was named; a usage error otherwise."""
    named = [(TOPIC, topic), (BROKER, broker), (GROUP, group)]
    given = [(kind, name) for kind, name in named if name is not None]
    if len(given) != 1:
        raise typer.BadParameter("give one of --topic, --broker, --group")
    return given[0]


@app.command()
def describe(
    topic: TopicOption = None,
    broker: BrokerOption = None,
    group: GroupOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Defaults too.")] = False,
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Show what differs from the defaults and where it comes from; with --all everything."""
    kind, name = resource(topic, broker, group)
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=None
            )
        ],
        include_synonyms=True,
        include_documentation=as_json,
    )
    # A broker's static values are known only to that broker.
    node = int(name) if kind == BROKER and name.isdigit() else None
    result = run(bootstrap, lambda client: client.send(request, node=node)).results[0]
    check(result.error_code, name, result.error_message)
    shown = [c for c in result.configs if everything or c.config_source != DEFAULT]
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
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="Set a key.")
    ] = [],
    to_delete: Annotated[
        list[str], typer.Option("--delete", metavar="KEY", help="Go back to the default.")
    ] = [],
    to_append: Annotated[
        list[str], typer.Option("--append", metavar="KEY=VALUE", help="Add to a list.")
    ] = [],
    to_subtract: Annotated[
        list[str], typer.Option("--subtract", metavar="KEY=VALUE", help="Take from a list.")
    ] = [],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check only.")] = False,
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Change configurations one by one; what is not named stays."""
    kind, name = resource(topic, broker, group)
    changes = [
        *((key, SET, value) for key, value in settings(to_set).items()),
        *((key, DELETE, None) for key in to_delete),
        *((key, APPEND, value) for key, value in settings(to_append).items()),
        *((key, SUBTRACT, value) for key, value in settings(to_subtract).items()),
    ]
    if not changes:
        raise typer.BadParameter("give at least one of --set, --delete, --append, --subtract")
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    IncrementalAlterConfigsRequest.AlterableConfig(
                        name=key, config_operation=operation, value=value
                    )
                    for key, operation, value in changes
                ],
            )
        ],
        validate_only=dry_run,
    )
    result = run(bootstrap, lambda client: client.send(request)).responses[0]
    check(result.error_code, name, result.error_message)
    if as_json:
        say_json({"resource": name, "changed": [key for key, _, _ in changes], "dryRun": dry_run})
        return
    say(f"{'would change' if dry_run else 'changed'} {', '.join(key for key, _, _ in changes)}")


def _config_json(config: DescribeConfigsResponse.DescribeConfigsResourceResult) -> dict[str, Any]:
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
