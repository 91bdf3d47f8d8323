"""kafka-console-consumer.sh: records of topics to standard output."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import BinaryIO

from client.cluster_client import EARLIEST, LATEST, ClusterClient
from client.consumer import Consumer
from client.group_member import GroupMember
from client.offsets import offsets_at
from client.visible_records import Received
from kraftbox.cli.connect import run
from kraftbox.cli.output import CommandFailed, shown_bytes
from kraftbox.cli.records import Idle, chosen_partitions, follow, follow_group, say_reset
from kraftbox.kafka_tools.options import (
    add_bootstrap,
    bootstrap_of,
    check_client_properties,
    file_properties,
    pairs,
    parser,
)


class Printer:
    """Writes records as the formatter's properties say, until there are enough."""

    def __init__(
        self, properties: dict[str, str], limit: int | None, *, skip: bool, out: BinaryIO
    ) -> None:
        """`skip`: a record that cannot be shown is left out; there is none here."""
        self.count = 0
        self.left = limit
        self._out = out

        def flag(name: str, default: str = "false") -> bool:
            return properties.get(name, default) == "true"

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
            if flag(key, default)
        ]
        self._separator = properties.get("key.separator", "\t").encode()
        self._line_end = properties.get("line.separator", "\n").encode()
        self._null = properties.get("null.literal", "null").encode()

    def __call__(self, record: Received) -> None:
        parts = {
            "timestamp": f"CreateTime:{record.timestamp_ms}".encode(),
            "partition": f"Partition:{record.partition}".encode(),
            "offset": f"Offset:{record.offset}".encode(),
            "headers": b",".join(
                name.encode() + b":" + (self._null if value is None else value)
                for name, value in record.headers
            )
            or b"NO_HEADERS",
            "key": self._null if record.key is None else record.key,
            "value": self._null if record.value is None else record.value,
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
    what.add_argument("--include", metavar="TOPIC,...")
    options.add_argument("--from-beginning", action="store_true")
    options.add_argument("--max-messages", type=int)
    options.add_argument("--timeout-ms", type=int)
    options.add_argument("--group")
    options.add_argument("--partition", type=int)
    options.add_argument("--offset", help="a number, earliest or latest")
    options.add_argument("--property", action="append", help="print.key, key.separator, ...")
    options.add_argument("--formatter-property", action="append", help="the same")
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
    found = pairs(given.property, "--property")
    found |= pairs(given.formatter_property, "--formatter-property")
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
    topics = [name.strip() for name in (options.topic or options.include).split(",")]
    from_beginning = (
        options.from_beginning or properties.get("auto.offset.reset", "latest") == "earliest"
    )
    level = properties.get("isolation.level", options.isolation_level)
    consumer = Consumer(client, read_committed=level == "read_committed", on_reset=say_reset)
    idle = Idle(options.timeout_ms)
    group = options.group or properties.get("group.id")
    if group is not None:
        start = EARLIEST if from_beginning else LATEST
        await follow_group(GroupMember(client, group, topics, consumer, start=start), printer, idle)
        return
    consumer.assign(await _start(client, options, topics, from_beginning))
    await follow(consumer, printer, idle)


async def _start(
    client: ClusterClient, options: argparse.Namespace, topics: Sequence[str], from_beginning: bool
) -> dict[tuple[str, int], int]:
    """Where to begin, by partition. Raises CommandFailed."""
    chosen = await chosen_partitions(client, topics, options.partition)
    offset: str | None = options.offset
    if offset is not None and options.partition is None:
        raise CommandFailed("--offset needs --partition")
    if offset is not None and offset.isdigit():
        return dict.fromkeys(chosen, int(offset))
    if offset not in (None, "earliest", "latest"):
        raise CommandFailed(f"--offset {offset}: a number from 0, earliest or latest is allowed")
    early = from_beginning or offset == "earliest"
    return await offsets_at(client, chosen, EARLIEST if early else LATEST)
