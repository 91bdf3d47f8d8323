"""Reports of replicas that the controllers have on record in another directory (KIP-858)."""

from __future__ import annotations

from collections.abc import Callable

from broker.controller_link.channel import ControllerChannel
from broker.controller_link.queue_sender import QueueSender
from broker.metadata.cache import MetadataCache
from broker.replication.partition import Partition
from broker.replication.replica_directories import ReplicaDirectories
from metalog.image.features import DIRECTORY_ASSIGNMENT_LEVEL
from metalog.image.values import PartitionImage
from runtime.clock import Clock
from runtime.log import get_logger
from runtime.tasks import Supervisor

_log = get_logger("broker.directories")


class DirectoryReports:
    """`ReplicaDirectories` of a running broker."""

    def __init__(
        self,
        directory: bytes,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        metadata: MetadataCache,
        channel: ControllerChannel,
        clock: Clock,
        supervisor: Supervisor,
    ) -> None:
        self.replicas = ReplicaDirectories(node_id, directory)
        self._metadata = metadata
        self._sender = QueueSender(
            "directories of replicas",
            self.replicas,
            next_request=lambda now_ms: self.replicas.next_request(
                broker_epoch(), metadata.image.topics.partition, now_ms
            ),
            answered=self.replicas.answered,
            channel=channel,
            clock=clock,
            supervisor=supervisor,
            log=_log,
        )

    def look(self, partition: Partition, wanted: PartitionImage) -> None:
        """The replica is there and has its role. Said in a later turn of the loop, if at all."""
        level = self._metadata.image.metadata_version
        if level is None or level < DIRECTORY_ASSIGNMENT_LEVEL:
            return
        if self.replicas.look((partition.topic_id, partition.index), wanted):
            self._sender.wake()

    def close(self) -> None:
        """Nothing more is said. The channel is not closed."""
        self._sender.close()
