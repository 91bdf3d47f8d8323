"""Kafka's command-line tools, with Kafka's names and options, for existing scripts.

For example `kraftbox kafka-topics --bootstrap-server HOST:PORT --list`; the image has it as
/opt/kafka/bin/kafka-topics.sh. `options` contains what the tools share. An unsupported option of
Kafka's is refused by name. Exit codes are Kafka's: 0 success, 1 failure or wrong usage.
kafka-consumer-groups exits with 0 if the cluster refused a request, as Kafka's does.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

TOOLS = {
    "kafka-topics": "topics",
    "kafka-configs": "configs",
    "kafka-consumer-groups": "groups",
    "kafka-console-producer": "console_producer",
    "kafka-console-consumer": "console_consumer",
    "kafka-broker-api-versions": "api_versions",
    "kafka-storage": "storage",
    "kafka-metadata-quorum": "quorum",
    "kafka-leader-election": "elections",
    "kafka-producer-perf-test": "perf",
    "kafka-cluster": "cluster",
    "kafka-get-offsets": "offsets",
    "kafka-reassign-partitions": "reassign",
    "kafka-features": "features",
    "kafka-log-dirs": "log_dirs",
    "kafka-delete-records": "delete_records",
    "kafka-dump-log": "dump_log",
    "kafka-server-start": "server_start",
    "kafka-run-class": "run_class",
    "kafka-acls": "not_built",
    "kafka-verifiable-producer": "not_built",
    "kafka-verifiable-consumer": "not_built",
}


def main(name: str, arguments: Sequence[str]) -> int:
    """Run one tool; return the exit code."""
    module = TOOLS.get(name)
    if module is None:
        sys.stderr.write(f"kraftbox: unknown tool {name}; known: {', '.join(TOOLS)}\n")
        return 1
    from kraftbox.cli.output import CommandFailed
    from kraftbox.process.interrupts import raise_interrupts

    tool = importlib.import_module(f"kraftbox.kafka_tools.{module}")
    raise_interrupts()
    try:
        code: int = tool.main(name, list(arguments))
    except CommandFailed as error:
        sys.stdout.flush()
        sys.stderr.write(f"Error while executing {name}: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    sys.stdout.flush()
    return code
