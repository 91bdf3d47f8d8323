"""`kraftbox groups`: list, describe, delete, reset-offsets."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from client.admin import Admin, owners_of
from client.cluster_client import EARLIEST, LATEST, ClusterClient
from client.leaders import TopicPartition
from client.offsets import commit, committed, offsets_at, partitions_of
from kraftbox.cli.connect import BOOTSTRAP_DEFAULT, BootstrapOption, run
from kraftbox.cli.output import (
    CommandFailed,
    JsonFlag,
    command_group,
    say,
    say_error,
    say_json,
    table,
)

app = command_group("Look at consumer groups and move their offsets.")

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]


@app.command("list")
def list_groups(as_json: JsonFlag = False, bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT) -> None:
    """List groups."""
    groups = run(bootstrap, lambda client: Admin(client).list_groups())
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

    async def work(
        client: ClusterClient,
    ) -> tuple[Any, dict[TopicPartition, int], dict[TopicPartition, int]]:
        described = await Admin(client).describe_group(group)
        offsets = await committed(client, group)
        ends = await offsets_at(client, offsets, LATEST, missing_ok=True)
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
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Groups, by id.")],
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Delete groups that have no members, with their offsets."""

    async def work(client: ClusterClient) -> None:
        for group in groups:
            await Admin(client).delete_group(group)

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
    earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    offset: Annotated[
        int | None,
        typer.Option("--to-offset", min=0, help="To this one, or the nearest that is there."),
    ] = None,
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

    async def work(client: ClusterClient) -> dict[TopicPartition, int]:
        described = await Admin(client).describe_group(group)
        if described.group_state not in ("Empty", "Dead"):
            raise CommandFailed(f"{group} is {described.group_state}: its members must stop first")
        wanted = await partitions_of(client, topics)
        first = await offsets_at(client, wanted, EARLIEST)
        last = await offsets_at(client, wanted, LATEST)
        if offset is not None:
            target = {key: min(max(offset, first[key]), last[key]) for key in wanted}
            for (name, index), chosen in target.items():
                if chosen != offset:
                    say_error(f"{name}-{index} has no offset {offset}: {chosen} is the nearest")
        elif timestamp_ms is not None:
            found = await offsets_at(client, wanted, timestamp_ms)
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
