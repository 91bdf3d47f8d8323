"""Shell: Sends what the AlterPartition manager has, over a channel to the controller of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.controller_link.channel import ControllerChannel, ControllerUnavailable
from broker.replication.alter_partition import AlterPartitionManager
from broker.replication.isr import IsrProposal
from broker.replication.partition import Partition
from protocol.errors import ApiError, ErrorCode
from runtime.clock import Clock
from runtime.log import RateLimited, get_logger
from runtime.tasks import Supervisor

TIMEOUT_MS: Final = 10_000.0

_log = get_logger("broker.isr")


class IsrChanges:
    """The manager of a running broker."""

    def __init__(
        self,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        channel: ControllerChannel,
        clock: Clock,
        supervisor: Supervisor,
    ) -> None:
        self.manager = AlterPartitionManager()
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._channel = channel
        self._clock = clock
        self._supervisor = supervisor
        self._quiet = RateLimited(clock, 10_000)
        self._working = False
        self._closed = False

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Sent in the next turn of the loop, with what else comes in this one."""
        self.manager.propose(partition, proposal)
        if not self._working and not self._closed:
            self._working = True
            self._supervisor.spawn("ISR changes", self._work())

    async def close(self) -> None:
        self._closed = True
        await self._channel.close()

    def controller_moved(self) -> None:
        self._channel.controller_moved()

    async def _work(self) -> None:
        try:
            while not self._closed and (due_ms := self.manager.due_ms()) is not None:
                wait_ms = due_ms - self._clock.monotonic_ms()
                if wait_ms > 0:
                    await self._channel.pause(wait_ms)
                    continue
                await self._send()
        finally:
            self._working = False

    async def _send(self) -> None:
        request = self.manager.next_request(
            self._node_id, self._broker_epoch(), self._clock.monotonic_ms()
        )
        if request is None:
            return
        try:
            response = await self._channel.request(request, TIMEOUT_MS)
        except (ControllerUnavailable, ApiError) as error:
            self._grumble(str(error))
            self.manager.failed(self._clock.monotonic_ms())
            return
        if response.error_code:
            self._grumble(ErrorCode(response.error_code).name)
        try:
            self.manager.answered(response, self._clock.monotonic_ms())
        except Exception as error:  # noqa: BLE001 - whatever a controller says
            self._supervisor.survive("answer to AlterPartition", error)
            self.manager.failed(self._clock.monotonic_ms())

    def _grumble(self, why: str) -> None:
        held_back = self._quiet.admit()
        if held_back is not None:
            _log.warning("ISR change failed, trying again", error=why, held_back=held_back)
