"""Sender of reports on replicas whose recorded log directory is wrong (KIP-858)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.controller_link.channel import ControllerChannel
from broker.controller_link.queue_sender import QueueSender
from broker.metadata.cache import MetadataCache
from broker.replication.partition.partition import Partition
from broker.replication.requests.replica_directories import ReplicaDirectories
from metalog.image.features import DIRECTORY_ASSIGNMENT_LEVEL
from metalog.image.values import MetadataImage, PartitionImage
from runtime.clock import Clock
from runtime.log import get_logger
from runtime.tasks import Supervisor

_log = get_logger("broker.directories")


class DirectoryReports:
    """The `ReplicaDirectories` of a running broker, with its sender."""

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
        self._node_id = node_id
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
        """Check a replica that has just received its role; if needed, report it in a later
        event-loop iteration."""
        if not has_directories(self._metadata.image):
            return
        if self.replicas.look((partition.topic_id, partition.index), wanted):
            self._sender.wake()

    def published(self, before: MetadataImage, replicas: Iterable[Partition]) -> None:
        """Check every replica once this broker's registration names the directory. Replicas that
        received their role before metadata.version supported directories are recorded in none."""
        after = self._metadata.image
        was, now = (image.cluster.brokers.get(self._node_id) for image in (before, after))
        if was is None or now is None or was.epoch != now.epoch:
            return  # A new process: its replicas do not have their roles yet.
        if self._is_registered(after) and not self._is_registered(before):
            self.replicas.look_at_all((one.topic_id, one.index) for one in replicas)
            self._sender.wake()

    def lacks_directories(self, image: MetadataImage) -> bool:
        """Return whether this broker's registration names no directory, though the image's
        metadata.version supports directories."""
        registered = image.cluster.brokers.get(self._node_id)
        return registered is not None and has_directories(image) and not registered.directories

    def _is_registered(self, image: MetadataImage) -> bool:
        return has_directories(image) and not self.lacks_directories(image)

    def close(self) -> None:
        """Stop sending reports. The channel stays open."""
        self._sender.close()


def has_directories(image: MetadataImage) -> bool:
    """Return whether records of the image's metadata.version have log directories (KIP-858)."""
    level = image.metadata_version
    return level is not None and level >= DIRECTORY_ASSIGNMENT_LEVEL
