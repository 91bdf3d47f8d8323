"""`kraftbox produce` and `kraftbox consume`: records from standard input and to standard output."""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Protocol

import typer

from client.cluster_client import EARLIEST, LATEST, ClusterClient
from client.consumer import Consumer, PositionReset
from client.group_member import GroupMember
from client.leaders import TopicPartition
from client.offsets import check_in_range, offsets_at, partitions_of
from client.visible_records import Received
from kraftbox.cli.connect import BOOTSTRAP_DEFAULT, BootstrapOption, run
from kraftbox.cli.output import CommandFailed, JsonFlag, progress, say_error, say_json
from kraftbox.cli.producer import Line, Producer
from protocol.compression import Codec

BATCH_BYTES = 64 * 1024


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    ALL = "all"
    ONE = "1"
    ZERO = "0"


_ACKS = {Acks.ALL: -1, Acks.ONE: 1, Acks.ZERO: 0}


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read lines from here, not stdin.")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Splits each line: key, value.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="All into this one.")
    ] = None,
    compression: Annotated[
        Compression, typer.Option("--compression", "-z", help="Of the batches.")
    ] = Compression.NONE,
    acks: Annotated[
        Acks, typer.Option("--acks", help="Who must have it: all in sync, the leader, nobody.")
    ] = Acks.ALL,
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Write lines of standard input (or a file) to a topic, one record each."""
    if key_separator == "":
        raise typer.BadParameter("--key-separator needs at least one character")
    separator = None if key_separator is None else key_separator.encode()

    async def work(client: ClusterClient) -> int:
        producer = Producer(client, topic, Codec[compression.name], _ACKS[acks], partition)
        await producer.start()
        if producer.created_partitions:
            count = producer.created_partitions
            many = "partition" if count == 1 else "partitions"
            say_error(f"there was no topic {topic}: it was created, with {count} {many}")
        total = None if file is None else file.stat().st_size
        with _input(file) as source, progress("producing", total) as ticker:
            batch: list[Line] = []
            size = 0
            for raw in source:
                line = raw.rstrip(b"\r\n")
                batch.append(_split(line, separator))
                size += len(line)
                ticker.advance(len(raw))
                if size >= BATCH_BYTES:
                    await producer.send(batch)
                    batch, size = [], 0
            await producer.send(batch)
        await producer.close()
        return producer.sent

    sent = run(bootstrap, work)
    if as_json:
        say_json({"topic": topic, "records": sent})
    elif sys.stderr.isatty():
        say_error(f"{sent} records written to {topic}")


def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics.")],
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Join this group and commit.")
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Where there is no committed offset.")
    ] = False,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="This one only.")
    ] = None,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="Start here.")] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, help="Stop after so many.")
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="Stop at what was the end at the start.")
    ] = False,
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", min=1, help="Stop after so long without records.")
    ] = None,
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Leave out aborted records.")
    ] = False,
    show_keys: Annotated[bool, typer.Option("--keys", help="Print KEY<tab>VALUE.")] = False,
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Read records and print their values, until interrupted or as the options say."""
    if offset is not None and partition is None:
        raise typer.BadParameter("--offset needs --partition")
    if offset is not None and from_beginning:
        raise typer.BadParameter("--offset and --from-beginning exclude each other")
    if group is not None and (partition is not None or exit_at_end):
        raise typer.BadParameter("a group chooses its partitions: no --partition, no --exit")
    printer = Printer(max_messages, keys=show_keys, as_json=as_json)

    async def work(client: ClusterClient) -> None:
        consumer = Consumer(client, read_committed=read_committed, on_reset=say_reset)
        idle = Idle(timeout_ms)
        if group is not None:
            start = EARLIEST if from_beginning else LATEST
            await follow_group(
                GroupMember(client, group, topics, consumer, start=start), printer, idle
            )
            return
        chosen = await chosen_partitions(client, topics, partition)
        if offset is not None:
            positions = dict.fromkeys(chosen, offset)
            await check_in_range(client, positions)
            consumer.assign(positions)
        else:
            # What ends at the end has to begin before it.
            first = EARLIEST if from_beginning or exit_at_end else LATEST
            consumer.assign(await offsets_at(client, chosen, first))
        ends = await offsets_at(client, chosen, LATEST) if exit_at_end else None
        await follow(consumer, printer, idle, ends)

    try:
        run(bootstrap, work)
    finally:
        printer.flush()


async def chosen_partitions(
    client: ClusterClient, topics: Sequence[str], partition: int | None
) -> list[TopicPartition]:
    """All partitions of the topics, or the one of each with this number.

    Raises CommandFailed when there is none, Refused.
    """
    chosen = await partitions_of(client, topics)
    if partition is None:
        return chosen
    chosen = [entry for entry in chosen if entry[1] == partition]
    if not chosen:
        raise CommandFailed(f"{', '.join(topics)} has no partition {partition}")
    return chosen


class RecordPrinter(Protocol):
    """Prints records until it has printed enough."""

    @property
    def left(self) -> int | None:
        """How many records it still takes; None is any number."""

    def __call__(self, record: Received) -> None: ...

    def flush(self) -> None: ...


async def follow(
    source: Consumer | GroupMember,
    printer: RecordPrinter,
    idle: Idle,
    ends: Mapping[TopicPartition, int] | None = None,
) -> None:
    """Print records until it is enough, nothing comes any more, or these ends are reached."""
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
    """As a member of a group, which it leaves at the end, whatever that is."""
    try:
        await member.join()
        await follow(member, printer, idle)
    finally:
        await member.close()


def say_reset(reset: PositionReset) -> None:
    say_error(
        f"{reset.topic}-{reset.partition} has no offset {reset.asked} any more: it begins at"
        f" {reset.log_start_offset} and ends at {reset.log_end_offset}, reading goes on at"
        f" {reset.position}"
    )


class Printer:
    """Prints records until it has printed enough."""

    def __init__(self, limit: int | None, *, keys: bool, as_json: bool) -> None:
        self.left = limit
        self._keys = keys
        self._as_json = as_json
        self._out = sys.stdout.buffer

    def __call__(self, record: Received) -> None:
        if self._as_json:
            say_json(_record_json(record))
        else:
            if self._keys:
                self._out.write((record.key or b"") + b"\t")
            self._out.write((record.value or b"") + b"\n")
        if self.left is not None:
            self.left -= 1

    def flush(self) -> None:
        sys.stdout.flush()
        self._out.flush()


class Idle:
    """How long nothing has come; never passes without a limit."""

    def __init__(self, limit_ms: int | None) -> None:
        self._limit_ms = limit_ms
        self._since = time.monotonic()

    def restart(self) -> None:
        self._since = time.monotonic()

    def passed(self) -> bool:
        if self._limit_ms is None:
            return False
        return (time.monotonic() - self._since) * 1000 > self._limit_ms


def _input(file: Path | None) -> BinaryIO:
    if file is None:
        return open(0, "rb", closefd=False)
    try:
        return open(file, "rb")
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}") from None


def _split(line: bytes, separator: bytes | None) -> Line:
    if separator is None or separator not in line:
        return Line(None, line)
    key, _, value = line.partition(separator)
    return Line(key, value)


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode()


def _record_json(record: Received) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }
