"""Shell: Requests of the broker's lifecycle; their answers become its events.

One task sleeps until the lifecycle's next deadline or the next event, and steps. The request of a
step (there is at most one in flight) runs as a task of its own and ends as an event. So a
controller that does not answer cannot delay a controlled shutdown.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

from broker.controller_link.channel import ControllerChannel, ControllerUnavailable
from broker.controller_link.lifecycle import (
    BecameReady,
    BrokerLifecycle,
    BrokerState,
    ContactLost,
    ControllerMoved,
    Effect,
    Event,
    FencingChanged,
    GiveUp,
    Heartbeat,
    HeartbeatAnswered,
    HeartbeatFailed,
    LeadNothing,
    MayStop,
    MetadataReplayed,
    Register,
    Registered,
    Registration,
    RegistrationFailed,
    RegistrationGone,
    ShutdownRequested,
    Started,
    TimerFired,
)
from metalog.image.values import BrokerImage, VersionRange
from metalog.supported import Unsupported, unsupported
from protocol.errors import ApiError, ErrorCode
from protocol.ids import uuid_to_text
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest
from runtime.clock import Clock
from runtime.errors import StartupRefused
from runtime.log import RateLimited, get_logger
from runtime.tasks import Supervisor

REGISTRATION_TIMEOUT_MS: Final = 10_000.0

_log = get_logger("broker.controller_link.lifecycle")


class RegistrationLost(Exception):
    """The broker's id is not this process's any more; the text names its owner."""


class LifecycleSender:
    """Runner of one `BrokerLifecycle`."""

    def __init__(
        self,
        lifecycle: BrokerLifecycle,
        *,
        node_id: int,
        incarnation_id: bytes,
        registration: Callable[[], BrokerRegistrationRequest],
        lead_nothing: Callable[[], None],
        listen: Callable[[], Awaitable[None]],
        channel: ControllerChannel,
        supervisor: Supervisor,
        clock: Clock,
    ) -> None:
        """Set the dependencies of a lifecycle's effects; `start` begins.

        Args:
            registration: builds the request again for each attempt.
            lead_nothing: stops all replicas at once.
            listen: opens the listeners, before the first request to lift the fence. From then on
                clients and brokers may be directed here. An OSError that it raises refuses the
                start.
        """
        self.lifecycle = lifecycle
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._registration = registration
        self._lead_nothing = lead_nothing
        self._listen: Callable[[], Awaitable[None]] | None = listen
        self._channel = channel
        self._supervisor = supervisor
        self._clock = clock
        self._events: list[Event] = []
        self._wake = asyncio.Event()
        self._quiet = RateLimited(clock, 10_000)
        self._unsupported: list[Unsupported] = []
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.listed: asyncio.Future[None] = loop.create_future()
        """Done when the own image shows this broker to clients."""
        self.may_stop: asyncio.Future[bool] = loop.create_future()

    def start(self) -> None:
        """Begin the registration; logs are open and addresses are bound."""
        self._tell(Started())

    def metadata_replayed(
        self, offset: int, registered: BrokerImage | None, *, lacks_directories: bool = False
    ) -> None:
        """Note a new image; `registered` is the registration of this broker's id in it.
        `lacks_directories`: if it is this process's, it must be repeated with its directory."""
        if registered is None:
            self._tell(MetadataReplayed(offset, None))
        elif registered.incarnation_id != self._incarnation_id:
            other = Registration(registered.incarnation_id, registered.epoch)
            self._tell(MetadataReplayed(offset, None, other))
        else:
            if not registered.fenced and not self.listed.done():
                self.listed.set_result(None)
            lacks = lacks_directories
            self._tell(MetadataReplayed(offset, registered.epoch, lacks_directories=lacks))

    def contact_lost(self) -> None:
        """Note the loss of the connection that carries the heartbeats."""
        self._tell(ContactLost())

    def controller_moved(self) -> None:
        """Note that a new leader of the controllers is known."""
        self._tell(ControllerMoved())

    def request_shutdown(self, timeout_ms: float) -> None:
        """Begin the controlled shutdown; `may_stop` is done when it is over."""
        self._tell(ShutdownRequested(self._clock.monotonic_ms() + timeout_ms))

    def _tell(self, event: Event) -> None:
        # Only the newest position of the metadata log matters.
        events = self._events
        if events and isinstance(event, MetadataReplayed) and isinstance(events[-1], type(event)):
            events.pop()
        events.append(event)
        self._wake.set()

    async def run(self) -> None:
        """Run until the controlled shutdown is over."""
        while not self.may_stop.done():
            await self._sleep()
            events, self._events = [*self._events, TimerFired()], []
            for event in events:
                for effect in self.lifecycle.step(event, self._clock.monotonic_ms()):
                    self._perform(effect)

    async def _sleep(self) -> None:
        if not self._events:
            due_ms = self.lifecycle.next_deadline_ms()
            wait_s = None
            if due_ms is not None:
                wait_s = max(0.0, due_ms - self._clock.monotonic_ms()) / 1000.0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
        self._wake.clear()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Register():
                self._send("registration", self._register())
            case Heartbeat():
                self._send("heartbeat", self._heartbeat(effect))
            case BecameReady():
                _log.info("broker is ready", broker_epoch=self.lifecycle.broker_epoch)
                self._set_ready(None)
            case FencingChanged():
                # A broker that shuts down has itself requested to be fenced.
                unasked = effect.fenced and self.lifecycle.state is BrokerState.RUNNING
                tell = _log.warning if unasked else _log.info
                tell("broker is fenced" if effect.fenced else "broker is unfenced")
            case MayStop():
                if not effect.granted:
                    _log.warning("controlled shutdown was not granted in time")
                self._finish(effect.granted)
            case LeadNothing():
                self._lead_nothing()
            case RegistrationGone():
                self._registration_gone(effect)
            case GiveUp():
                why = "; ".join(map(str, self._unsupported)) or effect.error.text
                self._set_ready(
                    StartupRefused(
                        "the controller rejected the registration of broker "
                        f"{self._node_id}: {effect.error.name}: {why}"
                    )
                )
                self._finish(False)

    def refuse(self, why: str) -> None:
        """End the start with StartupRefused: the cluster uses a feature that this broker cannot
        serve."""
        self._set_ready(StartupRefused(why))
        self._finish(False)

    def _registration_gone(self, gone: RegistrationGone) -> None:
        why = self._whose(gone)
        _log.error("the registration is lost, the node stops", why=why)
        if self.ready.done():
            self._supervisor.report("broker registration", RegistrationLost(why))
        self._set_ready(StartupRefused(why))
        self._finish(False)

    def _whose(self, gone: RegistrationGone) -> str:
        broker, other = f"broker {self._node_id}", gone.other
        ours = (
            f"this process (incarnation {uuid_to_text(self._incarnation_id)}, "
            f"broker epoch {self.lifecycle.broker_epoch})"
        )
        if other is not None:
            return (
                f"another process is registered as {broker} (incarnation "
                f"{uuid_to_text(other.incarnation_id)}, broker epoch {other.epoch}); "
                f"{ours} is no longer registered"
            )
        if gone.in_image:
            return (
                f"the registration of {broker} was removed (UnregisterBroker); "
                f"restart {ours} to register it again"
            )
        return (
            f"the controller has another registration of {broker} or none; {ours} is "
            "no longer registered"
        )

    def _set_ready(self, refused: StartupRefused | None) -> None:
        if self.ready.done():
            return
        if refused is None:
            self.ready.set_result(None)
        else:
            self.ready.set_exception(refused)

    def _send(self, what: str, request: Coroutine[None, None, Event]) -> None:
        async def send() -> None:
            self._tell(await request)

        self._supervisor.spawn(f"broker {what}", send())

    def _finish(self, granted: bool) -> None:
        if not self.ready.done():
            self.ready.cancel()
        if not self.may_stop.done():
            self.may_stop.set_result(granted)

    async def _register(self) -> Event:
        request = self._registration()
        try:
            response = await self._channel.request(request, REGISTRATION_TIMEOUT_MS)
        except ControllerUnavailable as error:
            self._grumble("registration", str(error))
            return RegistrationFailed(None)
        except ApiError as error:
            self._grumble("registration", str(error))
            return RegistrationFailed(error.code)
        code = ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            self._grumble("registration", code.name)
            if code is ErrorCode.UNSUPPORTED_VERSION:
                self._note_unsupported(request)
            return RegistrationFailed(code)
        _log.info("broker is registered", broker_epoch=response.broker_epoch)
        return Registered(response.broker_epoch)

    def _note_unsupported(self, request: BrokerRegistrationRequest) -> None:
        """Note and log the cluster's levels that the refused request does not support: the response
        has no message."""
        ranges = {
            feature.name: VersionRange(feature.min_supported_version, feature.max_supported_version)
            for feature in request.features
        }
        self._unsupported = list(unsupported(self._channel.finalised_features, ranges))
        for one in self._unsupported:
            _log.error(
                "the cluster uses a feature level that this broker does not support",
                feature=one.feature,
                level=one.level,
                supported=f"{one.low}-{one.high}",
            )

    async def _heartbeat(self, beat: Heartbeat) -> Event:
        if not beat.want_fence and self._listen is not None:
            listen, self._listen = self._listen, None
            try:
                await listen()
            except OSError as error:
                self.refuse(str(error))
                return HeartbeatFailed(None)
        request = BrokerHeartbeatRequest(
            broker_id=self._node_id,
            broker_epoch=beat.broker_epoch,
            current_metadata_offset=beat.metadata_offset,
            want_fence=beat.want_fence,
            want_shut_down=beat.want_shut_down,
        )
        try:
            response = await self._channel.request(request, self.lifecycle.times.session_ms)
        except ControllerUnavailable as error:
            self._grumble("heartbeat", str(error))
            return HeartbeatFailed(None)
        except ApiError as error:
            self._grumble("heartbeat", str(error))
            return HeartbeatFailed(error.code)
        code = ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            self._grumble("heartbeat", code.name)
            return HeartbeatFailed(code)
        return HeartbeatAnswered(
            is_caught_up=response.is_caught_up,
            is_fenced=response.is_fenced,
            should_shut_down=response.should_shut_down,
        )

    def _grumble(self, what: str, why: str) -> None:
        held_back = self._quiet.admit(what)
        if held_back is not None:
            _log.warning(f"{what} failed, trying again", error=why, held_back=held_back)
