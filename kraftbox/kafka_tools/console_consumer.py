"""kafka-console-consumer.sh: print the records of topics."""

from __future__ import annotations

import argparse
import asyncio
import re
import struct
import sys
from collections.abc import Callable, Sequence
from typing import BinaryIO

from client.cluster_client import EARLIEST, LATEST, ClusterClient
from client.consumer import Consumer
from client.group_member import GroupMember
from client.visible_records import Received
from kraftbox.cli.connect import run
from kraftbox.cli.output import CommandFailed, shown_bytes
from kraftbox.cli.records import Idle, chosen_partitions, follow, follow_group, say_reset
from kraftbox.kafka_tools.options import (
    add_bootstrap,
    bootstrap_of,
    check_client_properties,
    file_properties,
    flag,
    known_pairs,
    pairs,
    parser,
)

FORMATTER_PROPERTIES = (
    "print.timestamp",
    "print.partition",
    "print.offset",
    "print.headers",
    "print.key",
    "print.value",
    "key.separator",
    "line.separator",
    "headers.separator",
    "null.literal",
    "key.deserializer",
    "value.deserializer",
)
AS_IT_IS = ("StringDeserializer", "ByteArrayDeserializer", "BytesDeserializer")
NUMBERS = {
    "ShortDeserializer": ">h",
    "IntegerDeserializer": ">i",
    "LongDeserializer": ">q",
    "FloatDeserializer": ">f",
    "DoubleDeserializer": ">d",
}
"""Kafka's deserializers of numbers, and their struct formats."""
EVERY_MS = 1000
"""Interval of searching the topics of a pattern until one exists."""


def deserializer(properties: dict[str, str], part: str) -> Callable[[bytes], bytes]:
    """Return the function that formats a key or value.

    Raises CommandFailed for an unsupported class.
    """
    key = f"{part}.deserializer"
    name = properties.get(key, AS_IT_IS[0]).rpartition(".")[2]
    if name in AS_IT_IS:
        return bytes
    layout = NUMBERS.get(name)
    if layout is None:
        known = ", ".join((*AS_IT_IS, *NUMBERS))
        raise CommandFailed(f"{key}={properties[key]} is not supported; allowed: {known}")

    def number(data: bytes) -> bytes:
        try:
            return str(struct.unpack(layout, data)[0]).encode()
        except struct.error:
            raise CommandFailed(f"{name} cannot read a {part} of {len(data)} bytes") from None

    return number


class Printer:
    """Printer of records with the formatter's properties and a limit."""

    def __init__(
        self, properties: dict[str, str], limit: int | None, *, skip: bool, out: BinaryIO
    ) -> None:
        """Initialize.

        `skip` would leave out records that cannot be shown; it has no effect here.
        """
        self.count = 0
        self.left = limit
        self._out = out

        self._shown = [
            part
            for part, key, default in (
                ("timestamp", "print.timestamp", "false"),
                ("partition", "print.partition", "false"),
                ("offset", "print.offset", "false"),
                ("headers", "print.headers", "false"),
                ("key", "print.key", "false"),
                ("value", "print.value", "true"),
            )
            if flag(properties, key, default)
        ]
        self._separator = properties.get("key.separator", "\t").encode()
        self._line_end = properties.get("line.separator", "\n").encode()
        self._null = properties.get("null.literal", "null").encode()
        self._header_separator = properties.get("headers.separator", ",").encode()
        self._key = deserializer(properties, "key")
        self._value = deserializer(properties, "value")

    def __call__(self, record: Received) -> None:
        parts = {
            "timestamp": f"CreateTime:{record.timestamp_ms}".encode(),
            "partition": f"Partition:{record.partition}".encode(),
            "offset": f"Offset:{record.offset}".encode(),
            "headers": self._header_separator.join(
                name.encode() + b":" + (self._null if value is None else value)
                for name, value in record.headers
            )
            or b"NO_HEADERS",
            "key": self._null if record.key is None else self._key(record.key),
            "value": self._null if record.value is None else self._value(record.value),
        }
        line = self._separator.join(parts[part] for part in self._shown) + self._line_end
        self._out.write(shown_bytes(line))
        self.count += 1
        if self.left is not None:
            self.left -= 1

    def flush(self) -> None:
        self._out.flush()


