"""`kraftbox consume`: print records on standard output."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Protocol

import typer

from client.cluster_client import EARLIEST, LATEST, ClusterClient
from client.consumer import Consumer, PositionReset
from client.group_member import GroupMember
from client.leaders import TopicPartition
from client.offsets import led_partitions, offsets_at, partitions_of
from client.visible_records import Received
from kraftbox.cli.connect import BOOTSTRAP_DEFAULT, BootstrapOption, run
from kraftbox.cli.output import CommandFailed, JsonFlag, say_error, shown_bytes
from kraftbox.cli.positions import END, Kind, Position, parse_position, resolve
from kraftbox.cli.record_text import as_json as record_json
from kraftbox.cli.record_text import formatter
from kraftbox.cli.waiting import named, noticed, say_waiting

LEADERS_MS_MAX = 2_000
NL = b"\n"
OffsetOption = Annotated[
    str | None,
    typer.Option(
        "--offset",
        "-o",
        metavar="OFFSET|end|beginning|-COUNT|@TIME",
        help=(
            "Start at this position: an offset (with --partition), -N for N records "
            "before the end, @TIME (epoch ms or ISO 8601)."
        ),
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        "-f",
        help=(
            "Print this for each record: %t topic, %p partition, %o offset, %T "
            "timestamp, %k key, %s value, %K key size, %S value size, %h headers; "
            "\\n, \\t."
        ),
    ),
]


FromBeginningOption = Annotated[
    bool,
    typer.Option(
        "--from-beginning",
        help="Start at the first record if the group has no committed offset.",
    ),
]
ExitAtEndOption = Annotated[
    bool,
    typer.Option(
        "--exit",
        "-e",
        help="Exit at the log end offset that each partition has at the start.",
    ),
]
TimeoutMsOption = Annotated[
    int | None,
    typer.Option("--timeout-ms", min=1, help="Exit after this many milliseconds without a record."),
]


def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of the topics.")],
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="Join this consumer group and commit offsets."),
    ] = None,
    from_beginning: FromBeginningOption = False,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Read this partition only.")
    ] = None,
    offset: OffsetOption = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, help="Exit after N records.")
    ] = None,
    exit_at_end: ExitAtEndOption = False,
    timeout_ms: TimeoutMsOption = None,
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Skip records of aborted transactions.")
    ] = False,
    show_keys: Annotated[bool, typer.Option("--keys", help="Print KEY<tab>VALUE.")] = False,
    form: FormatOption = None,
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Read records and print their values, until interrupted or an option's limit is reached.

    An offset outside the log ends the command with exit code 1.
    """
    position = None if offset is None else _position(offset, partition)
    if sum((show_keys, form is not None, as_json)) > 1:
        raise typer.BadParameter("give at most one of --keys, --format, --json")
    if offset is not None and from_beginning:
        raise typer.BadParameter("give --offset or --from-beginning, not both")
    if group is not None and (partition is not None or exit_at_end or offset is not None):
        raise typer.BadParameter(
            "--group assigns partitions and offsets: leave out --partition, --offset and --exit"
        )
    printer = Printer(max_messages, _form(form, keys=show_keys, as_json=as_json))

    async def work(client: ClusterClient) -> None:
        consumer = Consumer(
            client,
            read_committed=read_committed,
            leader_timeout_ms=math.inf,
            on_reset=say_reset,
            on_waiting=say_waiting,
        )
        idle = Idle(timeout_ms)
        if group is not None:
            start = EARLIEST if from_beginning else LATEST
            await follow_group(
                GroupMember(client, group, topics, consumer, start=start), printer, idle
            )
            return
        async with noticed(f"waiting for the offsets of {', '.join(topics)}"):
            chosen = await chosen_partitions(client, topics, partition)
            leaderless: Sequence[TopicPartition] = ()
            begin = _start(position, from_beginning=from_beginning or exit_at_end)
            if exit_at_end or begin is None:
                chosen, leaderless = await split_led(client, chosen, timeout_ms)
            if begin is not None:
                consumer.assign(dict.fromkeys(chosen, begin))
            elif position is not None:
                consumer.assign(await resolve(client, chosen, position))
            ends = await offsets_at(client, chosen, LATEST) if exit_at_end else None
        await follow(consumer, printer, idle, ends)
        unread = leaderless or [key for key in chosen if not client.cache.is_led(key)]
        if unread and printer.left != 0:
            raise CommandFailed(f"not read: {named(unread)} (no leader)")

    try:
        run(bootstrap, work)
    finally:
        printer.flush()


