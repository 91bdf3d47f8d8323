"""kafka-run-class.sh: run the tool that replaces a Java class."""

from __future__ import annotations

from collections.abc import Sequence

from kraftbox.cli.output import CommandFailed

CLASSES = {
    "kafka.Kafka": "kafka-server-start",
    "kafka.admin.ConfigCommand": "kafka-configs",
    "kafka.tools.DumpLogSegments": "kafka-dump-log",
    "kafka.tools.GetOffsetShell": "kafka-get-offsets",
    "kafka.tools.StorageTool": "kafka-storage",
    "org.apache.kafka.tools.BrokerApiVersionsCommand": "kafka-broker-api-versions",
    "org.apache.kafka.tools.ClusterTool": "kafka-cluster",
    "org.apache.kafka.tools.ConfigCommand": "kafka-configs",
    "org.apache.kafka.tools.ConsoleProducer": "kafka-console-producer",
    "org.apache.kafka.tools.DeleteRecordsCommand": "kafka-delete-records",
    "org.apache.kafka.tools.DumpLogSegments": "kafka-dump-log",
    "org.apache.kafka.tools.FeatureCommand": "kafka-features",
    "org.apache.kafka.tools.GetOffsetShell": "kafka-get-offsets",
    "org.apache.kafka.tools.LeaderElectionCommand": "kafka-leader-election",
    "org.apache.kafka.tools.LogDirsCommand": "kafka-log-dirs",
    "org.apache.kafka.tools.MetadataQuorumCommand": "kafka-metadata-quorum",
    "org.apache.kafka.tools.ProducerPerformance": "kafka-producer-perf-test",
    "org.apache.kafka.tools.StorageTool": "kafka-storage",
    "org.apache.kafka.tools.TopicCommand": "kafka-topics",
    "org.apache.kafka.tools.consumer.ConsoleConsumer": "kafka-console-consumer",
    "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand": "kafka-consumer-groups",
    "org.apache.kafka.tools.reassign.ReassignPartitionsCommand": "kafka-reassign-partitions",
}


def main(name: str, arguments: Sequence[str]) -> int:
    from kraftbox.kafka_tools import main as run_tool

    if not arguments:
        raise CommandFailed("missing class name")
    tool = CLASSES.get(arguments[0])
    if tool is None:
        raise CommandFailed(
            f"there is no Java here, and no tool replaces the class {arguments[0]}; "
            f"known: {', '.join(CLASSES)}"
        )
    return run_tool(tool, arguments[1:])
