"""Brokers and controllers of the cluster: registration, heartbeat, fencing, removal.

A broker registers and is fenced at first. It catches up with the metadata log, requests by
heartbeat to be unfenced, and serves. It leaves by a controlled shutdown or by missing heartbeats.
Its epoch is the log offset of its registration. So epochs only grow, and a message of an earlier
incarnation is recognised (P16).

Brokers: FENCED -> UNFENCED -> CONTROLLED_SHUTDOWN -> SHUTDOWN_NOW (fenced again). `next_state`
decides on the next state; `elections.triggers` changes the partitions of a transition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import NamedTuple

from controller.brokers.registration_limits import (
    check_broker_limits,
    check_controller_limits,
)
from controller.decision import ControllerView, Decision, Step
from controller.elections.cause import Cause
from controller.elections.context import BrokerChange
from controller.elections.triggers import (
    BEGIN,
    CHANGES_PER_STEP,
    ChangePosition,
    Part,
    part_of_changes,
)
from metalog.image.features import (
    CONTROLLER_REGISTRATION_LEVEL,
    CONTROLLER_UNREGISTRATION_LEVEL,
    CORDONED_DIRECTORIES_LEVEL,
    DIRECTORY_ASSIGNMENT_LEVEL,
    KRAFT_VERSION,
)
from metalog.image.values import BrokerImage, VersionRange
from protocol.errors import ApiError, ErrorCode
from protocol.ids import RESERVED_UUIDS, uuid_to_text
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.messages.controller_registration import ControllerRegistrationRequest
from protocol.metadata.broker_registration_change_record import BrokerRegistrationChangeRecord
from protocol.metadata.register_broker_record import RegisterBrokerRecord
from protocol.metadata.register_controller_record import RegisterControllerRecord
from protocol.metadata.unregister_broker_record import UnregisterBrokerRecord
from protocol.metadata.unregister_controller_record import UnregisterControllerRecord
from protocol.schema import MetadataRecord
from runtime.marks import mark

_FENCE = 1
_UNFENCE = -1
_SHUTTING_DOWN = 1


class BrokerState(Enum):
    """The state of a broker after a heartbeat."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "in controlled shutdown"
    SHUTDOWN_NOW = "may shut down"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    """The answer to a heartbeat.

    moved_leaders: the broker shuts down, and this heartbeat removed it from leaderships or ISRs.
    The other brokers must see these changes before it may stop.
    """

    state: BrokerState
    is_caught_up: bool
    moved_leaders: bool = False

    @property
    def is_fenced(self) -> bool:
        return self.state in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)

    @property
    def should_shut_down(self) -> bool:
        return self.state is BrokerState.SHUTDOWN_NOW


# --- registration -----------------------------------------------------------------------------


def decide_register_broker(
    view: ControllerView, request: BrokerRegistrationRequest, since: ChangePosition = BEGIN
) -> Decision[int] | Step[int]:
    """Register a broker; the reply is its epoch.

    The last record is the registration, and its offset the epoch. The broker's partitions change
    before it, in steps, the next from `since` on. If the controller fails in between, the broker is
    not registered yet; it repeats the request, and the next controller continues.

    A new process leaves the ISRs of its broker id, also if no registration is known
    (UnregisterBroker removed it). The same process may register again because its endpoints
    changed. It then keeps epoch, fencing and ISRs (KAFKA-16952), except for replicas in a log
    directory that it no longer names.

    Raises:
        ApiError: INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, INVALID_REGISTRATION,
            UNSUPPORTED_VERSION.
    """
    if request.cluster_id != view.settings.cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"this is cluster {view.settings.cluster_id}, not {request.cluster_id!r}",
        )
    check_broker_limits(view.image, request)
    existing = view.image.cluster.brokers.get(request.broker_id)
    same_process = existing is not None and existing.incarnation_id == request.incarnation_id
    _check_identity(view, request, existing, same_process)
    _check_directories(view, request)
    features = [
        RegisterBrokerRecord.BrokerFeature(
            name=f.name,
            min_supported_version=f.min_supported_version,
            max_supported_version=f.max_supported_version,
        )
        for f in request.features
    ]
    _check_features(
        view,
        {f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in features},
    )
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(
                name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
            )
            for e in request.listeners
        ],
        features=features,
        rack=request.rack,
        log_dirs=_directories_to_write(view, request),
    )
    if existing is not None and same_process:
        record.broker_epoch = existing.epoch
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
        if view.metadata_version >= CORDONED_DIRECTORIES_LEVEL and existing.cordoned_directories:
            record.cordoned_log_dirs = list(existing.cordoned_directories)
        lost = frozenset(existing.directories) - frozenset(record.log_dirs)
        part = _leave_directories(view, existing, lost if record.log_dirs else frozenset(), since)
    else:
        part = _leave_behind(view, request, existing, since)
        record.broker_epoch = view.next_offset + len(part.records)
    if part.since is not None:
        return Step(
            part.records, partial(decide_register_broker, request=request, since=part.since)
        )
    return Decision((*part.records, record), record.broker_epoch)


