"""Request handlers of the helper for operators: configurations, lag, elections, links."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from client.admin import Admin, ConfigChange, ConfigOperation
from client.cluster_client import LATEST, ClusterClient
from client.elections import ElectionType
from client.offsets import committed, offsets_at
from kraftbox.cli.configs import resource
from kraftbox.cli.elect import Kind
from kraftbox.cli.explanation import document
from kraftbox.cli.output import CommandFailed

Question = Mapping[str, Any]


async def brokers(client: ClusterClient, _: Question) -> list[int]:
    """Return the IDs of the brokers that the cluster lists as live."""
    return sorted(one.node_id for one in (await client.metadata([])).brokers)


async def alter_config(client: ClusterClient, question: Question) -> None:
    """Set keys of a topic, a broker or a group; None resets a key."""
    named = [question[one] for one in ("topic", "broker", "group") if question[one] is not None]
    if len(named) > 1:
        raise CommandFailed("alter_config: give at most one of topic, broker, group")
    # The empty name of a broker stands for all of them.
    broker = question["broker"] if named else ""
    kind, name = resource(question["topic"], broker, question["group"])
    changes = [
        ConfigChange(key, ConfigOperation.DELETE if value is None else ConfigOperation.SET, value)
        for key, value in question["values"].items()
    ]
    await Admin(client).alter_configs(kind, name, changes)


async def group_lag(client: ClusterClient, question: Question) -> list[list[Any]]:
    """Return topic, partition and lag of each committed offset; None without a leader."""
    group = question["group"]
    offsets = await committed(client, group)
    if not offsets and (await Admin(client).describe_group(group)).group_state == "Dead":
        raise CommandFailed(f"unknown group {group}")
    ends = await offsets_at(client, offsets, LATEST, missing_ok=True)
    return [
        [*key, max(0, ends[key] - offset) if key in ends else None]
        for key, offset in sorted(offsets.items())
    ]


async def elect(client: ClusterClient, question: Question) -> None:
    """Elect a leader of one partition. Raises CommandFailed."""
    try:
        election = ElectionType[Kind(question["kind"]).name]
    except ValueError:
        allowed = ", ".join(one.value for one in Kind)
        raise CommandFailed(f"kind={question['kind']!r}: allowed: {allowed}") from None
    key = (question["topic"], question["partition"])
    leaders = None if question["leader"] is None else {key: question["leader"]}
    results = await Admin(client, question["timeout_ms"]).elect_leaders(election, [key], leaders)
    for result in results.values():
        if result.failed:
            raise CommandFailed(f"{key[0]}-{key[1]}: {result.reason}")


async def explain(client: ClusterClient, question: Question) -> dict[str, Any]:
    """Return the document of `kraftbox elect --explain --json`."""
    key = (question["topic"], question["partition"])
    (found,) = await Admin(client).explain_elections([key])
    return document(found)


def change_link(question: Question) -> None:
    """Change the link between two nodes. Raises CommandFailed."""
    from kraftbox.chaos.target import HOST
    from kraftbox.cli.link import CLIENTS, check_ends, rules
    from kraftbox.launcher import control
    from kraftbox.launcher.links import Link
    from kraftbox.launcher.place import ClusterPlace
    from kraftbox.launcher.router import NetworkControl, NetworkError

    place = ClusterPlace(Path(question["dir"]))
    known = place.remembered()
    if known is None or not known.network:
        raise CommandFailed(
            "this cluster has no network of its own: start it with isolate=True (Linux, root); "
            "KafkaNode.cut_off disconnects a node completely"
        )
    if question["do"] == "heal_links":
        links = None
    else:
        ends = [HOST if question[one] == CLIENTS else question[one] for one in ("a", "b")]
        if not all(str(end).isdecimal() for end in ends):
            raise CommandFailed(f"link: expected a node's id or {CLIENTS!r}, got {ends}")
        a, b = (int(end) for end in ends)
        check_ends((a, b), [int(node["id"]) for node in control.status(place)["nodes"]])
        links = rules(a, b, Link(**question["link"]), one_way=question["one_way"])
    try:
        network = NetworkControl(place)
        if links is None:
            network.set_links([])
        else:
            network.change_links(links)
    except NetworkError as error:
        raise CommandFailed(str(error)) from None
