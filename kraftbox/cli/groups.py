"""`kraftbox groups`: list, describe and delete groups, and reset their offsets."""

from __future__ import annotations

import time as clock
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from client.admin import Admin, owners_of
from client.cluster_client import EARLIEST, LATEST, ClusterClient
from client.leaders import TopicPartition
from client.offsets import commit, committed, offsets_at, partitions_of
from kraftbox.cli import completion
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
from kraftbox.cli.positions import Kind, Position, duration_ms, resolve, time_ms

app = command_group("Describe consumer groups and move their offsets.")

GroupArgument = Annotated[
    str, typer.Argument(metavar="GROUP", help="Id of the group.", autocompletion=completion.groups)
]


@app.command("list")
def list_groups(as_json: JsonFlag = False, bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT) -> None:
    """List the groups with their states and types."""
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
    """Show a group's state, its number of members, its committed offsets and their lag."""

    async def work(
        client: ClusterClient,
    ) -> tuple[Any, dict[TopicPartition, int], dict[TopicPartition, int]]:
        described = await Admin(client).describe_group(group)
        offsets = await committed(client, group)
        ends = await offsets_at(client, offsets, LATEST, missing_ok=True)
        return described, offsets, ends

    described, offsets, ends = run(bootstrap, work)
    if described.group_state == "Dead" and not offsets:
        raise CommandFailed(f"unknown group {group}")
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
    groups: Annotated[
        list[str],
        typer.Argument(
            metavar="GROUP...", help="Ids of the groups.", autocompletion=completion.groups
        ),
    ],
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


TopicsOption = Annotated[
    list[str],
    typer.Option(
        "--topic",
        "-t",
        help="Reset the offsets of this topic; repeatable.",
        autocompletion=completion.topics,
    ),
]
TimeOption = Annotated[
    str | None,
    typer.Option(
        "--to-time",
        metavar="TIME",
        help="Move to the first record at or after this time: epoch ms or ISO 8601.",
    ),
]
DurationOption = Annotated[
    str | None,
    typer.Option(
        "--by-duration",
        metavar="DURATION",
        help="Move back by this time from now: 90s, 15m, 2h, 1d.",
    ),
]


@app.command("reset-offsets")
def reset_offsets(
    group: GroupArgument,
    topics: TopicsOption,
    earliest: Annotated[
        bool, typer.Option("--to-earliest", help="Move to the first record.")
    ] = False,
    latest: Annotated[bool, typer.Option("--to-latest", help="Move to the end.")] = False,
    offset: Annotated[
        int | None,
        typer.Option(
            "--to-offset", min=0, help="Move to this offset, or to the nearest one that exists."
        ),
    ] = None,
    time: TimeOption = None,
    timestamp_ms: Annotated[
        int | None, typer.Option("--to-timestamp-ms", min=0, help="Same as --to-time, in epoch ms.")
    ] = None,
    duration: DurationOption = None,
    shift: Annotated[
        int | None,
        typer.Option(
            "--shift-by",
            help="Move N records forward from the committed offset, or back if negative.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the new offsets without committing them.")
    ] = False,
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Move the committed offsets of a group that has no members.

    A time after the last record means the end. An offset outside the log becomes the nearest valid
    one.
    """
    since_ms = _since_ms(time, timestamp_ms, duration)
    targets = (earliest or None, latest or None, offset, shift, time, timestamp_ms, duration)
    if sum(one is not None for one in targets) != 1:
        raise typer.BadParameter(
            "give one of --to-earliest, --to-latest, --to-offset, --to-time, --to-timestamp-ms, "
            "--by-duration, --shift-by"
        )

    async def work(client: ClusterClient) -> dict[TopicPartition, int]:
        described = await Admin(client).describe_group(group)
        if described.group_state not in ("Empty", "Dead"):
            raise CommandFailed(f"group {group} is {described.group_state}: stop its members first")
        wanted = await partitions_of(client, topics)
        if offset is not None:
            target = await nearest(client, dict.fromkeys(wanted, offset))
        elif shift is not None:
            before = await committed(client, group)
            target = await nearest(client, shifted(wanted, before, shift))
        elif since_ms is not None:
            target = await resolve(client, wanted, Position(Kind.TIME, since_ms))
        else:
            target = await offsets_at(client, wanted, EARLIEST if earliest else LATEST)
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


def _since_ms(time: str | None, timestamp_ms: int | None, duration: str | None) -> int | None:
    """Return the time of the options in epoch ms, None if none is given."""
    try:
        if time is not None:
            return time_ms(time)
        if duration is not None:
            return max(0, now_ms() - duration_ms(duration))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return timestamp_ms


def shifted(
    wanted: Sequence[TopicPartition], before: Mapping[TopicPartition, int], by: int
) -> dict[TopicPartition, int]:
    """Return the committed offsets plus `by`. Raises CommandFailed if one is missing."""
    missing = [f"{name}-{index}" for name, index in wanted if (name, index) not in before]
    if missing:
        raise CommandFailed(f"--shift-by needs a committed offset; none for {', '.join(missing)}")
    return {key: before[key] + by for key in wanted}


async def nearest(
    client: ClusterClient, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the offsets, clamped to the range of their logs; each change is printed to stderr."""
    first = await offsets_at(client, wanted, EARLIEST)
    last = await offsets_at(client, wanted, LATEST)
    target = {key: min(max(offset, first[key]), last[key]) for key, offset in wanted.items()}
    for (name, index), chosen in target.items():
        asked = wanted[name, index]
        if chosen != asked:
            say_error(f"{name}-{index} has no offset {asked}: using the nearest, {chosen}")
    return target


def now_ms() -> int:
    return clock.time_ns() // 1_000_000
