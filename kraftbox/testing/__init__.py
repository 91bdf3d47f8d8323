"""Kafka clusters for tests: real processes on this machine, started in about a second.

The pytest plugin (`kraftbox.testing.plugin`, loaded by its entry point) provides the fixtures
`kafka_cluster`, `async_kafka_cluster`, `kafka_topic` and `kafka_cluster_factory`. Without pytest:

    with KafkaCluster.start(brokers=3) as cluster:
        ...

Only this package is imported into the user's process. The clusters, and the helper that uses
Kafka's protocol, are separate processes. So a project may have packages called `storage` or
`protocol`.
"""

from kraftbox.testing.asynchronous import AsyncKafkaCluster, AsyncKafkaLink, AsyncKafkaNode
from kraftbox.testing.cluster import ClusterError, KafkaCluster, KafkaLink, KafkaNode, Partition
from kraftbox.testing.records import Record

__all__ = [
    "AsyncKafkaCluster",
    "AsyncKafkaLink",
    "AsyncKafkaNode",
    "ClusterError",
    "KafkaCluster",
    "KafkaLink",
    "KafkaNode",
    "Partition",
    "Record",
]
