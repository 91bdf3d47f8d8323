"""kafka-console-producer.sh: write lines of standard input as records."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
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
    flag,
    known_pairs,
    pairs,
    parser,
)
from protocol.compression import Codec

BATCH_LINES = 200
TUNING = ("timeout", "batch-size", "max-block-ms", "request-timeout-ms", "retry-backoff-ms")
ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}


class Reader(NamedTuple):
    """Parser of lines: `headers<delimiter>key<separator>value`, as Kafka reads them."""

    parse_key: bool = False
    separator: bytes = b"\t"
    ignore_error: bool = False
    parse_headers: bool = False
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None

    def line(self, text: bytes) -> Line:
        """Parse a line. Raises CommandFailed if required headers or a required key are missing."""
        headers, rest = self._part(
            text, text, self.parse_headers, self.headers_delimiter, "headers delimiter"
        )
        key, value = self._part(text, rest, self.parse_key, self.separator, "key separator")
        return Line(
            self._or_null(key),
            self._or_null(value),
            () if self._or_null(headers) is None else tuple(self._headers(text, headers or b"")),
        )

    def _part(
        self, line: bytes, rest: bytes, wanted: bool, mark: bytes, name: str
    ) -> tuple[bytes | None, bytes]:
        """Return the part before a mark, and the rest."""
        if not wanted:
            return None, rest
        part, found, after = rest.partition(mark)
        if found:
            return part, after
        if self.ignore_error:
            return None, rest
        raise CommandFailed(f"no {name} found in line {line!r}")

    def _headers(self, line: bytes, text: bytes) -> Iterator[tuple[str, bytes | None]]:
        for pair in text.split(self.headers_separator):
            name, found, value = pair.partition(self.headers_key_separator)
            if not found and not self.ignore_error:
                raise CommandFailed(f"no header key separator found in {pair!r} of line {line!r}")
            if found and name == self.null_marker:
                raise CommandFailed(f"a header key is the null marker in line {line!r}")
            yield name.decode("utf-8", "replace"), self._or_null(value) if found else None

    def _or_null(self, part: bytes | None) -> bytes | None:
        return None if part == self.null_marker else part


READER_PROPERTIES = (
    "parse.key",
    "key.separator",
    "ignore.error",
    "parse.headers",
    "headers.delimiter",
    "headers.separator",
    "headers.key.separator",
    "null.marker",
)


def main(name: str, arguments: Sequence[str]) -> int:
    options = parser(name, __doc__ or "")
    add_bootstrap(options)
    options.add_argument("--topic", required=True)
    options.add_argument("--property", action="append", help="parse.key, key.separator, ...")
    options.add_argument("--reader-property", action="append", help="same as --property")
    options.add_argument("--producer-property", action="append", metavar="NAME=VALUE")
    options.add_argument("--command-property", action="append", metavar="NAME=VALUE")
    options.add_argument("--producer.config", dest="producer_config", metavar="FILE")
    options.add_argument("--compression-codec", nargs="?", const="gzip")
    options.add_argument("--request-required-acks", choices=sorted(ACKS))
    options.add_argument("--sync", action="store_true", help="accepted; this is always the case")
    for tuning in TUNING:
        options.add_argument(f"--{tuning}", type=int, help="accepted, without effect")
    given = options.parse_args(arguments)
    reader = reader_of(given)
    bootstrap = bootstrap_of(given)
    run(bootstrap, lambda client: _produce(client, given, reader))
    return 0


def reader_of(options: argparse.Namespace) -> Reader:
    """Return the reader. Raises CommandFailed for unknown properties or equal separators."""
    found = known_pairs(options, ("property", "reader-property"), READER_PROPERTIES)
    marker = found.get("null.marker")
    reader = Reader(
        parse_key=flag(found, "parse.key"),
        separator=found.get("key.separator", "\t").encode(),
        ignore_error=flag(found, "ignore.error"),
        parse_headers=flag(found, "parse.headers"),
        headers_delimiter=found.get("headers.delimiter", "\t").encode(),
        headers_separator=found.get("headers.separator", ",").encode(),
        headers_key_separator=found.get("headers.key.separator", ":").encode(),
        null_marker=None if marker is None else marker.encode(),
    )
    marks = {
        "headers.delimiter": reader.headers_delimiter,
        "headers.separator": reader.headers_separator,
        "headers.key.separator": reader.headers_key_separator,
    }
    if not reader.parse_headers:
        marks = {}
    marks |= {"key.separator": reader.separator} if reader.parse_key else {}
    if reader.null_marker is not None:
        marks["null.marker"] = reader.null_marker
    for name, mark in marks.items():
        if not mark:
            raise CommandFailed(f"{name} must not be empty")
    _check_distinct(marks)
    return reader


def _check_distinct(marks: dict[str, bytes]) -> None:
    """Raise CommandFailed for two marks that Kafka's reader cannot distinguish."""
    for one, other in (
        ("headers.delimiter", "headers.separator"),
        ("headers.delimiter", "headers.key.separator"),
        ("headers.separator", "headers.key.separator"),
        *((name, "null.marker") for name in marks if name != "null.marker"),
    ):
        if one in marks and marks[one] == marks.get(other):
            raise CommandFailed(f"{one} and {other} must differ, both are {marks[one].decode()!r}")


async def _produce(client: ClusterClient, options: argparse.Namespace, reader: Reader) -> None:
    properties = pairs(options.producer_property, "--producer-property")
    properties |= pairs(options.command_property, "--command-property")
    check_client_properties(properties)
    acks = ACKS.get(options.request_required_acks or properties.get("acks", "all"), -1)
    name = options.compression_codec or properties.get("compression.type", "none")
    try:
        codec = Codec[name.upper()]
    except KeyError:
        raise CommandFailed(f"unknown compression {name!r}") from None
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
