"""Kafka's tools without an implementation: each fails at once and prints the reason."""

from __future__ import annotations

from collections.abc import Sequence

from kraftbox.cli.output import CommandFailed

REASONS = {
    "kafka-acls": "there is no authorizer here, so there are no ACLs to list or to change",
    "kafka-verifiable-producer": "it is a part of Kafka's system tests. Use kafka-console-producer",
    "kafka-verifiable-consumer": "it is a part of Kafka's system tests. Use kafka-console-consumer",
}


def main(name: str, arguments: Sequence[str]) -> int:
    raise CommandFailed(f"this tool is not supported: {REASONS[name]} (docs/gaps.md)")
