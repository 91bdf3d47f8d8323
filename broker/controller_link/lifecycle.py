"""Membership of a broker as the controller sees it: registration, heartbeats, fencing, shutdown.

Events in, effects out. `lifecycle_sender` sends the requests of `Register` and `Heartbeat`, passes
the answers back as events, and arms one timer with `next_deadline_ms`. At most one request is in
flight at a time.

States (`TRANSITIONS` has all transitions):

- STARTING: not registered. Registration is repeated until it succeeds.
- RECOVERY: registered under a broker epoch, fenced. The broker catches up with the metadata log,
  and requests to be unfenced as soon as its own registration record has been replayed.
- RUNNING: unfenced at least once. A later fencing by the controller (missed heartbeats) does not
  leave this state: the broker repeats the request with each heartbeat.
- PENDING_CONTROLLED_SHUTDOWN: leaderships are being moved away.
- SHUTTING_DOWN: the controller has permitted the shutdown, its time limit is over, or the
  registration is not this process's any more.

A registration is lost when another process registers with the same id (possible once this one was
silent for a session) or when UnregisterBroker removes it. The metadata log shows this: an image
that contains everything up to the own registration lacks it. An image from before proves nothing
(it may show an earlier process with this id). A heartbeat answered with STALE_BROKER_EPOCH shows it
too, often earlier, but not which process has the id now. Either way this process leads nothing from
then on: the registered process may be leading the same partitions.

A registration that was made below the metadata.version that has log directories names none. Once
the image is at that level, the broker repeats its registration: the controllers recognise the
process, which keeps epoch and ISRs, and learn its directory (KIP-858). A failed repetition waits
until after the next heartbeat, so that no failure delays a heartbeat.

The numbers are those of the `brokerstate` metric.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from protocol.errors import ErrorCode
from runtime.config import NodeConfig, keys_quorum
from runtime.errors import InvariantViolated


class BrokerState(IntEnum):
    """Values of the `kafka_server_kafkaserver_brokerstate` gauge."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


TRANSITIONS: Final = frozenset(
    {
        (BrokerState.NOT_RUNNING, BrokerState.STARTING),
        (BrokerState.NOT_RUNNING, BrokerState.SHUTTING_DOWN),
        (BrokerState.STARTING, BrokerState.RECOVERY),
        (BrokerState.STARTING, BrokerState.SHUTTING_DOWN),
        (BrokerState.RECOVERY, BrokerState.RUNNING),
        (BrokerState.RECOVERY, BrokerState.PENDING_CONTROLLED_SHUTDOWN),
        (BrokerState.RECOVERY, BrokerState.SHUTTING_DOWN),
        (BrokerState.RUNNING, BrokerState.SHUTTING_DOWN),
        (BrokerState.RUNNING, BrokerState.PENDING_CONTROLLED_SHUTDOWN),
        (BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN),
    }
)

