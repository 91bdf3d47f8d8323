"""`kraftbox produce`: write records from standard input or a file."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, NamedTuple

import typer

from client.cluster_client import ClusterClient
from kraftbox.cli.connect import BOOTSTRAP_DEFAULT, BootstrapOption, run
from kraftbox.cli.output import CommandFailed, JsonFlag, progress, say_error, say_json
from kraftbox.cli.positions import time_ms
from kraftbox.cli.producer import Producer
from kraftbox.cli.record_text import Line, from_json
from protocol.compression import Codec

BATCH_BYTES = 64 * 1024
RATE_BATCHES_PER_S = 10


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


class Format(StrEnum):
    """The format of an input line."""

    TEXT = "text"
    JSON = "json"


_ACKS = {Acks.ALL: -1, Acks.ONE: 1, Acks.ZERO: 0}

FileOption = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="Read lines from this file; default: standard input."),
]
FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        help="Format of a line. text: a value; json: an object as `consume --json` prints it.",
    ),
]
KeySeparatorOption = Annotated[
    str | None,
    typer.Option("--key-separator", "-K", help="Split each line into key and value at this text."),
]
TombstonesFlag = Annotated[
    bool, typer.Option("--tombstones", help="Write an empty value as null, which deletes the key.")
]
HeaderOption = Annotated[
    list[str],
    typer.Option(
        "--header", "-H", metavar="NAME=VALUE", help="Add this header to each record; repeatable."
    ),
]
TimestampOption = Annotated[
    str | None,
    typer.Option(
        "--timestamp",
        metavar="TIME",
        help="Timestamp of each record: epoch ms or ISO 8601; default: now.",
    ),
]
PartitionOption = Annotated[
    int | None,
    typer.Option("--partition", "-p", min=0, help="Write all records to this partition."),
]
CompressionOption = Annotated[
    Compression, typer.Option("--compression", "-z", help="Compression of the batches.")
]
AcksOption = Annotated[
    Acks,
    typer.Option(
        "--acks",
        help=(
            "Replicas that must have a record before it is acknowledged: "
            "all in sync, the leader, none."
        ),
    ),
]
RateOption = Annotated[
    int | None, typer.Option("--rate", min=1, help="Write at most N records per second.")
]


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    file: FileOption = None,
    form: FormatOption = Format.TEXT,
    key_separator: KeySeparatorOption = None,
    tombstones: TombstonesFlag = False,
    headers: HeaderOption = [],
    timestamp: TimestampOption = None,
    partition: PartitionOption = None,
    rate: RateOption = None,
    compression: CompressionOption = Compression.NONE,
    acks: AcksOption = Acks.ALL,
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Write each line of standard input (or a file) to a topic as one record.

    The partition and timestamp of a JSON line override the options; its headers follow those of the
    options.
    """
    if key_separator == "":
        raise typer.BadParameter("--key-separator must have at least one character")
    if key_separator is not None and form is Format.JSON:
        raise typer.BadParameter(
            "--key-separator is for --format text; JSON lines contain their key"
        )
    reader = Reader(
        form,
        None if key_separator is None else key_separator.encode(),
        tombstones,
        tuple(_header(text) for text in headers),
        _timestamp(timestamp),
    )

    async def work(client: ClusterClient) -> int:
        producer = Producer(client, topic, Codec[compression.name], _ACKS[acks], partition)
        await producer.start()
        if producer.created_partitions:
            count = producer.created_partitions
            many = "partition" if count == 1 else "partitions"
            say_error(f"created topic {topic} with {count} {many}")
        total = None if file is None else file.stat().st_size
        with _input(file) as source, progress("producing", total) as ticker:
            pace = Pace(rate, time.monotonic())
            for batch in batches(source, reader, pace.batch_max, ticker.advance):
                await asyncio.sleep(pace.wait_s(producer.sent, time.monotonic()))
                await producer.send(batch)
        await producer.close()
        return producer.sent

    sent = run(bootstrap, work)
    if as_json:
        say_json({"topic": topic, "records": sent})
    elif sys.stderr.isatty():
        say_error(f"wrote {sent} records to {topic}")


class Reader(NamedTuple):
    """Parser of lines into records. With `separator` None, lines have no key."""

    form: Format = Format.TEXT
    separator: bytes | None = None
    tombstones: bool = False
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None

    def read(self, line: bytes, number: int) -> Line:
        """Parse a line. Raises CommandFailed, with `number`, for a line that is invalid."""
        if self.form is Format.JSON:
            try:
                found = from_json(line)
            except ValueError as error:
                raise CommandFailed(f"line {number}: {error}") from None
            at = self.timestamp_ms if found.timestamp_ms is None else found.timestamp_ms
            return found._replace(headers=self.headers + found.headers, timestamp_ms=at)
        key: bytes | None = None
        value: bytes | None = line
        if self.separator is not None and self.separator in line:
            key, _, value = line.partition(self.separator)
        if self.tombstones and not value:
            value = None
        return Line(key, value, self.headers, self.timestamp_ms)


class Pace(NamedTuple):
    """Rate limit: `rate` records per second from `begun_s` on, None without a limit."""

    rate: int | None
    begun_s: float

    @property
    def batch_max(self) -> int | None:
        """The number of records per batch, small enough for an even rate."""
        return None if self.rate is None else max(1, self.rate // RATE_BATCHES_PER_S)

    def wait_s(self, sent: int, now_s: float) -> float:
        """Return how long to wait before the next batch, after `sent` records."""
        return 0.0 if self.rate is None else max(0.0, self.begun_s + sent / self.rate - now_s)


def batches(
    source: BinaryIO, reader: Reader, records_max: int | None, advance: Callable[[int], None]
) -> Iterator[list[Line]]:
    """Yield the lines' records in batches of `records_max` records or BATCH_BYTES.

    `advance` is called with the bytes of each line. Raises CommandFailed.
    """
    batch: list[Line] = []
    size = 0
    for number, raw in enumerate(source, start=1):
        line = raw.rstrip(b"\r\n")
        batch.append(reader.read(line, number))
        size += len(line)
        advance(len(raw))
        if size >= BATCH_BYTES or len(batch) == records_max:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"expected NAME=VALUE, got {text!r}", param_hint="--header")
    return name, value.encode()


def _timestamp(text: str | None) -> int | None:
    try:
        return None if text is None else time_ms(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--timestamp") from None


def _input(file: Path | None) -> BinaryIO:
    if file is None:
        return open(0, "rb", closefd=False)
    try:
        return open(file, "rb")
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}") from None
