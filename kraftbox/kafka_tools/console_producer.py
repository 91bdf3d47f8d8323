"""kafka-console-producer.sh: lines of standard input become records."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NamedTuple

from client.cluster_client import ClusterClient
from kraftbox.cli.connect import run
from kraftbox.cli.output import CommandFailed
from kraftbox.cli.producer import Producer
from kraftbox.cli.record_text import Line
from kraftbox.kafka_tools.options import (
    add_bootstrap,
    bootstrap_of,
    check_client_properties,
    pairs,
    parser,
)
from protocol.compression import Codec

BATCH_LINES = 200
TUNING = ("timeout", "batch-size", "max-block-ms", "request-timeout-ms", "retry-backoff-ms")
ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}


class Reader(NamedTuple):
    """How a line becomes a record."""

    parse_key: bool
    separator: bytes
    ignore_error: bool

    def line(self, text: bytes) -> Line:
        """Raises CommandFailed for a line without the key that must be there."""
        if not self.parse_key:
            return Line(None, text)
        key, found, value = text.partition(self.separator)
        if found:
            return Line(key, value)
        if self.ignore_error:
            return Line(None, text)
        raise CommandFailed(f"no key separator found in line {text!r}")


def main(name: str, arguments: Sequence[str]) -> int:
    options = parser(name, __doc__ or "")
    add_bootstrap(options)
    options.add_argument("--topic", required=True)
    options.add_argument("--property", action="append", help="parse.key, key.separator, ...")
    options.add_argument("--reader-property", action="append", help="the same")
    options.add_argument("--producer-property", action="append", metavar="NAME=VALUE")
    options.add_argument("--command-property", action="append", metavar="NAME=VALUE")
    options.add_argument("--producer.config", dest="producer_config", metavar="FILE")
    options.add_argument("--compression-codec", nargs="?", const="gzip")
    options.add_argument("--request-required-acks", choices=sorted(ACKS))
    options.add_argument("--sync", action="store_true", help="as always here")
    for tuning in TUNING:
        options.add_argument(f"--{tuning}", type=int, help="accepted, without effect")
    given = options.parse_args(arguments)
    bootstrap = bootstrap_of(given)
    run(bootstrap, lambda client: _produce(client, given))
    return 0


def reader_of(options: argparse.Namespace) -> Reader:
    found = pairs(options.property, "--property")
    found |= pairs(options.reader_property, "--reader-property")
    return Reader(
        found.get("parse.key", "false") == "true",
        found.get("key.separator", "\t").encode(),
        found.get("ignore.error", "false") == "true",
    )


async def _produce(client: ClusterClient, options: argparse.Namespace) -> None:
    reader = reader_of(options)
    properties = pairs(options.producer_property, "--producer-property")
    properties |= pairs(options.command_property, "--command-property")
    check_client_properties(properties)
    acks = ACKS.get(options.request_required_acks or properties.get("acks", "all"), -1)
    name = options.compression_codec or properties.get("compression.type", "none")
    try:
        codec = Codec[name.upper()]
    except KeyError:
        raise CommandFailed(f"compression {name!r} is not known") from None
    producer = Producer(client, options.topic, codec, acks, None)
    await producer.start()
    terminal = sys.stdin.isatty()
    batch: list[Line] = []
    while True:
        if terminal:
            sys.stdout.write(">")
            sys.stdout.flush()
        text = sys.stdin.buffer.readline()
        if text:
            batch.append(reader.line(text.rstrip(b"\r\n")))
        if batch and (terminal or not text or len(batch) >= BATCH_LINES):
            await producer.send(batch)
            batch = []
        if not text:
            return
