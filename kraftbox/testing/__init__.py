"""Kafka clusters for tests: real processes on this machine, started in about a second.

As a pytest plugin (`kraftbox.testing.plugin`, loaded by its entry point) it gives the fixtures
`kafka_cluster`, `async_kafka_cluster`, `kafka_topic` and `kafka_cluster_factory`; without pytest:

    with KafkaCluster.start(directory, brokers=3, controllers=3) as cluster:
        ...

Only this package is imported into the user's process: the clusters, and whoever talks Kafka's
protocol to them, are processes of their own, so a project may well have packages called `storage`
or `protocol`.
"""

from kraftbox.testing.asynchronous import AsyncKafkaCluster, AsyncKafkaNode
from kraftbox.testing.cluster import ClusterError, KafkaCluster, KafkaNode, Partition
from kraftbox.testing.records import Record

__all__ = [
    "AsyncKafkaCluster",
    "AsyncKafkaNode",
    "ClusterError",
    "KafkaCluster",
    "KafkaNode",
    "Partition",
    "Record",
]