def _position(text: str, partition: int | None) -> Position:
    try:
        position = parse_position(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--offset") from None
    if position.kind is Kind.OFFSET and partition is None:
        raise typer.BadParameter("--offset with a number needs --partition", param_hint="--offset")
    return position


def _start(position: Position | None, *, from_beginning: bool) -> int | None:
    """Return EARLIEST or LATEST; None for a position that only a leader can find.

    With --exit the start must be before the end, so it is the beginning.
    """
    if position is None:
        return EARLIEST if from_beginning else LATEST
    if position.kind is Kind.BEGINNING:
        return EARLIEST
    return LATEST if position == END else None


def _form(form: str | None, *, keys: bool, as_json: bool) -> Callable[[Received], bytes]:
    if as_json:
        return lambda record: json.dumps(record_json(record), separators=(",", ":")).encode() + NL
    try:
        return formatter(form or (r"%k\t%s\n" if keys else r"%s\n"))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--format") from None


async def chosen_partitions(
    client: ClusterClient, topics: Sequence[str], partition: int | None
) -> list[TopicPartition]:
    """Return all partitions of the topics, or only those with the given number.

    Raises CommandFailed if the number does not exist, Refused.
    """
    chosen = await partitions_of(client, topics)
    if partition is None:
        return chosen
    chosen = [entry for entry in chosen if entry[1] == partition]
    if not chosen:
        raise CommandFailed(f"{', '.join(topics)}: unknown partition {partition}")
    return chosen


async def split_led(
    client: ClusterClient, partitions: Sequence[TopicPartition], timeout_ms: int | None
) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """Return the partitions with and without a leader, after at most LEADERS_MS_MAX.

    The election after a crash takes a moment. Prints the leaderless ones; raises CommandFailed if
    no partition has a leader.
    """
    wait_ms = LEADERS_MS_MAX if timeout_ms is None else min(LEADERS_MS_MAX, timeout_ms)
    led = await led_partitions(client, partitions, wait_ms)
    leaderless = [key for key in partitions if key not in set(led)]
    if not led:
        raise CommandFailed(f"not read: {named(leaderless)} (no leader)")
    if leaderless:
        say_error(f"reading {named(led)}; no leader: {named(leaderless)}")
    return led, leaderless


class RecordPrinter(Protocol):
    """Printer of records with a limit."""

    @property
    def left(self) -> int | None:
        """The number of records that it still accepts; None for no limit."""

    def __call__(self, record: Received) -> None: ...

    def flush(self) -> None: ...


async def follow(
    source: Consumer | GroupMember,
    printer: RecordPrinter,
    idle: Idle,
    ends: Mapping[TopicPartition, int] | None = None,
) -> None:
    """Print records until the printer is full, `idle` has passed, or `ends` are reached."""
    while printer.left != 0 and not idle.passed():
        if ends is not None and all(source.positions[key] >= end for key, end in ends.items()):
            return
        records = await source.poll(printer.left)
        for record in records:
            printer(record)
        if records:
            idle.restart()
        printer.flush()


async def follow_group(member: GroupMember, printer: RecordPrinter, idle: Idle) -> None:
    """Print records as a member of a group; leave the group at the end, also after an error."""
    try:
        async with noticed("waiting to join the group"):
            await member.join()
        await follow(member, printer, idle)
    finally:
        await member.close()


def say_reset(reset: PositionReset) -> None:
    say_error(
        f"{reset.topic}-{reset.partition}: offset {reset.requested_offset} is out of range "
        f"({reset.log_start_offset} to {reset.log_end_offset}); continuing at "
        f"{reset.position}"
    )


class Printer:
    """Printer that accepts `limit` records."""

    def __init__(self, limit: int | None, form: Callable[[Received], bytes]) -> None:
        self.left = limit
        self._form = form
        self._out = sys.stdout.buffer

    def __call__(self, record: Received) -> None:
        self._out.write(shown_bytes(self._form(record)))
        if self.left is not None:
            self.left -= 1

    def flush(self) -> None:
        self._out.flush()


class Idle:
    """Timeout since the last record; without a limit it never passes."""

    def __init__(self, limit_ms: int | None) -> None:
        self._limit_ms = limit_ms
        self._since = time.monotonic()

    def restart(self) -> None:
        self._since = time.monotonic()

    def passed(self) -> bool:
        if self._limit_ms is None:
            return False
        return (time.monotonic() - self._since) * 1000 > self._limit_ms
