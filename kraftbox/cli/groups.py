"""`kraftbox groups`: list, describe, delete, reset-offsets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from kraftbox.cli.client import BOOTSTRAP_DEFAULT, BootstrapOption, Client, check, run
from kraftbox.cli.offsets import (
    EARLIEST,
    LATEST,
    Partition,
    commit,
    committed,
    end_offsets,
    partitions_of,
)
from kraftbox.cli.output import CommandFailed, JsonFlag, say, say_error, say_json, table
from protocol.errors import ErrorCode, ProtocolError
from protocol.internal import decode_versioned
from protocol.internal.consumer_protocol_assignment import ConsumerProtocolAssignment
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

app = typer.Typer(help="Look at consumer groups and move their offsets.", no_args_is_help=True)

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP")]


async def all_groups(client: Client) -> list[ListGroupsResponse.ListedGroup]:
    """The groups of every coordinator."""
    found = []
    for broker in (await client.metadata([])).brokers:
        reply = await client.send(ListGroupsRequest(), node=broker.node_id)
        check(reply.error_code, f"node {broker.node_id}")
        found += reply.groups
    return sorted(found, key=lambda group: group.group_id)


@app.command("list")
def list_groups(as_json: JsonFlag = False, bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT) -> None:
    """List groups."""
    groups = run(bootstrap, all_groups)
    if as_json:
        say_json(
            [
                {
                    "groupId": g.group_id,
                    "state": g.group_state,
                    "type": g.group_type,
                    "protocolType": g.protocol_type,
                }
                for g in groups
            ]
        )
        return
    table(["GROUP", "STATE", "TYPE"], [(g.group_id, g.group_state, g.group_type) for g in groups])


@app.command()
def describe(
    group: GroupArgument,
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """State, members, committed offsets and how far they are behind."""

    async def work(client: Client) -> tuple[Any, dict[Partition, int], dict[Partition, int]]:
        described = await describe_group(client, group)
        offsets = await committed(client, group)
        ends = await end_offsets(client, offsets, LATEST, missing_ok=True)
        return described, offsets, ends

    described, offsets, ends = run(bootstrap, work)
    if described.group_state == "Dead" and not offsets:
        raise CommandFailed(f"there is no group {group}")
    owners = owners_of(described.members)
    lines = [
        {
            "topic": topic,
            "partition": index,
            "committed": offset,
            "end": ends.get((topic, index)),
            "lag": max(0, ends[topic, index] - offset) if (topic, index) in ends else None,
            "member": owners.get((topic, index)),
        }
        for (topic, index), offset in sorted(offsets.items())
    ]
    if as_json:
        say_json(
            {
                "groupId": group,
                "state": described.group_state,
                "protocol": described.protocol_data,
                "members": [m.member_id for m in described.members],
                "offsets": lines,
            }
        )
        return
    say(f"{group}: {described.group_state}, {len(described.members)} members")
    table(
        ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"],
        [tuple(line.values()) for line in lines],
    )


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP")],
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Delete groups that have no members, with their offsets."""

    async def work(client: Client) -> None:
        for group in groups:
            reply = await client.ask_coordinator(group, DeleteGroupsRequest(groups_names=[group]))
            check(reply.results[0].error_code, group)

    run(bootstrap, work)
    if as_json:
        say_json([{"groupId": group} for group in groups])
        return
    for group in groups:
        say(f"deleted {group}")


@app.command("reset-offsets")
def reset_offsets(
    group: GroupArgument,
    topics: Annotated[list[str], typer.Option("--topic", "-t", help="May be repeated.")],
    earliest: Annotated[bool, typer.Option("--to-earliest")] = False,
    latest: Annotated[bool, typer.Option("--to-latest")] = False,
    offset: Annotated[int | None, typer.Option("--to-offset", min=0)] = None,
    timestamp_ms: Annotated[
        int | None, typer.Option("--to-timestamp-ms", min=0, help="First record not older.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show, do not commit.")] = False,
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Move the committed offsets of a group that has no members."""
    if sum((earliest, latest, offset is not None, timestamp_ms is not None)) != 1:
        raise typer.BadParameter(
            "give one of --to-earliest, --to-latest, --to-offset, --to-timestamp-ms"
        )

    async def work(client: Client) -> dict[Partition, int]:
        described = await describe_group(client, group)
        if described.group_state not in ("Empty", "Dead"):
            raise CommandFailed(f"{group} is {described.group_state}: its members must stop first")
        wanted = await partitions_of(client, topics)
        first = await end_offsets(client, wanted, EARLIEST)
        last = await end_offsets(client, wanted, LATEST)
        if offset is not None:
            target = {key: min(max(offset, first[key]), last[key]) for key in wanted}
            for (name, index), chosen in target.items():
                if chosen != offset:
                    say_error(f"{name}-{index} has no offset {offset}: {chosen} is the nearest")
        elif timestamp_ms is not None:
            found = await end_offsets(client, wanted, timestamp_ms)
            target = {key: found[key] if found[key] >= 0 else last[key] for key in wanted}
        else:
            target = first if earliest else last
        if not dry_run:
            await commit(client, group, target)
        return target

    target = run(bootstrap, work)
    if as_json:
        say_json(
            [{"topic": t, "partition": p, "offset": o} for (t, p), o in sorted(target.items())]
        )
        return
    table(["TOPIC", "PARTITION", "OFFSET"], [(t, p, o) for (t, p), o in sorted(target.items())])


async def describe_group(client: Client, group: str) -> DescribeGroupsResponse.DescribedGroup:
    """One group by its coordinator; an unknown one is Dead."""
    reply = await client.ask_coordinator(group, DescribeGroupsRequest(groups=[group]))
    described = reply.groups[0]
    if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        described.group_state = "Dead"
        return described
    check(described.error_code, group, described.error_message)
    return described


def owners_of(
    members: Iterable[DescribeGroupsResponse.DescribedGroupMember],
) -> dict[Partition, str]:
    owners = {}
    for member in members:
        try:
            assignment, _ = decode_versioned(
                ConsumerProtocolAssignment, member.member_assignment, newer_as_latest=True
            )
        except ProtocolError:
            continue
        for topic in assignment.assigned_partitions:
            for index in topic.partitions:
                owners[topic.topic, index] = member.member_id
    return owners