def _leave_behind(
    view: ControllerView,
    request: BrokerRegistrationRequest,
    existing: BrokerImage | None,
    since: ChangePosition,
) -> Part:
    """Change the partitions that a new broker process leaves: only the records on its disk count.

    The shutdown was clean if the process last ran with the epoch of the previous registration
    (KIP-966). Without a known registration it counts as unclean, since the epoch cannot match one.
    """
    clean = existing is not None and request.previous_broker_epoch == existing.epoch
    change = _departure(view, request.broker_id, clean=clean)
    return part_of_changes(view, change, Cause.BROKER_REGISTERED, since)


def _departure(view: ControllerView, broker_id: int, *, clean: bool) -> BrokerChange:
    """Return the change for a broker whose process has ended, or counts as ended.

    Without ELR it leaves every ISR that has another member, as a fenced broker does. With ELR it
    leaves every ISR, and after an unclean shutdown every ELR.
    """
    here = frozenset({broker_id})
    if clean or not view.elr_enabled:
        return BrokerChange(leaving=here)
    return BrokerChange(leaving=here, unclean=here)


def _check_identity(
    view: ControllerView,
    request: BrokerRegistrationRequest,
    existing: BrokerImage | None,
    same_process: bool,
) -> None:
    if request.broker_id < 0:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, f"invalid broker id {request.broker_id}")
    if request.is_migrating_zk_broker:
        raise ApiError(
            ErrorCode.INVALID_REGISTRATION, "brokers that migrate from ZooKeeper cannot register"
        )
    settings = view.settings
    if existing is None or same_process or existing.fenced:
        return
    if request.broker_id == settings.node_id and request.incarnation_id == settings.incarnation_id:
        # The broker of this very process: its predecessor released the lock on the directory, so it
        # is dead, however recent its last heartbeat. Kafka lets the new one wait for the session's
        # end.
        return
    if view.heartbeats.has_session(existing.id, view.monotonic_ms, settings.session_timeout_ms):
        mark("controller.duplicate-broker")
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another live process is registered as broker {existing.id}; if it has "
            f"stopped, its session ends {settings.session_timeout_ms} ms after its "
            "last heartbeat",
        )


def _check_directories(view: ControllerView, request: BrokerRegistrationRequest) -> None:
    if view.metadata_version < DIRECTORY_ASSIGNMENT_LEVEL:
        return
    directories = request.log_dirs
    if not directories:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "the registration contains no log directory")
    problem = _directory_problem(view, request.broker_id, directories)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, problem)


def _directory_problem(
    view: ControllerView, broker_id: int, directories: Sequence[bytes]
) -> str | None:
    named = set(directories)
    if len(named) != len(directories):
        return "the registration contains a log directory twice"
    reserved = [d for d in directories if d in RESERVED_UUIDS]
    if reserved:
        return f"log directory id {uuid_to_text(reserved[0])} is reserved"
    for other in view.image.cluster.brokers.values():
        taken = named.intersection(other.directories)
        if other.id != broker_id and taken:
            return f"log directory {uuid_to_text(min(taken))} belongs to broker {other.id}"
    return None


def _directories_to_write(view: ControllerView, request: BrokerRegistrationRequest) -> list[bytes]:
    return request.log_dirs if view.metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL else []


def _check_features(view: ControllerView, offered: dict[str, VersionRange]) -> None:
    """Check that a node supports every finalised level; a feature it does not name it has at 0
    only.

    Raises:
        ApiError: UNSUPPORTED_VERSION.
    """
    for name, level in sorted(view.image.features.items()):
        low, high = offered.get(name, VersionRange(0, 0))
        if level != 0 and not low <= level <= high and name != KRAFT_VERSION:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster has {name} at level {level}, but this node supports {low} to {high}",
            )


