"""Shell: Registration of this controller with the active controller (KIP-919).

A controller registers at its start, and again whenever its registration was removed
(UnregisterController, KIP-1312). It repeats the request with a growing backoff until the committed
metadata contains the process's incarnation id. It uses the network also when this node is
the active controller, so that there is only one path. If the cluster's metadata.version does not
have the record, the controller does not register.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from metalog.image.features import CONTROLLER_REGISTRATION_LEVEL
from metalog.image.values import ControllerImage
from metalog.loader import MetadataLoader
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from protocol.transport.client import Connection
from runtime.clock import Clock
from runtime.log import RateLimited, get_logger

PAUSE_MS_FIRST = 20.0
PAUSE_MS_MAX = 5_000.0
REQUEST_TIMEOUT_MS = 5_000.0
LOG_EVERY_MS = 10_000.0

_log = get_logger("controller.registration")


class ControllerRegistrar:
    """Registers a controller process.

    Args:
        endpoint: returns the active controller's address, None while it is unknown.
    """

    def __init__(
        self,
        loader: MetadataLoader,
        request: ControllerRegistrationRequest,
        endpoint: Callable[[], tuple[str, int] | None],
        *,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._loader = loader
        self._request = request
        self._endpoint = endpoint
        self._rng = rng
        self._log_limit = RateLimited(clock, LOG_EVERY_MS)
        self._changed = asyncio.Event()
        loader.add_publisher(lambda _delta, _image: self._changed.set())

    @property
    def is_registered(self) -> bool:
        """True if the committed metadata contains this process."""
        found = self._listed
        return found is not None and found.incarnation_id == self._request.incarnation_id

    @property
    def _listed(self) -> ControllerImage | None:
        """The registration under this id in the committed metadata, of this process or another."""
        return self._loader.image.cluster.controllers.get(self._request.controller_id)

    @property
    def _is_due(self) -> bool:
        level = self._loader.image.metadata_version
        return level is not None and level >= CONTROLLER_REGISTRATION_LEVEL

    async def run(self) -> None:
        """Register, and register again if the registration is removed; never returns.

        Another process that registers under the same id is left alone: two processes would replace
        each other's registrations without end.
        """
        while True:
            await self._register()
            while self._listed is not None:
                self._changed.clear()
                await self._changed.wait()
            _log.info("The registration was removed: registering again")

    async def _register(self) -> None:
        """Register, with retries; return once this process is registered."""
        pause_ms = PAUSE_MS_FIRST
        while not self.is_registered:
            if not self._is_due:
                await self._wait_for_image()
                continue
            problem = await self._try()
            if problem is None:
                await self._wait_for_image()
                continue
            if self._log_limit.admit("register") is not None:
                _log.info("Not registered with the active controller yet", reason=problem)
            await asyncio.sleep(pause_ms * self._rng.uniform(0.8, 1.2) / 1000.0)
            pause_ms = min(pause_ms * 2, PAUSE_MS_MAX)

    async def _wait_for_image(self) -> None:
        """Wait for new metadata; after an accepted request, the record is in it sooner or later."""
        self._changed.clear()
        if not self.is_registered:
            await self._changed.wait()

    async def _try(self) -> str | None:
        """Send the request once. Returns: the problem, None if it was accepted."""
        address = self._endpoint()
        if address is None:
            return "no active controller is known"
        try:
            response = await self._ask(*address)
        except (OSError, ApiError, ProtocolError) as error:
            return str(error)
        if response.error_code:
            return response.error_message or ErrorCode(response.error_code).name
        return None

    async def _ask(self, host: str, port: int) -> ControllerRegistrationResponse:
        client_id = f"controller-{self._request.controller_id}"
        connection = await Connection.connect(
            host, port, client_id, REQUEST_TIMEOUT_MS, between_nodes=True
        )
        try:
            return await connection.request(self._request, REQUEST_TIMEOUT_MS)
        finally:
            await connection.close()