# Registration errors that retries within this process cannot cure.
_HOPELESS: Final = frozenset(
    {
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class Registration(NamedTuple):
    """A process's claim to a broker id."""

    incarnation_id: bytes
    epoch: int


# --- events -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """Logs are open and listeners bound: registration may begin."""


@dataclass(frozen=True, slots=True)
class Registered:
    """BrokerRegistration was answered without error."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class RegistrationFailed:
    """BrokerRegistration was answered with an error, or (`error` None) not answered at all."""

    error: ErrorCode | None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    """BrokerHeartbeat was answered without error."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


@dataclass(frozen=True, slots=True)
class HeartbeatFailed:
    """BrokerHeartbeat was answered with an error, or (`error` None) not answered at all."""

    error: ErrorCode | None


@dataclass(frozen=True, slots=True)
class ContactLost:
    """The connection that carries the heartbeats was lost."""


@dataclass(frozen=True, slots=True)
class ControllerMoved:
    """A new leader of the controllers is known."""


@dataclass(frozen=True, slots=True)
class MetadataReplayed:
    """The image is now at `offset`. It shows this process with `registered_epoch`, or `other` is
    another process that it shows under this broker's id. `lacks_directories`: this process's
    registration names no log directory, though the image's metadata.version has them."""

    offset: int
    registered_epoch: int | None
    other: Registration | None = None
    lacks_directories: bool = False


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """Begin a controlled shutdown; after `deadline_ms` no more requests are sent to the
    controller."""

    deadline_ms: float


@dataclass(frozen=True, slots=True)
class TimerFired:
    """`next_deadline_ms` has come (or may have)."""


Event = (
    Started
    | Registered
    | RegistrationFailed
    | HeartbeatAnswered
    | HeartbeatFailed
    | ContactLost
    | ControllerMoved
    | MetadataReplayed
    | ShutdownRequested
    | TimerFired
)


# --- effects ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """Send BrokerRegistration."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Send BrokerHeartbeat with these fields."""

    broker_epoch: int
    metadata_offset: int
    want_fence: bool
    want_shut_down: bool


@dataclass(frozen=True, slots=True)
class BecameReady:
    """The controller unfenced this broker for the first time."""


@dataclass(frozen=True, slots=True)
class FencingChanged:
    """The fencing in the controller's answer differs from the previous one."""

    fenced: bool


@dataclass(frozen=True, slots=True)
class MayStop:
    """The controlled shutdown is over; `granted` is False when its time limit was reached."""

    granted: bool


@dataclass(frozen=True, slots=True)
class GiveUp:
    """This broker cannot join the cluster: stop the process and report the error."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeadNothing:
    """The registration is lost: stop leading and following, at once and for good."""


@dataclass(frozen=True, slots=True)
class RegistrationGone:
    """The registration is lost: stop the process. `other` has the id now; None: the image shows no
    process, or (`in_image` False) does not show the result yet."""

    other: Registration | None
    in_image: bool


Effect = (
    Register
    | Heartbeat
    | BecameReady
    | FencingChanged
    | MayStop
    | GiveUp
    | LeadNothing
    | RegistrationGone
)


@dataclass(frozen=True, slots=True)
class LifecycleTimes:
    """Intervals in milliseconds. `back_off_max_ms` bounds the backoff after a failed request."""

    heartbeat_ms: float = 2000.0
    registration_ms: float = 60_000.0
    back_off_ms: float = 50.0
    back_off_max_ms: float = 1000.0
    fenced_poll_ms: float = 20.0
    session_ms: float = 9000.0
    """How long a heartbeat may wait for its answer: later the session is over."""

    @classmethod
    def of(cls, node: NodeConfig) -> LifecycleTimes:
        return cls(
            heartbeat_ms=node[keys_quorum.BROKER_HEARTBEAT_INTERVAL_MS],
            registration_ms=node[keys_quorum.INITIAL_BROKER_REGISTRATION_TIMEOUT_MS],
            session_ms=node[keys_quorum.BROKER_SESSION_TIMEOUT_MS],
        )


class BrokerLifecycle:
    """State of one broker process's membership, changed by `step` alone."""

    def __init__(self, times: LifecycleTimes, jitter: Callable[[], float]) -> None:
        """Set up a broker that is not running. `jitter` returns a factor around 1.0 for
        backoffs."""
        self.times = times
        self._jitter = jitter
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        self.metadata_offset = -1
        self.fenced = True
        self._registered_epoch: int | None = None  # as the metadata image shows it
        self._registration_replayed = False
        self._other: Registration | None = None
        self._was_in_image = False
        self._lacks_directories = False
        self._repeated = False  # the registration, since the last heartbeat
        self._refused_until_ms: float | None = None  # when a stale epoch ends this process
        self._in_flight = False
        self._urgent = False  # an event during a request, which the next one must report
        self._due_ms: float | None = None
        self._failures = 0
        self._fenced_polls = 0
        self._registration_deadline_ms = 0.0
        self._shutdown_deadline_ms: float | None = None

    @property
    def ready(self) -> bool:
        """True once unfenced, until the controlled shutdown begins."""
        return self.state is BrokerState.RUNNING

    def next_deadline_ms(self) -> float | None:
        """Return when `TimerFired` is due, None when an answer or the image must come first."""
        if self.state is BrokerState.SHUTTING_DOWN:
            return None
        waits = self._in_flight or self._refused_until_ms is not None
        due_ms = None if waits else self._due_ms
        deadlines = (due_ms, self._shutdown_deadline_ms, self._refused_until_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def step(self, event: Event, now_ms: float) -> list[Effect]:
        """Process one event at `now_ms` (monotonic); return the effects."""
        effects: list[Effect] = []
        match event:
            case Started():
                self._enter(BrokerState.STARTING)
                self._registration_deadline_ms = now_ms + self.times.registration_ms
                self._due_ms = now_ms
            case Registered():
                self._registered(event.broker_epoch, now_ms, effects)
            case RegistrationFailed():
                self._registration_failed(event.error, now_ms, effects)
            case HeartbeatAnswered():
                self._heartbeat_answered(event, now_ms, effects)
            case HeartbeatFailed():
                self._heartbeat_failed(event.error, now_ms, effects)
            case MetadataReplayed():
                self._metadata_replayed(event, now_ms, effects)
            case ShutdownRequested():
                self._shutdown_requested(event.deadline_ms, now_ms, effects)
            case ContactLost() | ControllerMoved():
                self._contact_changed(event, now_ms)
        if self._urgent and not self._in_flight:
            self._urgent = False
            self._due_ms = now_ms
        self._maybe_finish(now_ms, effects)
        self._maybe_send(now_ms, effects)
        return effects

    # --- handling of each event ---------------------------------------------------------------

    def _registered(self, broker_epoch: int, now_ms: float, effects: list[Effect]) -> None:
        self._request_ended()
        if self.state is not BrokerState.STARTING:
            self._registration_repeated(now_ms)
            return
        self._enter(BrokerState.RECOVERY)
        self.broker_epoch = broker_epoch
        self._failures = 0
        # The first heartbeat is sent when the registration arrives through the metadata log, at the
        # latest after one interval: otherwise the session would expire during a slow replay.
        self._due_ms = now_ms + self.times.heartbeat_ms
        self._check_registration(now_ms, effects)

    def _registration_failed(
        self, error: ErrorCode | None, now_ms: float, effects: list[Effect]
    ) -> None:
        self._request_ended()
        if self.state is not BrokerState.STARTING:
            self._registration_repeated(now_ms)
            return
        out_of_time = error is not None and now_ms >= self._registration_deadline_ms
        if error is not None and (error in _HOPELESS or out_of_time):
            self._enter(BrokerState.SHUTTING_DOWN)
            effects.append(GiveUp(error))
            return
        self._retry_later(now_ms)

    def _registration_repeated(self, now_ms: float) -> None:
        """Send the heartbeat that the repeated registration has replaced. Another epoch in the
        answer means that the registration was removed: the heartbeat is refused then."""
        self._repeated = True
        self._due_ms = now_ms

    def _heartbeat_answered(
        self, answer: HeartbeatAnswered, now_ms: float, effects: list[Effect]
    ) -> None:
        self._request_ended()
        self._failures = 0
        self._repeated = False
        if answer.is_fenced != self.fenced:
            self.fenced = answer.is_fenced
            effects.append(FencingChanged(answer.is_fenced))
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            if answer.should_shut_down:
                self._finish(True, effects)
            else:
                self._due_ms = now_ms + self._poll_ms()
            return
        if self.state is BrokerState.RECOVERY and not answer.is_fenced:
            self._enter(BrokerState.RUNNING)
            effects.append(BecameReady())
        if self.fenced and self._registration_replayed:
            self._due_ms = now_ms + self._poll_ms()
        else:
            self._fenced_polls = 0
            self._due_ms = now_ms + self.times.heartbeat_ms

    def _heartbeat_failed(
        self, error: ErrorCode | None, now_ms: float, effects: list[Effect]
    ) -> None:
        self._request_ended()
        self._repeated = False
        if error is not ErrorCode.STALE_BROKER_EPOCH or self.state is BrokerState.SHUTTING_DOWN:
            self._retry_later(now_ms)
        elif self._refused_until_ms is None:
            # The image will soon show which process has the id; further heartbeats add no
            # information.
            self._refused_until_ms = now_ms + self.times.heartbeat_ms
            effects.append(LeadNothing())

    def _registration_lost(
        self, other: Registration | None, in_image: bool, effects: list[Effect]
    ) -> None:
        if self.state not in (BrokerState.NOT_RUNNING, BrokerState.SHUTTING_DOWN):
            self._enter(BrokerState.SHUTTING_DOWN)
            effects += (LeadNothing(), RegistrationGone(other, in_image))

    def _contact_changed(self, event: ContactLost | ControllerMoved, now_ms: float) -> None:
        """Send a request at once. The controller may have seen the old connection close, or has
        just taken over, and measures the time. Once per connection and leader; failures wait as
        before."""
        if isinstance(event, ControllerMoved) or self.broker_epoch >= 0:
            self._hurry(now_ms)

    def _metadata_replayed(
        self, event: MetadataReplayed, now_ms: float, effects: list[Effect]
    ) -> None:
        self.metadata_offset = max(self.metadata_offset, event.offset)
        self._registered_epoch = event.registered_epoch
        self._other = event.other
        lacked, self._lacks_directories = self._lacks_directories, event.lacks_directories
        if self._must_repeat and not lacked:
            self._hurry(now_ms)
        self._check_registration(now_ms, effects)

    def _check_registration(self, now_ms: float, effects: list[Effect]) -> None:
        # The image may be ahead of the answer to the registration, or behind it.
        if self._registered_epoch is None:
            if self._was_in_image or 0 <= self.broker_epoch <= self.metadata_offset:
                self._registration_lost(self._other, True, effects)
            return
        self._was_in_image = True
        if not self._registration_replayed and 0 <= self.broker_epoch == self._registered_epoch:
            self._registration_replayed = True
            self._hurry(now_ms)

    def _shutdown_requested(self, deadline_ms: float, now_ms: float, effects: list[Effect]) -> None:
        if self.state in (BrokerState.NOT_RUNNING, BrokerState.STARTING):
            self._finish(True, effects)  # never a member, so no permission is needed
        elif self.state in (BrokerState.RECOVERY, BrokerState.RUNNING):
            self._enter(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
            self._shutdown_deadline_ms = deadline_ms
            self._fenced_polls = 0
            self._hurry(now_ms)

    # --- sending and pacing -------------------------------------------------------------------

    def _maybe_finish(self, now_ms: float, effects: list[Effect]) -> None:
        refused_ms = self._refused_until_ms
        if refused_ms is not None and now_ms >= refused_ms:
            self._registration_lost(None, False, effects)
        deadline_ms = self._shutdown_deadline_ms
        if deadline_ms is not None and now_ms >= deadline_ms:
            self._finish(False, effects)

    def _finish(self, granted: bool, effects: list[Effect]) -> None:
        if self.state is not BrokerState.SHUTTING_DOWN:
            self._enter(BrokerState.SHUTTING_DOWN)
            effects.append(MayStop(granted))

    def _maybe_send(self, now_ms: float, effects: list[Effect]) -> None:
        if self._in_flight or self._due_ms is None or now_ms < self._due_ms:
            return
        if self._refused_until_ms is not None:
            return
        if self.state is BrokerState.STARTING or self._must_repeat:
            effects.append(Register())
        elif self.state in (
            BrokerState.RECOVERY,
            BrokerState.RUNNING,
            BrokerState.PENDING_CONTROLLED_SHUTDOWN,
        ):
            effects.append(
                Heartbeat(
                    broker_epoch=self.broker_epoch,
                    metadata_offset=self.metadata_offset,
                    want_fence=not self._registration_replayed,
                    want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
                )
            )
        else:
            return
        self._in_flight = True
        self._due_ms = None

    @property
    def _must_repeat(self) -> bool:
        """True if the registration is sent again before the next heartbeat."""
        is_member = self.state in (BrokerState.RECOVERY, BrokerState.RUNNING)
        return is_member and self._lacks_directories and not self._repeated

    def _request_ended(self) -> None:
        self._in_flight = False

    def _hurry(self, now_ms: float) -> None:
        self._due_ms = now_ms
        self._urgent = self._in_flight

    def _poll_ms(self) -> float:
        """Return the interval between requests whose answer is expected soon; it grows up to the
        heartbeat interval."""
        self._fenced_polls = min(self._fenced_polls + 1, 16)
        pause_ms = self.times.fenced_poll_ms * 2.0 ** (self._fenced_polls - 1)
        return min(pause_ms, self.times.heartbeat_ms)

    def _retry_later(self, now_ms: float) -> None:
        self._failures = min(self._failures + 1, 16)
        pause_ms = min(
            self.times.back_off_ms * 2.0 ** (self._failures - 1), self.times.back_off_max_ms
        )
        self._due_ms = now_ms + pause_ms * self._jitter()

    def _enter(self, state: BrokerState) -> None:
        if (self.state, state) not in TRANSITIONS:
            raise InvariantViolated(f"broker state {self.state.name} -> {state.name}")
        self.state = state
