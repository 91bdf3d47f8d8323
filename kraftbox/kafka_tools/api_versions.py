"""kafka-broker-api-versions.sh: list the APIs of every broker with their versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from client.cluster_client import ClusterClient
from kraftbox.cli.connect import CLIENT_ID, CONNECT_MS_MAX, run
from kraftbox.cli.output import say, say_lines
from kraftbox.kafka_tools.options import add_bootstrap, bootstrap_of, parser
from protocol.api_keys import ApiKey
from protocol.messages import request_class
from protocol.schema import VersionRange
from protocol.transport.client import Connection


def main(name: str, arguments: Sequence[str]) -> int:
    options = parser(name, __doc__ or "")
    add_bootstrap(options)
    run(bootstrap_of(options.parse_args(arguments)), _show)
    return 0


async def _show(client: ClusterClient) -> None:
    for broker in sorted((await client.metadata([])).brokers, key=lambda b: b.node_id):
        await show_node(broker.host, broker.port, broker.node_id, broker.rack)


async def show_node(
    host: str, port: int, node_id: int, rack: str | None, *, fenced: bool = False
) -> None:
    """Connect to a node and print its APIs. Raises OSError, ApiError."""
    connection = await Connection.connect(host, port, CLIENT_ID, CONNECT_MS_MAX)
    try:
        lines = shown(connection.versions)
    finally:
        await connection.close()
    state = "true" if fenced else "false"
    say(f"{host}:{port} (id: {node_id} rack: {rack or 'null'} isFenced: {state}) -> (")
    say_lines(",\n".join(f"\t{line}" for line in lines))
    say(")")


def shown(versions: Mapping[int, VersionRange]) -> list[str]:
    """Return lines such as `Fetch(1): 4 to 18 [usable: 18]`, sorted by API key."""
    lines = []
    for key, offered in sorted(versions.items()):
        try:
            api = ApiKey(key)
        except ValueError:
            lines.append(f"UNKNOWN({key}): {offered.first} to {offered.last} [unusable]")
            continue
        name = "".join(part.capitalize() for part in api.name.split("_"))
        span = (
            f"{offered.first}"
            if offered.first == offered.last
            else (f"{offered.first} to {offered.last}")
        )
        common = request_class(api).VERSIONS.intersect(offered)
        usable = f"usable: {common.last}" if common else "unusable"
        lines.append(f"{name}({key}): {span} [{usable}]")
    return lines
