"""kafka-cluster.sh: show the cluster's ID, endpoints and APIs, or unregister a node."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from client.cluster_client import ClusterClient
from client.errors import check
from kraftbox.cli.connect import run
from kraftbox.cli.output import say
from kraftbox.kafka_tools.api_versions import show_node
from kraftbox.kafka_tools.options import add_bootstrap, bootstrap_of, columns, parser
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.unregister_broker import UnregisterBrokerRequest
from protocol.messages.unregister_controller import UnregisterControllerRequest

BROKERS, CONTROLLERS = 1, 2
COMMANDS = ("cluster-id", "unregister", "unregister-controller", "list-endpoints", "api-versions")


def main(name: str, arguments: Sequence[str]) -> int:
    options = parser(name, __doc__ or "")
    commands = options.add_subparsers(dest="command", required=True)
    for command in COMMANDS:
        one = commands.add_parser(command, allow_abbrev=False)
        add_bootstrap(one, controllers=True)
        one.add_argument("--config", "-c", dest="producer_config", metavar="FILE")
        if command == "unregister":
            one.add_argument("--id", "-i", type=int, required=True, help="id of the broker")
        if command == "unregister-controller":
            one.add_argument("--id", "-i", type=int, required=True, help="id of the controller")
        if command == "list-endpoints":
            one.add_argument("--include-fenced-brokers", action="store_true")
    given = options.parse_args(arguments)
    run(bootstrap_of(given), lambda client: _work(client, given))
    return 0


async def _work(client: ClusterClient, options: argparse.Namespace) -> None:
    if options.command == "unregister":
        done = await client.request_any(UnregisterBrokerRequest(broker_id=options.id))
        check(done.error_code, f"broker {options.id}", done.error_message)
        say(f"Broker {options.id} is no longer registered.")
        return
    if options.command == "unregister-controller":
        gone = await client.request_any(UnregisterControllerRequest(controller_id=options.id))
        check(gone.error_code, f"controller {options.id}", gone.error_message)
        say(f"Controller {options.id} is no longer registered.")
        return
    kind = CONTROLLERS if options.bootstrap_server is None else BROKERS
    fenced = options.command == "list-endpoints" and options.include_fenced_brokers
    request = DescribeClusterRequest(endpoint_type=kind, include_fenced_brokers=fenced)
    cluster = await client.request_any(request)
    check(cluster.error_code, "cluster", cluster.error_message)
    if options.command == "cluster-id":
        say(f"Cluster ID: {cluster.cluster_id}")
    elif options.command == "api-versions":
        for node in sorted(cluster.brokers, key=lambda one: one.broker_id):
            await show_node(node.host, node.port, node.broker_id, node.rack, fenced=node.is_fenced)
    else:
        columns(endpoints(cluster, kind))


def endpoints(cluster: DescribeClusterResponse, kind: int) -> list[tuple[object, ...]]:
    """Return the rows of the table, heading first."""
    rows: list[tuple[object, ...]] = [
        ("ID", "HOST", "PORT", "RACK", *(("STATE",) if kind == BROKERS else ()), "ENDPOINT_TYPE")
    ]
    for one in sorted(cluster.brokers, key=lambda one: one.broker_id):
        state = ("fenced" if one.is_fenced else "unfenced",) if kind == BROKERS else ()
        which = "broker" if kind == BROKERS else "controller"
        rows.append((one.broker_id, one.host, one.port, one.rack or "null", *state, which))
    return rows
