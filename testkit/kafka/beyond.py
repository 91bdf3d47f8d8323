"""Extensions of Kafka's message definitions: one table for all tests that compare both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from protocol.schema import Message, VersionRange


class Beyond(NamedTuple):
    """The extensions of one message.

    tagged: fields with private tags. versions_from: its first version that Kafka does not have.
    fields: those that only such versions have, by name of the struct. structs: those that only the
    fields with private tags use. whole: Kafka has no such message.
    """

    tagged: Mapping[str, int] = {}
    versions_from: int | None = None
    fields: Mapping[str, frozenset[str]] = {}
    structs: frozenset[str] = frozenset()
    whole: bool = False


PARTITION = Beyond(
    tagged={"election_kind": 10000, "election_cause": 10001, "local_logs": 10002},
    structs=frozenset({"ReplicaLocalLog"}),
)
LOCAL_LOG = frozenset({"local_log_start_timestamp", "local_log_size_bytes"})
BEYOND_KAFKA: Mapping[str, Beyond] = {
    "PartitionRecord": PARTITION,
    "PartitionChangeRecord": PARTITION,
    "FetchRequest": Beyond(versions_from=19, fields={"FetchPartition": LOCAL_LOG}),
    "FetchResponse": Beyond(versions_from=19),
    "AlterPartitionRequest": Beyond(versions_from=4, fields={"BrokerState": LOCAL_LOG}),
    "AlterPartitionResponse": Beyond(versions_from=4),
    "ElectLeadersRequest": Beyond(
        versions_from=3, fields={"TopicPartitions": frozenset({"desired_leaders"})}
    ),
    "ElectLeadersResponse": Beyond(versions_from=3),
    "GetReplicaLogInfoRequest": Beyond(whole=True),
    "GetReplicaLogInfoResponse": Beyond(whole=True),
    "ExplainElectionRequest": Beyond(whole=True),
    "ExplainElectionResponse": Beyond(whole=True),
}
"""All extensions of Kafka's definitions, by message."""


def kafka_versions(cls: type[Message]) -> VersionRange:
    """Return those of a message's versions that Kafka has; empty if `last` is below `first`."""
    beyond = BEYOND_KAFKA.get(cls.__name__, Beyond())
    first, last = cls.VERSIONS
    if beyond.whole:
        return VersionRange(first, first - 1)
    return VersionRange(first, last if beyond.versions_from is None else beyond.versions_from - 1)
