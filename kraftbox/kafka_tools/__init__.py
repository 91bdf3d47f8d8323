"""Kafka's command-line tools by Kafka's names and options, for scripts that know those.

`kraftbox kafka-topics --bootstrap-server HOST:PORT --list` and so on; in the image they stand as
/opt/kafka/bin/kafka-topics.sh. What the tools share is in `options`; an option of Kafka's that is
not there is refused by name. Exit codes are Kafka's: 0 done, 1 failed, wrong usage included;
kafka-consumer-groups ends with 0 where the cluster refused a request, as Kafka's does.
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
    """Run one tool; returns the exit code."""
    module = TOOLS.get(name)
    if module is None:
        sys.stderr.write(f"kraftbox: there is no {name}; there are {', '.join(TOOLS)}\n")
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
