"""Shell: Says to the controller where replicas are that it has on record elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.controller_link.channel import ControllerChannel, ControllerUnavailable
from broker.metadata.cache import MetadataCache
from broker.replication.partition import Partition
from broker.replication.replica_directories import ReplicaDirectories
from metalog.image.features import DIRECTORY_ASSIGNMENT_LEVEL
from metalog.image.values import PartitionImage
from protocol.errors import ApiError
from runtime.clock import Clock
from runtime.log import RateLimited, get_logger
from runtime.tasks import Supervisor

TIMEOUT_MS: Final = 10_000.0

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
        self._broker_epoch = broker_epoch
        self._metadata = metadata
        self._channel = channel
        self._clock = clock
        self._supervisor = supervisor
        self._quiet = RateLimited(clock, 10_000)
        self._working = False
        self._closed = False

    def look(self, partition: Partition, wanted: PartitionImage) -> None:
        """The replica is there and has its role. Said in a later turn of the loop, if at all."""
        level = self._metadata.image.metadata_version
        if level is None or level < DIRECTORY_ASSIGNMENT_LEVEL:
            return
        if not self.replicas.look((partition.topic_id, partition.index), wanted):
            return
        if not self._working and not self._closed:
            self._working = True
            self._supervisor.spawn("replica directories", self._work())

    def close(self) -> None:
        """Nothing more is said. The channel is not closed."""
        self._closed = True

    async def _work(self) -> None:
        try:
            while not self._closed and (due_ms := self.replicas.due_ms()) is not None:
                wait_ms = due_ms - self._clock.monotonic_ms()
                if wait_ms > 0:
                    await self._channel.pause(wait_ms)
                    continue
                await self._send()
        finally:
            self._working = False

    async def _send(self) -> None:
        request = self.replicas.next_request(
            self._broker_epoch(),
            self._metadata.image.topics.partition,
            self._clock.monotonic_ms(),
        )
        if request is None:
            return
        try:
            response = await self._channel.request(request, TIMEOUT_MS)
        except (ControllerUnavailable, ApiError) as error:
            self._grumble(str(error))
            self.replicas.failed(self._clock.monotonic_ms())
            return
        if response.error_code:
            self._grumble(f"error {response.error_code}")
        self.replicas.answered(response, self._clock.monotonic_ms())

    def _grumble(self, why: str) -> None:
        held_back = self._quiet.admit()
        if held_back is not None:
            _log.warning(
                "the controller does not take down where replicas are, trying again",
                error=why,
                held_back=held_back,
            )