def decide_register_controller(
    view: ControllerView, request: ControllerRegistrationRequest
) -> Decision[None]:
    """Register a controller's endpoints and features (KIP-919).

    Raises:
        ApiError: UNSUPPORTED_VERSION while the finalised metadata.version has no such record,
            INVALID_REQUEST for a migration from ZooKeeper, or beyond `registration_limits`.
    """
    level = view.metadata_version
    if level < CONTROLLER_REGISTRATION_LEVEL:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"metadata.version {level} does not support registrations of controllers; "
            f"{CONTROLLER_REGISTRATION_LEVEL} does",
        )
    if request.zk_migration_ready:
        raise ApiError(ErrorCode.INVALID_REQUEST, "migration from ZooKeeper is not supported")
    check_controller_limits(view.image, request)
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            RegisterControllerRecord.ControllerEndpoint(
                name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
            )
            for e in request.listeners
        ],
        features=[
            RegisterControllerRecord.ControllerFeature(
                name=f.name,
                min_supported_version=f.min_supported_version,
                max_supported_version=f.max_supported_version,
            )
            for f in request.features
        ],
    )
    return Decision((record,), None)


def decide_unregister_controller(view: ControllerView, controller_id: int) -> Decision[None]:
    """Remove a controller's registration (KIP-1312), also that of a voter.

    Raises:
        ApiError: in Kafka's order: INVALID_REQUEST for the active controller, UNSUPPORTED_VERSION
            while the finalised metadata.version has no such record, CONTROLLER_ID_NOT_REGISTERED.
    """
    if controller_id == view.settings.node_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"controller {controller_id} is active and cannot be unregistered",
        )
    level = view.metadata_version
    if level < CONTROLLER_UNREGISTRATION_LEVEL:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"metadata.version {level} cannot unregister controllers; "
            f"{CONTROLLER_UNREGISTRATION_LEVEL} can",
        )
    if controller_id not in view.image.cluster.controllers:
        raise ApiError(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
            f"no controller is registered with id {controller_id}",
        )
    return Decision((UnregisterControllerRecord(controller_id=controller_id),), None)


# --- heartbeat --------------------------------------------------------------------------------


def check_broker_epoch(view: ControllerView, broker_id: int, epoch: int) -> BrokerImage:
    """Return the registration of the request's broker and epoch.

    Raises:
        ApiError: STALE_BROKER_EPOCH, the broker is not registered or has another epoch.
    """
    broker = view.image.cluster.brokers.get(broker_id)
    if broker is None:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered")
    if broker.epoch != epoch:
        mark("controller.broker-epoch-stale")
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} is registered with epoch {broker.epoch}, not {epoch}",
        )
    return broker


def decide_heartbeat(
    view: ControllerView,
    request: BrokerHeartbeatRequest,
    since: ChangePosition = BEGIN,
    moved: bool = False,
) -> Decision[HeartbeatReply] | Step[HeartbeatReply]:
    """Move the broker to its next state, in steps if that changes many partitions.

    Args:
        since: place of this step's first partition.
        moved: `HeartbeatReply.moved_leaders` of the steps before.

    Raises:
        ApiError: STALE_BROKER_EPOCH.
    """
    broker = check_broker_epoch(view, request.broker_id, request.broker_epoch)
    caught_up = request.current_metadata_offset >= broker.epoch
    state = next_state(view, broker, request, caught_up)
    records, left = _records_for_state(view, broker, state, since)
    moved = moved or (state is BrokerState.CONTROLLED_SHUTDOWN and bool(records))
    if left is not None:
        go_on = partial(decide_heartbeat, request=request, since=left, moved=moved)
        return Step(records, go_on)
    reply = HeartbeatReply(state=state, is_caught_up=caught_up, moved_leaders=moved)
    if records:
        # The partitions are about to change already; the next heartbeat reports directories again.
        return Decision((*records, *_cordoning(view, broker, request)), reply)
    return _lose_directories(view, request, reply)


def _lose_directories(
    view: ControllerView,
    request: BrokerHeartbeatRequest,
    reply: HeartbeatReply,
    since: ChangePosition = BEGIN,
) -> Decision[HeartbeatReply] | Step[HeartbeatReply]:
    """Let the broker continue without the directories that it reports as failed (KIP-858).

    Replicas in them leave their ISRs and leaderships, in steps, the next from `since` on. The
    registration contains the directories until the last step: if the controller fails in between,
    the next heartbeat begins again. A broker that has lost all directories stops by itself; a
    record cannot express an empty list.

    Raises:
        ApiError: STALE_BROKER_EPOCH.
    """
    broker = check_broker_epoch(view, request.broker_id, request.broker_epoch)
    lost = frozenset(request.offline_log_dirs) & frozenset(broker.directories)
    left = [d for d in broker.directories if d not in lost]
    records: tuple[MetadataRecord, ...] = ()
    if lost and left and view.metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL:
        part = _leave_directories(view, broker, lost, since)
        if part.since is not None:
            go_on = partial(_lose_directories, request=request, reply=reply, since=part.since)
            return Step(part.records, go_on)
        own = BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=left
        )
        records = (own, *part.records)
    return Decision((*records, *_cordoning(view, broker, request)), reply)


