"""kafka-log-dirs.sh: print the brokers' log directories and replica sizes as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from client.cluster_client import ClusterClient
from kraftbox.cli.connect import run
from kraftbox.cli.output import CommandFailed, say
from kraftbox.kafka_tools.options import add_bootstrap, bootstrap_of, parser
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse


def main(name: str, arguments: Sequence[str]) -> int:
    options = parser(name, __doc__ or "")
    add_bootstrap(options)
    options.add_argument("--describe", action="store_true", required=True)
    options.add_argument("--broker-list", metavar="ID,...")
    options.add_argument("--topic-list", metavar="TOPIC,...")
    given = options.parse_args(arguments)
    topics = {one for one in (given.topic_list or "").split(",") if one}
    try:
        brokers = [int(one) for one in (given.broker_list or "").split(",") if one]
    except ValueError:
        raise CommandFailed(
            f"--broker-list: expected ID,ID,..., got {given.broker_list!r}"
        ) from None
    run(bootstrap_of(given), lambda client: _show(client, brokers, topics))
    return 0


async def _show(client: ClusterClient, brokers: list[int], topics: set[str]) -> None:
    known = {broker.node_id for broker in (await client.metadata([])).brokers}
    missing = sorted(set(brokers) - known)
    if missing:
        raise CommandFailed(
            f"unknown broker {missing[0]}; known: {', '.join(map(str, sorted(known)))}"
        )
    chosen = sorted(set(brokers) or known)
    say("Querying brokers for log directories information")
    answers = {
        broker: await client.request_broker(broker, DescribeLogDirsRequest(topics=None))
        for broker in chosen
    }
    say(f"Received log directory information from brokers {','.join(map(str, chosen))}")
    say(json.dumps(document(answers, topics), separators=(",", ":")))


def document(answers: dict[int, DescribeLogDirsResponse], topics: set[str]) -> dict[str, Any]:
    """Return the document of Kafka's tool, for all topics or for the named ones."""
    return {
        "brokers": [
            {
                "broker": broker,
                "logDirs": [_directory(one, topics) for one in answer.results],
            }
            for broker, answer in answers.items()
        ],
        "version": 1,
    }


def _directory(
    found: DescribeLogDirsResponse.DescribeLogDirsResult, topics: set[str]
) -> dict[str, Any]:
    code = ErrorCode(found.error_code)
    return {
        "partitions": [
            {
                "partition": f"{topic.name}-{one.partition_index}",
                "size": one.partition_size,
                "offsetLag": one.offset_lag,
                "isFuture": one.is_future_key,
            }
            for topic in found.topics
            if not topics or topic.name in topics
            for one in topic.partitions
        ],
        "error": None if code is ErrorCode.NONE else code.name,
        "logDir": found.log_dir,
    }
