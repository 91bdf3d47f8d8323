"""kafka-configs.sh: describe and alter configurations of topics, brokers, groups and loggers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from client.admin import Admin, ConfigChange, ConfigOperation, ResourceType
from client.cluster_client import ClusterClient
from kraftbox.cli.connect import run
from kraftbox.cli.output import CommandFailed, say
from kraftbox.kafka_tools.options import (
    add_actions,
    add_bootstrap,
    bootstrap_of,
    file_properties,
    parser,
)
from protocol.messages.describe_configs import DescribeConfigsResponse

KINDS = {
    "topics": ResourceType.TOPIC,
    "brokers": ResourceType.BROKER,
    "broker-loggers": ResourceType.BROKER_LOGGER,
    "client-metrics": ResourceType.CLIENT_METRICS,
    "groups": ResourceType.GROUP,
}
SHORT = ("topic", "broker", "broker-logger", "client-metrics", "group")
SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "CLIENT_METRICS_CONFIG",
    8: "GROUP_CONFIG",
}
OWN_SOURCE = {"topics": 1, "brokers": 2, "client-metrics": 7, "groups": 8}
"""The source of an entity's own values; without --all Kafka shows only these."""
DEFAULT_BROKER_SOURCE = 3


def main(name: str, arguments: Sequence[str]) -> int:
    options = parser(name, __doc__ or "")
    add_bootstrap(options, controllers=True)
    add_actions(options, ("describe", "alter"))
    options.add_argument("--entity-type", choices=sorted(KINDS))
    options.add_argument("--entity-name")
    options.add_argument("--entity-default", action="store_true")
    for short in SHORT:
        options.add_argument(f"--{short}")
    options.add_argument("--broker-defaults", action="store_true")
    options.add_argument("--add-config", metavar="K1=V1,K2=[V2,V3]")
    options.add_argument("--add-config-file", metavar="FILE")
    options.add_argument("--delete-config", metavar="K1,K2")
    options.add_argument("--all", action="store_true", help="include defaults")
    given = options.parse_args(arguments)
    kind, entity = entity_of(given)
    bootstrap = bootstrap_of(given)
    if given.alter:
        run(bootstrap, lambda client: _alter(client, given, kind, entity))
    else:
        run(bootstrap, lambda client: _describe(client, given, kind, entity))
    return 0


def entity_of(options: argparse.Namespace) -> tuple[str, str | None]:
    """Return the entity type and its name: empty for the default, None for all entities.

    Raises CommandFailed.
    """
    for short in SHORT:
        value: str | None = getattr(options, short.replace("-", "_"))
        if value is not None:
            return short if short in KINDS else f"{short}s", value
    if options.broker_defaults:
        return "brokers", ""
    if options.entity_type is None:
        raise CommandFailed("missing option --entity-type")
    return options.entity_type, "" if options.entity_default else options.entity_name


def added(text: str) -> dict[str, str]:
    """Parse `a=b,c=[d,e]` into a mapping; brackets enclose values with commas.

    Raises CommandFailed.
    """
    found: dict[str, str] = {}
    rest = text
    while rest:
        key, equals, rest = rest.partition("=")
        if not equals or not key.strip():
            raise CommandFailed(f"--add-config: expected a=b,c=[d,e], got {text!r}")
        if rest.startswith("["):
            value, bracket, rest = rest[1:].partition("]")
            if not bracket:
                raise CommandFailed(f"--add-config {text!r}: missing closing bracket")
            rest = rest.removeprefix(",")
        else:
            value, _, rest = rest.partition(",")
        found[key.strip()] = value
    return found


async def _alter(
    client: ClusterClient, options: argparse.Namespace, kind: str, entity: str | None
) -> None:
    if entity is None:
        raise CommandFailed("--alter needs --entity-name or --entity-default")
    wanted = file_properties(options.add_config_file) if options.add_config_file else {}
    wanted |= added(options.add_config or "")
    removed = [key.strip() for key in (options.delete_config or "").split(",") if key.strip()]
    if not wanted and not removed:
        raise CommandFailed("--alter needs --add-config, --add-config-file or --delete-config")
    changes = [ConfigChange(k, ConfigOperation.SET, v) for k, v in wanted.items()]
    changes += [ConfigChange(key, ConfigOperation.DELETE, None) for key in removed]
    await Admin(client).alter_configs(KINDS[kind], entity, changes)
    which = f"{kind.removesuffix('s')} {entity}" if entity else f"default for {kind}"
    say(f"Completed updating {'' if entity else 'the '}config for {which}.")


async def _describe(
    client: ClusterClient, options: argparse.Namespace, kind: str, entity: str | None
) -> None:
    for name in [entity] if entity is not None else await _entities(client, kind):
        configs = (await Admin(client).describe_configs(KINDS[kind], [name], synonyms=True))[name]
        which = f"{kind.removesuffix('s')} {name}" if name else f"the default {kind}"
        say(f"{'All' if options.all else 'Dynamic'} configs for {which} are:")
        for config in sorted(configs, key=lambda config: config.name):
            if options.all or is_own(kind, name, config.config_source):
                say(f"  {_shown(config)}")


def is_own(kind: str, name: str, source: int) -> bool:
    """Return whether a value was set for this entity, not for one that it inherits from.

    All loggers count: each has a level.
    """
    if kind == "brokers" and not name:
        return source == DEFAULT_BROKER_SOURCE
    return source == OWN_SOURCE.get(kind, source)


def _shown(config: DescribeConfigsResponse.DescribeConfigsResourceResult) -> str:
    value = "null" if config.value is None else config.value
    synonyms = ", ".join(
        f"{SOURCES.get(s.source, 'UNKNOWN')}:{s.name}={'null' if s.value is None else s.value}"
        for s in config.synonyms
    )
    sensitive = str(config.is_sensitive).lower()
    return f"{config.name}={value} sensitive={sensitive} synonyms={{{synonyms}}}"


async def _entities(client: ClusterClient, kind: str) -> list[str]:
    """Return the names of all entities of a type. Raises CommandFailed."""
    metadata = await client.metadata()
    if kind == "topics":
        return sorted(topic.name or "" for topic in metadata.topics)
    if kind == "brokers":
        return [*(str(broker.node_id) for broker in metadata.brokers), ""]
    raise CommandFailed(f"--describe of {kind} needs --entity-name")