def _leave_directories(
    view: ControllerView, broker: BrokerImage, lost: frozenset[bytes], since: ChangePosition
) -> Part:
    """Return changes by which the broker leaves its replicas in these directories."""
    if not lost:
        return Part()
    change = BrokerChange(leaving=frozenset({broker.id}), directories=lost)
    return part_of_changes(view, change, Cause.DIRECTORY_FAILED, since)


def _cordoning(
    view: ControllerView, broker: BrokerImage, request: BrokerHeartbeatRequest
) -> list[MetadataRecord]:
    """Return the record of cordoned directories, which take no new replicas (KIP-1066), if changed.

    A broker that does not know cordoned directories sends null. Directories of other brokers are
    ignored: a heartbeat is not refused because of them.
    """
    named = request.cordoned_log_dirs
    if named is None or view.metadata_version < CORDONED_DIRECTORIES_LEVEL:
        return []
    cordoned = {directory for directory in named if directory in broker.directories}
    if cordoned == set(broker.cordoned_directories):
        return []
    return [
        BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=sorted(cordoned)
        )
    ]


def next_state(
    view: ControllerView, broker: BrokerImage, request: BrokerHeartbeatRequest, caught_up: bool
) -> BrokerState:
    """Return the state after this heartbeat.

    A broker in controlled shutdown may stop when it leads no partition and all active brokers have
    seen the new leaders. Clients can then find them. Until then KIP-841 keeps it out of the ISRs.
    """
    if broker.fenced:
        return _next_when_fenced(broker, request, caught_up)
    if broker.in_controlled_shutdown:
        return _next_in_shutdown(view, broker)
    if request.want_fence:
        return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
    if request.want_shut_down:
        if has_leaderships(view, broker.id):
            return BrokerState.CONTROLLED_SHUTDOWN
        return BrokerState.SHUTDOWN_NOW
    return BrokerState.UNFENCED


def _next_when_fenced(
    broker: BrokerImage, request: BrokerHeartbeatRequest, caught_up: bool
) -> BrokerState:
    # A broker that has begun to shut down returns only under a new epoch.
    if request.want_shut_down or broker.in_controlled_shutdown:
        return BrokerState.SHUTDOWN_NOW
    if request.want_fence or not caught_up:
        return BrokerState.FENCED
    return BrokerState.UNFENCED


def _next_in_shutdown(view: ControllerView, broker: BrokerImage) -> BrokerState:
    if has_leaderships(view, broker.id):
        return BrokerState.CONTROLLED_SHUTDOWN
    begun_at = view.heartbeats.shutdown_offset(broker.id)
    if begun_at is None:
        return BrokerState.CONTROLLED_SHUTDOWN
    lowest = view.heartbeats.lowest_active_metadata_offset(view.image.cluster.brokers.values())
    if lowest is not None and lowest < begun_at:
        mark("controller.shutdown-waits")
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.SHUTDOWN_NOW


def has_leaderships(view: ControllerView, broker_id: int) -> bool:
    """Return whether the broker leads any partition."""
    return any(
        partition.leader == broker_id
        for topic in view.image.topics.by_id.values()
        for partition in topic.partitions.values()
    )


def _records_for_state(
    view: ControllerView, broker: BrokerImage, state: BrokerState, since: ChangePosition
) -> _RecordsLeft:
    if state is BrokerState.UNFENCED:
        return _unfence(view, broker, since) if broker.fenced or since != BEGIN else _NOTHING
    if state is BrokerState.CONTROLLED_SHUTDOWN:
        return _begin_shutdown(view, broker, since)
    if broker.fenced:
        return _NOTHING
    leaves = state is BrokerState.SHUTDOWN_NOW
    cause = Cause.CONTROLLED_SHUTDOWN if leaves else Cause.BROKER_FENCED
    return _fence(view, broker, cause, since)


class _RecordsLeft(NamedTuple):
    """As `Part`, with the broker's own record."""

    records: tuple[MetadataRecord, ...]
    left: ChangePosition | None


_NOTHING = _RecordsLeft((), None)


def _fence(
    view: ControllerView, broker: BrokerImage, cause: Cause, since: ChangePosition
) -> _RecordsLeft:
    """Remove the broker from its ISRs and leaderships, then fence it."""
    part = part_of_changes(view, BrokerChange(leaving=frozenset({broker.id})), cause, since)
    if part.since is not None:
        return _RecordsLeft(*part)
    return _RecordsLeft((*part.records, _registration_change(broker, fenced=_FENCE)), None)