def main(name: str, arguments: Sequence[str]) -> int:
    options = parser(name, __doc__ or "")
    add_bootstrap(options)
    what = options.add_mutually_exclusive_group(required=True)
    what.add_argument("--topic")
    what.add_argument(
        "--include", metavar="REGEX", help="regular expression that matches whole topic names"
    )
    options.add_argument("--from-beginning", action="store_true")
    options.add_argument("--max-messages", type=int)
    options.add_argument("--timeout-ms", type=int)
    options.add_argument("--group")
    options.add_argument("--partition", type=int)
    options.add_argument("--offset", help="an offset, earliest or latest")
    options.add_argument("--property", action="append", help="print.key, key.separator, ...")
    options.add_argument("--formatter-property", action="append", help="same as --property")
    options.add_argument("--consumer-property", action="append", metavar="NAME=VALUE")
    options.add_argument("--command-property", action="append", metavar="NAME=VALUE")
    options.add_argument("--consumer.config", dest="consumer_config", metavar="FILE")
    options.add_argument("--skip-message-on-error", action="store_true")
    options.add_argument(
        "--isolation-level",
        choices=("read_committed", "read_uncommitted"),
        default="read_uncommitted",
    )
    given = options.parse_args(arguments)
    bootstrap = bootstrap_of(given)
    found = known_pairs(given, ("property", "formatter-property"), FORMATTER_PROPERTIES)
    printer = Printer(
        found, given.max_messages, skip=given.skip_message_on_error, out=sys.stdout.buffer
    )
    try:
        run(bootstrap, lambda client: _consume(client, given, printer))
    finally:
        printer.flush()
        sys.stderr.write(f"Processed a total of {printer.count} messages\n")
    return 0


async def _consume(client: ClusterClient, options: argparse.Namespace, printer: Printer) -> None:
    properties = file_properties(options.consumer_config) if options.consumer_config else {}
    properties |= pairs(options.consumer_property, "--consumer-property")
    properties |= pairs(options.command_property, "--command-property")
    check_client_properties(properties)
    idle = Idle(options.timeout_ms)
    topics = [options.topic] if options.topic else await _matching(client, options.include, idle)
    if not topics:
        return
    from_beginning = (
        options.from_beginning or properties.get("auto.offset.reset", "latest") == "earliest"
    )
    level = properties.get("isolation.level", options.isolation_level)
    consumer = Consumer(client, read_committed=level == "read_committed", on_reset=say_reset)
    idle.restart()
    group = options.group or properties.get("group.id")
    if group is not None:
        start = EARLIEST if from_beginning else LATEST
        await follow_group(GroupMember(client, group, topics, consumer, start=start), printer, idle)
        return
    consumer.assign(await _start(client, options, topics, from_beginning))
    await follow(consumer, printer, idle)


async def _matching(client: ClusterClient, text: str, idle: Idle) -> list[str]:
    """Return the topics that match a regular expression, once there are any.

    None after the timeout.

    Internal topics are left out, as in Kafka's consumers. Raises CommandFailed.
    """
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise CommandFailed(f"--include: invalid regular expression {text!r}: {error}") from None
    while not idle.passed():
        topics = (await client.metadata()).topics
        found = [t.name for t in topics if t.name and not t.is_internal and t.error_code == 0]
        chosen = sorted(name for name in found if pattern.fullmatch(name))
        if chosen:
            return chosen
        await asyncio.sleep(EVERY_MS / 1000.0)
    return []


async def _start(
    client: ClusterClient, options: argparse.Namespace, topics: Sequence[str], from_beginning: bool
) -> dict[tuple[str, int], int]:
    """Return the start offset of each partition. Raises CommandFailed."""
    chosen = await chosen_partitions(client, topics, options.partition)
    offset: str | None = options.offset
    if offset is not None and options.partition is None:
        raise CommandFailed("--offset needs --partition")
    if offset is not None and offset.isdigit():
        return dict.fromkeys(chosen, int(offset))
    if offset not in (None, "earliest", "latest"):
        raise CommandFailed(
            f"--offset {offset}: expected an offset of at least 0, earliest or latest"
        )
    early = from_beginning or offset == "earliest"
    return dict.fromkeys(chosen, EARLIEST if early else LATEST)
