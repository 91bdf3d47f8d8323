"""`kraftbox prometheus`: a scrape configuration for a local cluster, and HTTP service discovery."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any

import typer

from kraftbox.cli.nodes import DIR_DEFAULT, DirOption
from kraftbox.cli.output import CommandFailed, JsonFlag, say_json, say_lines
from kraftbox.cli.shipped import documentation, rules
from kraftbox.launcher import control
from kraftbox.launcher.addresses import Network
from kraftbox.launcher.place import ClusterPlace
from kraftbox.launcher.plan import HOST, node_plans, planned_nodes
from runtime.errors import StartupRefused

JOBS = ("kafka-broker", "kafka-controller")
INTERVAL_S = 15
RULES_HINT = "# Alerts: kraftbox prometheus --rules > rules.yml, and here rule_files: [rules.yml]"
REQUEST_S_MAX = 10.0
"""Timeout for a client of --serve that stalls in the middle of a request or an answer."""

Target = Mapping[str, Any]
"""`{"targets": [ADDRESS], "labels": {...}}`, the format of Prometheus' HTTP service discovery."""


def prometheus(
    directory: DirOption = DIR_DEFAULT,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Value of the label `cluster`; default: the directory's name."),
    ] = None,
    serve: Annotated[
        int | None,
        typer.Option(
            "--serve",
            metavar="PORT",
            min=0,
            max=65535,
            help=(
                "Serve the targets for Prometheus' http_sd on this port of "
                "127.0.0.1 (0: a free one) until Ctrl-C, and print a configuration "
                "that uses it."
            ),
        ),
    ] = None,
    as_rules: Annotated[
        bool, typer.Option("--rules", help="Print the alert rules (rule_files) instead.")
    ] = False,
    docs: Annotated[
        str | None,
        typer.Option(
            "--docs",
            metavar="URL",
            help="With --rules: address of the documentation, for the links of the alerts.",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print a Prometheus configuration for a local cluster, with the labels of public dashboards.

    --json prints only the targets, in the format of http_sd. With --serve, Prometheus finds nodes
    that are added later without a new configuration. --rules prints alerts, which need no cluster.
    """
    if as_rules:
        say_lines(rules(docs or documentation()).rstrip("\n"))
        return
    if docs is not None:
        raise typer.BadParameter("--docs needs --rules", param_hint="--docs")
    place = ClusterPlace(directory)
    called = name or place.root.name
    found = _targets(place, called)
    if serve is None:
        say_json(found) if as_json else say_lines(configuration(found))
        return
    server = _server(place, called, serve)
    url = f"http://{HOST}:{server.server_address[1]}/"
    if as_json:
        say_json({"url": url, "targets": found})
    else:
        say_lines(discovering(url))
    sys.stdout.flush()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()


def _server(place: ClusterPlace, name: str, port: int) -> ThreadingHTTPServer:
    """Create a server that answers every path with the current targets. Raises CommandFailed."""

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_S_MAX

        def do_GET(self) -> None:
            try:
                status, body = 200, json.dumps(_targets(place, name)).encode()
            except CommandFailed as error:
                status, body = 503, str(error).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if status == 200 else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Override the default, which logs every request."""

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise CommandFailed(f"--serve {port}: cannot listen: {error.strerror}") from None


def _targets(place: ClusterPlace, name: str) -> list[Target]:
    """Return the targets of a cluster, running or not. Raises CommandFailed."""
    try:
        known = place.remembered()
        if known is None:
            raise CommandFailed(f"no cluster in {place.root}")
        nodes = planned_nodes(known.shape)
        network = Network(known.network) if known.network else None
        at = {node.node_id: network.address(node.node_id) if network else HOST for node in nodes}
        plans = node_plans(nodes, str(place.root), known.ports, known.settings, at)
        planned = {plan.node.node_id: plan.properties["kraftbox.http.listener"] for plan in plans}
        roles = {node.node_id: node.roles for node in nodes}
    except StartupRefused as error:
        raise CommandFailed(str(error)) from None
    try:
        # The port where a node really listens: another process may have taken the planned one.
        bound = {n["id"]: n["http"] for n in control.status(place)["nodes"] if n["http"]}
    except (control.NotRunning, control.RequestFailed):
        bound = {}
    return targets({**planned, **bound}, roles, name)


def targets(addresses: Mapping[int, str], roles: Mapping[int, str], name: str) -> list[Target]:
    """Return http_sd targets, with the labels of Strimzi's, Confluent's and Grafana's
    dashboards.
    """
    return [
        {
            "targets": [address],
            "labels": {
                "job": JOBS["broker" not in roles[node_id]],
                "env": name,
                "kafka_cluster": name,
                "namespace": "kafka",
                "strimzi_io_cluster": name,
                "strimzi_io_kind": "Kafka",
                "strimzi_io_name": f"{name}-kafka",
                "container": "kafka",
                "kubernetes_pod_name": f"{name}-{node_id}",
                "node_id": str(node_id),
            },
        }
        for node_id, address in sorted(addresses.items())
        if address and not address.endswith(":0")
    ]


def configuration(found: Sequence[Target]) -> str:
    """Return a complete prometheus.yml; values are written as JSON, which is valid YAML."""
    lines = [RULES_HINT, "global:", f"  scrape_interval: {INTERVAL_S}s", "", "scrape_configs:"]
    for job in JOBS:
        those = [one for one in found if one["labels"]["job"] == job]
        if not those:
            continue
        lines += [f"  - job_name: {job}", "    static_configs:"]
        for one in those:
            labels = {key: value for key, value in one["labels"].items() if key != "job"}
            lines.append(f"      - targets: {json.dumps(one['targets'])}")
            lines.append("        labels:")
            lines += [f"          {key}: {json.dumps(value)}" for key, value in labels.items()]
    return "\n".join(lines)


def discovering(url: str) -> str:
    """Return a complete prometheus.yml that requests the targets from `url`."""
    return "\n".join(
        [
            RULES_HINT,
            "global:",
            f"  scrape_interval: {INTERVAL_S}s",
            "",
            "scrape_configs:",
            "  - job_name: kraftbox",
            "    http_sd_configs:",
            f"      - url: {json.dumps(url)}",
            f"        refresh_interval: {INTERVAL_S}s",
        ]
    )
