"""kafka-get-offsets.sh: print partition offsets by time, as topic:partition:offset."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Sequence

from client.cluster_client import ClusterClient
from client.errors import Refused
from client.leaders import TopicPartition
from client.offsets import offsets_at
from kraftbox.cli.connect import run
from kraftbox.cli.output import CommandFailed, say
from kraftbox.kafka_tools.options import add_bootstrap, bootstrap_of, parser

TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
_RANGE = re.compile(r"(\d*)(-?)(\d*)")
Chosen = Callable[[str, int], bool]


def main(name: str, arguments: Sequence[str]) -> int:
    options = parser(name, __doc__ or "")
    add_bootstrap(options)
    options.add_argument("--topic", metavar="REGEX")
    options.add_argument("--topic-partitions", metavar="REGEX:RANGE,...")
    options.add_argument("--partitions", metavar="ID,...")
    options.add_argument("--time", default="latest", help="epoch milliseconds, or a name")
    options.add_argument("--exclude-internal-topics", action="store_true")
    given = options.parse_args(arguments)
    at, chosen = time_of(given.time), chosen_by(given)
    run(bootstrap_of(given), lambda client: _show(client, given, at, chosen))
    return 0


def time_of(text: str) -> int:
    """Parse --time into a ListOffsets timestamp. Raises CommandFailed."""
    try:
        return TIMES[text] if text in TIMES else int(text)
    except ValueError:
        known = ", ".join(TIMES)
        raise CommandFailed(
            f"--time: expected milliseconds or one of {known}, got {text!r}"
        ) from None


def chosen_by(options: argparse.Namespace) -> Chosen:
    """Return the filter of partitions that the options define. Raises CommandFailed."""
    if options.topic_partitions is not None:
        if options.topic is not None or options.partitions is not None:
            raise CommandFailed("--topic-partitions excludes --topic and --partitions")
        patterns = [_pattern(part) for part in options.topic_partitions.split(",") if part]
        return lambda topic, index: any(one(topic, index) for one in patterns)
    by_topic = _regex(options.topic or ".*")
    try:
        ids = {int(one) for one in (options.partitions or "").split(",") if one}
    except ValueError:
        raise CommandFailed(
            f"--partitions: expected ID,ID,..., got {options.partitions!r}"
        ) from None
    return lambda topic, index: bool(by_topic.fullmatch(topic)) and (not ids or index in ids)


def _pattern(text: str) -> Chosen:
    name, _, span = text.partition(":")
    by_topic, match = _regex(name or ".*"), _RANGE.fullmatch(span)
    if match is None:
        raise CommandFailed(f"--topic-partitions: expected ranges N, N-M, N- or -M, got {text!r}")
    low = int(match[1] or 0)
    single = low + 1 if match[1] and not match[2] else None
    end = int(match[3]) if match[3] else single
    return lambda topic, index: (
        bool(by_topic.fullmatch(topic)) and low <= index and (end is None or index < end)
    )


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text.strip("'\"").replace(",", "|"))
    except re.error as error:
        raise CommandFailed(f"invalid regular expression {text!r}: {error}") from None


async def _show(
    client: ClusterClient, options: argparse.Namespace, at: int, chosen: Chosen
) -> None:
    topics = (await client.metadata()).topics
    wanted = sorted(
        (topic.name, one.partition_index)
        for topic in topics
        if topic.name and not (options.exclude_internal_topics and topic.is_internal)
        for one in topic.partitions
        if chosen(topic.name, one.partition_index)
    )
    if not wanted:
        raise CommandFailed("Could not match any topic-partitions with the specified filters")
    await _print(client, wanted, at)


async def _print(client: ClusterClient, wanted: Iterable[TopicPartition], at: int) -> None:
    for name, index in wanted:
        try:
            offset = (await offsets_at(client, [(name, index)], at))[name, index]
        except Refused as error:
            raise CommandFailed(f"{name}-{index}: {error.reason}") from None
        if offset >= 0:
            say(f"{name}:{index}:{offset}")