def _unfence(view: ControllerView, broker: BrokerImage, since: ChangePosition) -> _RecordsLeft:
    """Unfence the broker, then let it lead leaderless partitions."""
    change = BrokerChange(joining=frozenset({broker.id}))
    part = part_of_changes(view, change, Cause.BROKER_UNFENCED, since)
    if not broker.fenced:
        return _RecordsLeft(*part)
    return _RecordsLeft((_registration_change(broker, fenced=_UNFENCE), *part.records), part.since)


def _begin_shutdown(
    view: ControllerView, broker: BrokerImage, since: ChangePosition
) -> _RecordsLeft:
    change = BrokerChange(leaving=frozenset({broker.id}))
    part = part_of_changes(view, change, Cause.CONTROLLED_SHUTDOWN, since)
    if broker.in_controlled_shutdown:
        return _RecordsLeft(*part)
    own = _registration_change(broker, in_controlled_shutdown=_SHUTTING_DOWN)
    return _RecordsLeft((own, *part.records), part.since)


def _registration_change(
    broker: BrokerImage, *, fenced: int = 0, in_controlled_shutdown: int = 0
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )


# --- leaving ----------------------------------------------------------------------------------


class Silent(NamedTuple):
    """Expired brokers that one check found, each with its epoch and the cause of fencing.

    since: place from which fencing of the first one continues.
    """

    causes: Mapping[tuple[int, int], Cause]
    since: ChangePosition = BEGIN


def silent_brokers(view: ControllerView) -> Silent:
    """Return the brokers to fence now; `decide_fence_silent` fences them."""
    brokers = view.image.cluster.brokers
    found = {}
    for broker_id in sorted(view.expired_brokers()):
        broker = brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            found[broker_id, broker.epoch] = silence(view, broker_id)
    return Silent(found)


def decide_fence_silent(
    view: ControllerView, silent: Silent, partitions_max: int = CHANGES_PER_STEP
) -> Decision[Silent | None]:
    """Fence the first broker, or change up to `partitions_max` of its partitions.

    The reply is what is left. A broker of ten thousand partitions takes many such steps, each of
    which leaves a valid state. The broker is fenced last, once a scan of every topic finds no more
    of its partitions than one step can change.

    A broker that was found silent is fenced even if it sends a heartbeat in the meantime. All of
    them are passed over as candidates for the others' leaderships (Reason.SESSION_EXPIRED), and no
    later decision would return to these partitions.
    """
    brokers = view.image.cluster.brokers
    for (broker_id, epoch), cause in silent.causes.items():
        broker = brokers.get(broker_id)
        if broker is None or broker.fenced or broker.epoch != epoch:
            continue
        left = {key: value for key, value in silent.causes.items() if key >= (broker_id, epoch)}
        doomed = frozenset(each for each, _ in left)
        change = BrokerChange(leaving=frozenset({broker_id}), doomed=doomed)
        part = part_of_changes(view, change, cause, silent.since, partitions_max)
        if part.since is not None:
            return Decision(part.records, Silent(left, part.since))
        fencing = _registration_change(broker, fenced=_FENCE)
        return Decision((*part.records, fencing), Silent(left))
    return Decision((), None)


def silence(view: ControllerView, broker_id: int) -> Cause:
    """Return why an expired broker is fenced: its session ended, or its connection was lost
    before."""
    timeout_ms = view.settings.session_timeout_ms
    if view.heartbeats.has_session(broker_id, view.monotonic_ms, timeout_ms):
        return Cause.CONNECTION_LOST
    return Cause.BROKER_FENCED


def decide_unregister_broker(
    view: ControllerView, broker_id: int, since: ChangePosition = BEGIN
) -> Decision[None] | Step[None]:
    """Remove a broker's registration, once it has left every ISR and ELR.

    The removal drops the epoch too, so no later registration can prove a clean shutdown. So the
    broker leaves as after an unclean one (P11).

    Raises:
        ApiError: BROKER_ID_NOT_REGISTERED.
    """
    broker = view.image.cluster.brokers.get(broker_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    change = _departure(view, broker_id, clean=False)
    part = part_of_changes(view, change, Cause.BROKER_UNREGISTERED, since)
    if part.since is not None:
        go_on = partial(decide_unregister_broker, broker_id=broker_id, since=part.since)
        return Step(part.records, go_on)
    removal = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)
    return Decision((*part.records, removal), None)
