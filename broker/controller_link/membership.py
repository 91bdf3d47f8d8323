"""Shell: Membership of a broker in its cluster: joining, contact with controllers, leaving."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from broker.controller_link.channel import ControllerChannel
from broker.controller_link.lifecycle import BrokerLifecycle
from broker.controller_link.lifecycle_sender import LifecycleSender
from metalog.image.values import BrokerImage
from protocol.messages.broker_registration import BrokerRegistrationRequest
from runtime.clock import Clock
from runtime.tasks import Supervisor


class Membership:
    """The membership of one broker.

    Args:
        incarnation_id: the process's, used in the broker's registration.
        channel: carries registrations and heartbeats.
    """

    def __init__(
        self,
        lifecycle: BrokerLifecycle,
        channel: ControllerChannel,
        *,
        node_id: int,
        incarnation_id: bytes,
        supervisor: Supervisor,
        clock: Clock,
    ) -> None:
        self._lifecycle = lifecycle
        self._channel = channel
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._supervisor = supervisor
        self._clock = clock
        self._sender: LifecycleSender | None = None

    def is_own(self, registered: BrokerImage | None) -> bool:
        """Return whether a registration of this broker's id is this process's."""
        return registered is not None and registered.incarnation_id == self._incarnation_id

    async def join(
        self,
        registration: Callable[[], BrokerRegistrationRequest],
        *,
        lead_nothing: Callable[[], None],
        listen: Callable[[], Awaitable[None]],
    ) -> None:
        """Register, and return once the broker's own image shows it to clients.

        Args:
            registration, lead_nothing, listen: as for `LifecycleSender`.

        Raises:
            StartupRefused: the controller refuses this broker for good, or `refuse` was called.
            OSError: `listen` failed.
        """
        sender = self._sender = LifecycleSender(
            self._lifecycle,
            node_id=self._node_id,
            incarnation_id=self._incarnation_id,
            registration=registration,
            lead_nothing=lead_nothing,
            listen=listen,
            channel=self._channel,
            supervisor=self._supervisor,
            clock=self._clock,
        )
        self._channel.on_lost(sender.contact_lost)
        sender.start()
        self._supervisor.spawn("broker lifecycle", sender.run())
        await sender.ready
        # A client that receives an empty list of brokers may not retry for minutes (librdkafka).
        await sender.listed

    def published(
        self, offset: int, registered: BrokerImage | None, *, lacks_directories: bool
    ) -> None:
        """Note a new image; see `LifecycleSender.metadata_replayed`."""
        if self._sender is not None:
            self._sender.metadata_replayed(offset, registered, lacks_directories=lacks_directories)

    def refuse(self, why: str) -> None:
        """End `join` with StartupRefused. Ignored before it was called: the next image repeats the
        reason."""
        if self._sender is not None:
            self._sender.refuse(why)

    def controller_moved(self, *, is_known: bool) -> None:
        """Note that the quorum has another leader, or none."""
        self._channel.controller_moved()
        if self._sender is not None and is_known:
            # The new controller has had no contact with any broker yet.
            self._sender.controller_moved()

    async def leave(self, timeout_ms: float) -> None:
        """Request a controlled shutdown, and wait until the broker may stop. Returns at once if the
        broker never joined."""
        if self._sender is None:
            return
        self._sender.request_shutdown(timeout_ms)
        await asyncio.wait([self._sender.may_stop], timeout=timeout_ms / 1000.0 + 1.0)

    async def close(self) -> None:
        """Close the connection to the controller."""
        await self._channel.close()
