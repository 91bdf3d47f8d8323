"""Internal topics that a broker creates, with the settings that their coordinators need.

A broker creates such a topic for its own coordinator, or for a client's Metadata request that may
create topics. `cleanup.policy=compact` keeps the last record of each key. The log of transactions
must not be compressed and must not lose committed records to an unclean election.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from protocol.topic_name import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from runtime.config import NodeConfig, keys_group_coordinator, keys_topic, keys_transactions


class InternalTopic(NamedTuple):
    """Settings of one internal topic at its creation; `configs` are its own, by key."""

    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


class InternalTopics(NamedTuple):
    """All internal topics that exist for a feature of this broker."""

    offsets: InternalTopic
    transactions: InternalTopic

    @classmethod
    def of(cls, node: NodeConfig) -> InternalTopics:
        return cls(
            offsets=InternalTopic(
                partitions=node[keys_group_coordinator.OFFSETS_TOPIC_NUM_PARTITIONS],
                replication_factor=node[keys_group_coordinator.OFFSETS_TOPIC_REPLICATION_FACTOR],
                configs={
                    keys_topic.CLEANUP_POLICY.name: "compact",
                    keys_topic.COMPRESSION_TYPE.name: "producer",
                    keys_topic.SEGMENT_BYTES.name: str(
                        node[keys_group_coordinator.OFFSETS_TOPIC_SEGMENT_BYTES]
                    ),
                },
            ),
            transactions=InternalTopic(
                partitions=node[keys_transactions.TRANSACTION_STATE_LOG_NUM_PARTITIONS],
                replication_factor=node[keys_transactions.TRANSACTION_STATE_LOG_REPLICATION_FACTOR],
                configs={
                    keys_topic.CLEANUP_POLICY.name: "compact",
                    keys_topic.COMPRESSION_TYPE.name: "uncompressed",
                    keys_topic.UNCLEAN_LEADER_ELECTION_ENABLE.name: "false",
                    keys_topic.MIN_INSYNC_REPLICAS.name: str(
                        node[keys_transactions.TRANSACTION_STATE_LOG_MIN_ISR]
                    ),
                    keys_topic.SEGMENT_BYTES.name: str(
                        node[keys_transactions.TRANSACTION_STATE_LOG_SEGMENT_BYTES]
                    ),
                },
            ),
        )

    def by_name(self) -> dict[str, InternalTopic]:
        return {CONSUMER_OFFSETS_TOPIC: self.offsets, TRANSACTION_STATE_TOPIC: self.transactions}
