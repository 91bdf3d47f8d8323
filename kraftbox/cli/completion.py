"""Completion of names from the running cluster: topics, partitions, groups, nodes.

A shell waits for it while a person types, so it ends after COMPLETE_MS, and completes nothing if
the cluster does not answer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import typer

COMPLETE_MS = 700.0


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics that begin with the incomplete word."""
    return _beginning(_topic_partitions(context), incomplete)


def partitions(context: typer.Context, incomplete: str) -> list[str]:
    """Return the partitions, such as orders-0, that begin with the incomplete word."""
    found = _topic_partitions(context)
    named = (f"{topic}-{index}" for topic, count in found.items() for index in range(count))
    return _beginning(named, incomplete)


def groups(context: typer.Context, incomplete: str) -> list[str]:
    """Return the groups that begin with the incomplete word."""
    from client.admin import Admin

    async def work(client: Any) -> list[str]:
        return [group.group_id for group in await Admin(client, COMPLETE_MS).list_groups()]

    return _beginning(_of_cluster(context, work) or (), incomplete)


def nodes(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the IDs of the nodes that begin with the incomplete word, with their states."""
    from kraftbox.cli.clusters import state_of
    from kraftbox.launcher import control
    from kraftbox.launcher.place import ClusterPlace

    directory = context.params.get("directory") or os.environ.get("KRAFTBOX_DIR")
    try:
        found = control.status(ClusterPlace(directory or "kraftbox-data"), COMPLETE_MS)["nodes"]
    except (control.NotRunning, control.RequestFailed):
        return []
    return [(str(n["id"]), state_of(n)) for n in found if str(n["id"]).startswith(incomplete)]


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _topic_partitions(context: typer.Context) -> dict[str, int]:
    """Return the number of partitions of each topic that is not internal."""

    async def work(client: Any) -> dict[str, int]:
        answer = await client.metadata(None, COMPLETE_MS)
        return {
            topic.name: len(topic.partitions)
            for topic in answer.topics
            if topic.name and not topic.is_internal
        }

    return _of_cluster(context, work) or {}


def _of_cluster(context: typer.Context, work: Callable[[Any], Awaitable[Any]]) -> Any:
    """Return the result of `work` with a client, None if the cluster does not answer."""
    from client.addresses import parse_addresses
    from client.cluster_client import ClusterClient
    from client.errors import ClientError
    from kraftbox.cli.connect import BOOTSTRAP_DEFAULT, CLIENT_ID, Chosen, with_ports
    from kraftbox.cli.output import CommandFailed
    from kraftbox.cli.reachability import Unreachable, answering_first
    from protocol.errors import ApiError, ProtocolError

    async def whole(servers: str) -> Any:
        async with asyncio.timeout(COMPLETE_MS / 1000):
            addresses = await answering_first(parse_addresses(servers), 0, lambda _: None)
            client = await ClusterClient.connect(addresses, CLIENT_ID, COMPLETE_MS)
            async with client:
                return await work(client)

    named = context.params.get("bootstrap") or BOOTSTRAP_DEFAULT
    try:
        servers = named.resolved() if isinstance(named, Chosen) else with_ports(named)
        return asyncio.run(whole(servers))
    except (ApiError, ClientError, CommandFailed, OSError, ProtocolError, Unreachable):
        return None
