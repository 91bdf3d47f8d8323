"""kafka-consumer-groups.sh: list, describe and delete groups, move and delete their offsets."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from client.admin import Admin, owners_of
from client.cluster_client import EARLIEST, LATEST, ClusterClient
from client.errors import Refused
from client.leaders import TopicPartition
from client.offsets import commit, committed, offsets_at, partitions_of
from kraftbox.cli.connect import run
from kraftbox.cli.output import CommandFailed, say
from kraftbox.kafka_tools.options import (
    add_actions,
    add_bootstrap,
    bootstrap_of,
    chosen,
    columns,
    parser,
)
from protocol.messages.describe_groups import DescribeGroupsResponse
from runtime.printable import escape

Group = DescribeGroupsResponse.DescribedGroup


def main(name: str, arguments: Sequence[str]) -> int:
    options = _options(name, arguments)
    bootstrap = bootstrap_of(options)
    action = chosen(options, ACTIONS)
    if action != "list" and not (options.group or options.all_groups):
        raise CommandFailed(f"--{action} needs --group or --all-groups")
    run(bootstrap, lambda client: _act(client, action, options))
    return 0


async def _act(client: ClusterClient, action: str, options: argparse.Namespace) -> None:
    """Run an action.

    As in Kafka's tool, a refusal is printed to stderr and does not fail the command.
    """
    try:
        await ACTIONS[action](client, options)
    except (CommandFailed, Refused) as error:
        _say_error(str(error))


def _say_error(message: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(f"\nError: {escape(message)}\n")


def _options(name: str, arguments: Sequence[str]) -> argparse.Namespace:
    options = parser(name, __doc__ or "")
    add_bootstrap(options)
    add_actions(options, ACTIONS)
    options.add_argument("--group", action="append")
    options.add_argument("--topic", action="append", metavar="TOPIC[:PARTITION,...]")
    options.add_argument(
        "--state", nargs="?", const="", help="with --list: only groups in these states"
    )
    options.add_argument("--timeout", type=int, default=5000, help="milliseconds")
    options.add_argument("--to-offset", type=int)
    options.add_argument("--shift-by", type=int)
    for flag in (
        "all-groups",
        "all-topics",
        "members",
        "offsets",
        "verbose",
        "dry-run",
        "execute",
        "to-earliest",
        "to-latest",
        "to-current",
    ):
        options.add_argument(f"--{flag}", action="store_true")
    return options.parse_args(arguments)


async def _names(client: ClusterClient, options: argparse.Namespace) -> list[str]:
    if options.all_groups:
        return [group.group_id for group in await Admin(client).list_groups()]
    return list(options.group)


async def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    groups = await Admin(client).list_groups()
    if options.state is None:
        for group in groups:
            say(group.group_id)
        return
    wanted = {state.strip().lower() for state in options.state.split(",") if state.strip()}
    rows = [(g.group_id, g.group_state) for g in groups]
    columns([("GROUP", "STATE"), *(r for r in rows if not wanted or r[1].lower() in wanted)])


async def _describe(client: ClusterClient, options: argparse.Namespace) -> None:
    for name in await _names(client, options):
        group = await Admin(client).describe_group(name)
        offsets = await committed(client, name)
        if group.group_state == "Dead" and not offsets:
            _say_error(f"Consumer group '{name}' does not exist.")
            continue
        if group.group_state == "Empty" and options.state is None:
            say("")
            say(f"Consumer group '{name}' has no active members.")
        say("")
        if options.state is not None:
            await _show_state(client, group)
        elif options.members:
            _show_members(group)
        else:
            await _show_offsets(client, group, offsets)


async def _show_state(client: ClusterClient, group: Group) -> None:
    node = await client.coordinator(group.group_id)
    broker = next(b for b in (await client.metadata([])).brokers if b.node_id == node)
    where = f"{broker.host}:{broker.port}  ({node})"
    heading = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    protocol = group.protocol_data or None
    columns([heading, (group.group_id, where, protocol, group.group_state, len(group.members))])


def _show_members(group: Group) -> None:
    owned = list(owners_of(group.members).values())
    rows = [
        (group.group_id, m.member_id, m.client_host, m.client_id, owned.count(m.member_id))
        for m in group.members
    ]
    columns([("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"), *rows])


async def _show_offsets(
    client: ClusterClient, group: Group, offsets: Mapping[TopicPartition, int]
) -> None:
    owners = owners_of(group.members)
    members = {member.member_id: member for member in group.members}
    wanted = sorted({*offsets, *owners})
    ends = await offsets_at(client, wanted, LATEST, missing_ok=True)
    rows: list[tuple[object, ...]] = []
    for key in wanted:
        end, at = ends.get(key), offsets.get(key)
        lag = None if end is None or at is None else max(0, end - at)
        member = members.get(owners.get(key, ""))
        owner = (
            (None, None, None)
            if member is None
            else (member.member_id, member.client_host, member.client_id)
        )
        rows.append((group.group_id, *key, at, end, lag, *owner))
    heading = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    columns([(*heading, "CONSUMER-ID", "HOST", "CLIENT-ID"), *rows])


async def _delete(client: ClusterClient, options: argparse.Namespace) -> None:
    names = await _names(client, options)
    for name in names:
        try:
            await Admin(client).delete_group(name)
        except Refused as error:
            raise CommandFailed(f"Group '{name}' could not be deleted: {error.reason}") from None
    listed = ", ".join(f"'{name}'" for name in names)
    say(f"Deletion of requested consumer groups ({listed}) was successful.")


async def _wanted(
    client: ClusterClient, options: argparse.Namespace, group: str
) -> list[TopicPartition]:
    if options.all_topics:
        return sorted(await committed(client, group))
    found: list[TopicPartition] = []
    for entry in options.topic or ():
        topic, colon, listed = entry.partition(":")
        every = await partitions_of(client, [topic])
        chosen = {int(part) for part in listed.split(",")} if colon else None
        found += [key for key in every if chosen is None or key[1] in chosen]
    if not found:
        raise CommandFailed("--topic or --all-topics must name partitions")
    return found


async def _reset(client: ClusterClient, options: argparse.Namespace) -> None:
    for name in await _names(client, options):
        group = await Admin(client).describe_group(name)
        if group.group_state not in ("Empty", "Dead"):
            raise CommandFailed(
                f"offsets of group '{name}' cannot be reset: it is {group.group_state}"
            )
        keys = await _wanted(client, options, name)
        target = await _target(client, options, name, keys)
        if options.execute:
            await commit(client, name, target)
        rows = [(name, *key, offset) for key, offset in sorted(target.items())]
        say("")
        columns([("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), *rows])


async def _target(
    client: ClusterClient, options: argparse.Namespace, group: str, keys: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the new offsets, clamped to the range of the logs. Raises CommandFailed."""
    first = await offsets_at(client, keys, EARLIEST)
    last = await offsets_at(client, keys, LATEST)
    if options.to_earliest:
        return first
    if options.to_latest:
        return last
    now = await committed(client, group)
    if options.to_offset is not None:
        offsets = dict.fromkeys(keys, int(options.to_offset))
    elif options.shift_by is not None:
        offsets = {key: now.get(key, last[key]) + int(options.shift_by) for key in keys}
    elif options.to_current:
        offsets = {key: now.get(key, last[key]) for key in keys}
    else:
        raise CommandFailed(
            "give one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by"
        )
    return {key: min(max(offsets[key], first[key]), last[key]) for key in keys}


async def _delete_offsets(client: ClusterClient, options: argparse.Namespace) -> None:
    for name in await _names(client, options):
        wanted = await _wanted(client, options, name)
        await Admin(client).delete_offsets(name, wanted)
        rows = [(*key, "Successful") for key in wanted]
        columns([("TOPIC", "PARTITION", "STATUS"), *rows])


ACTIONS = {
    "list": _list,
    "describe": _describe,
    "delete": _delete,
    "reset-offsets": _reset,
    "delete-offsets": _delete_offsets,
}
