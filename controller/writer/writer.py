"""Shell: The controller's single writer: decide, replay, append, answer at commit.

The process's metadata loader shares its image of the log. It replays records of other writers and
notifies the writer of each commit. While this node leads, it decides on the working image: the
committed records and all that it has appended since. It replays a decision's records on that image
as the log will contain them (without fields that the finalised metadata.version lacks). Only then
does it append them. One event loop runs all of it without a wait in between, so decisions see each
other in log order.

The writer answers when the records are committed. A decision without records waits for the last
append before it, whose effects it may have seen.

When the node loses leadership, it drops uncommitted records from the image and fails waiting
requests with NOT_CONTROLLER. The next leader's log determines whether these records survive (M18).

A node that becomes leader decides only once its whole log is committed and replayed; requests wait
until then. Before its first decision it may have to write records (`activation.py`).

A decided record that does not replay stops the process (InvariantViolated): it must not reach the
log.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from controller.configs.topic_settings import ELECTION_KEYS
from controller.decision import (
    RECORDS_PER_OPERATION_MAX,
    ControllerView,
    Decide,
    Step,
)
from controller.directory_moves import DirectoryMoves
from controller.elections.passed_over import elections_by_local_logs, passed_over
from controller.elections.upkeep import Rebalance, decide_unclean_elections
from controller.heartbeats import Heartbeats
from controller.quotas.mutations import MutationQuotas
from controller.report_epochs import ReportEpochs
from controller.settings import ControllerSettings
from controller.writer.activation import activation_records
from controller.writer.activities import (
    Activities,
    Activity,
    Fencing,
    Idling,
    Upkeep,
    Vacancies,
)
from controller.writer.recovery import Recovery
from controller.writer.roll_call import RollCall
from controller.writer.stats import ControllerStats, last_known_leaders
from metalog.image.features import METADATA_VERSION, MINIMUM_METADATA_VERSION, record_version
from metalog.image.replay import GrowingImage, ReplayError, described
from metalog.image.snapshot import fit_record
from metalog.image.values import MetadataImage
from metalog.loader import MetadataLoader
from metalog.quorum.node import NotLeader
from protocol.errors import ApiError, EncodeError, ErrorCode
from protocol.metadata import FeatureLevelRecord, PartitionChangeRecord
from protocol.schema import MetadataRecord
from protocol.transport.dispatch import Connection
from runtime.clock import Clock
from runtime.errors import InvariantViolated
from runtime.log import get_logger
from runtime.marks import mark
from runtime.tasks import Supervisor

REFUSED_PAUSE_MS = 100.0
"""Retry backoff of activities after a refused append."""

R = TypeVar("R")
T = TypeVar("T")

_log = get_logger("controller")


class Quorum(Protocol):
    """The parts of the metadata quorum that the controller uses."""

    @property
    def node_id(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...

    def leader(self) -> tuple[int | None, int]: ...

    def append(self, epoch: int, records: Sequence[Any], *, metadata_version: int) -> int:
        """Append one atomic batch and return the offset of its last record. Raises NotLeader."""
        ...


class _Waiter(NamedTuple):
    future: asyncio.Future[Any]
    result: Callable[[], Any]
    fail: Callable[[ApiError], Any] | None


class _Early(NamedTuple):
    """An operation that arrived before this node was ready for it."""

    future: asyncio.Future[Any]
    submit: Callable[[], asyncio.Future[Any]]
    fail: Callable[[ApiError], Any] | None


class _Operation(NamedTuple, Generic[R, T]):
    """The rest of an operation, and the future of its caller."""

    future: asyncio.Future[T]
    decide: Decide[R]
    respond: Callable[[R], T]
    fail: Callable[[ApiError], T] | None


@dataclass(frozen=True, slots=True)
class _HeartbeatConnection:
    """Callback for the close of a heartbeat connection.

    It is a value, so that a connection has one callback per broker, however often the broker's
    heartbeats alternate between two connections.
    """

    closed: Callable[[int, Connection], None]
    broker_id: int
    connection: Connection

    def __call__(self) -> None:
        self.closed(self.broker_id, self.connection)


class _Timer(NamedTuple):
    due_ms: float
    handle: asyncio.TimerHandle


@dataclass(slots=True, eq=False)
class _Append:
    """One batch that waits for its commit, with the operations that wait for it."""

    last_offset: int
    waiters: list[_Waiter]


class Controller:
    """The controller of a process.

    Args:
        bootstrap: the first records of an empty log.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        quorum: Quorum,
        loader: MetadataLoader,
        *,
        clock: Clock,
        rng: random.Random,
        supervisor: Supervisor,
        bootstrap: Sequence[MetadataRecord],
    ) -> None:
        self.settings = settings
        self.heartbeats = Heartbeats()
        self.stats = ControllerStats()
        self._quorum = quorum
        self._clock = clock
        self._rng = rng
        self._supervisor = supervisor
        self._bootstrap = bootstrap
        self._log_image = loader.log_image
        # These belong to the working image: they are reset when its uncommitted records are lost.
        self._report_epochs = ReportEpochs()
        self._directory_moves = DirectoryMoves()
        self._active = False
        self._epoch = -1
        self._claim: tuple[int, int] | None = None
        self._pending: deque[_Append] = deque()
        self._early: list[_Early] = []
        # Events between the election and the end of catching up.
        self._early_contacts: dict[tuple[int, bool], Callable[[], None]] = {}
        self._gone: set[int] = set()
        self.recovery = Recovery(
            settings,
            self.stats.recovery,
            clock=clock,
            supervisor=supervisor,
            view=self.view,
            rearm=self._arm,
            committed=self.committed,
        )
        self._roll_call = RollCall(
            settings, supervisor=supervisor, view=self.view, gone=self.process_gone
        )
        self._fencing = Fencing(self.heartbeats, settings.session_timeouts, self.stats)
        self._activities = Activities(self._own_activities())
        self._timers: dict[Activity, _Timer] = {}
        self._refused_until_ms = 0.0
        self._stopped = False
        self.mutation_quotas = MutationQuotas(
            window_count=settings.mutation_window_count,
            window_ms=settings.mutation_window_ms,
        )
        loader.add_publisher(lambda _, image: self.mutation_quotas.publish(image))
        loader.register_writer(self)

    def _own_activities(self) -> Iterator[Activity]:
        settings = self.settings
        yield self._fencing
        yield self._roll_call
        yield Vacancies(lambda: self._log_image.working)
        if settings.max_idle_interval_ms > 0:
            yield Idling(settings.max_idle_interval_ms, lambda: bool(self._pending))
        yield Upkeep(
            decide_unclean_elections,
            settings.unclean_election_interval_ms,
            wakes_on=ELECTION_KEYS,
        )
        yield self.recovery
        if settings.rebalance:
            yield Upkeep(Rebalance(), settings.rebalance_interval_ms)

    # --- state ---

    @property
    def is_active(self) -> bool:
        """True if this node leads the quorum and has caught up with its log."""
        return self._active

    @property
    def is_leading(self) -> bool:
        """True if this node leads the quorum, active already or not.

        The quorum knows first; this object is notified after it has received all committed records.
        """
        return not self._stopped and (self.is_active or self.leader_id == self._quorum.node_id)

    @property
    def leader_id(self) -> int:
        """The quorum's leader as known to this node, -1 if unknown."""
        leader, _ = self._quorum.leader()
        return -1 if leader is None else leader

    @property
    def epoch(self) -> int:
        """The epoch in which this node is or last was active, -1 if never."""
        return self._epoch

    @property
    def committed_image(self) -> MetadataImage:
        return self._log_image.committed

    @property
    def last_applied_offset(self) -> int:
        """Offset of the last record in the image that decisions are made on."""
        return (self._quorum.log_end_offset if self._active else self._log_image.end_offset) - 1

    @property
    def last_committed_offset(self) -> int:
        return self._log_image.end_offset - 1

    def view(self) -> ControllerView:
        """Return the view for a decision. Raises ApiError: NOT_CONTROLLER if this node is not
        active."""
        if not self._active:
            raise self._not_controller()
        return self._view_of(self._log_image.working)

    def committed_view(self) -> ControllerView:
        """Return a view of the committed image, on any node: for requests that change nothing."""
        return self._view_of(self._log_image.committed)

    def _view_of(self, image: MetadataImage) -> ControllerView:
        seed = self._rng.getrandbits(64)
        return ControllerView(
            image=image,
            next_offset=self._quorum.log_end_offset,
            now_ms=self._clock.now_ms(),
            monotonic_ms=self._clock.monotonic_ms(),
            heartbeats=self.heartbeats,
            report_epochs=self._report_epochs,
            directory_moves=self._directory_moves,
            settings=self.settings,
            fresh_rng=lambda: random.Random(seed),
        )

    def _not_controller(self) -> ApiError:
        leader, epoch = self._quorum.leader()
        known = "no active controller is known" if leader is None else f"node {leader} is active"
        return ApiError(
            ErrorCode.NOT_CONTROLLER,
            f"node {self._quorum.node_id} is not the active controller: {known} in epoch {epoch}",
        )

    # --- operations ---

    def submit(
        self,
        decide: Decide[R],
        respond: Callable[[R], T],
        *,
        fail: Callable[[ApiError], T] | None = None,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[T]:
        """Decide now. Returns: a future of `respond(reply)`, done once the records are committed.

        An operation in steps continues after the next event-loop iteration, while its caller waits.
        After a refusal, a lost leadership or a timeout the future has `fail(error)`, or without
        `fail` the ApiError itself.

        Raises:
            ApiError: without `fail`, if the error is known at once.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if not self.is_active and self.is_leading:
            again = partial(self.submit, decide, respond, fail=fail, timeout_ms=timeout_ms)
            self._early.append(_Early(future, again, fail))
            if timeout_ms is not None:
                text = f"this controller was not ready within {timeout_ms} ms; no change was made"
                _limit_wait(future, fail, timeout_ms, text)
            return future
        try:
            self._operate(_Operation(future, decide, respond, fail))
        except ApiError as error:
            if fail is None:
                raise
            future.set_result(fail(error))
        if timeout_ms is not None and not future.done():
            text = f"the change was not committed within {timeout_ms} ms; it may be committed later"
            _limit_wait(future, fail, timeout_ms, text)
        return future

    def _operate(self, operation: _Operation[R, T]) -> None:
        """Run one step of an operation. Raises ApiError."""
        future, decide, respond, fail = operation
        started_ms = self._clock.monotonic_ms()
        try:
            decision = decide(self.view())
            append = self._append(decision.records)
        finally:
            self.stats.operation(self._clock.monotonic_ms() - started_ms)
        if isinstance(decision, Step):
            rest = operation._replace(decide=decision.then)
            asyncio.get_running_loop().call_soon(self._go_on, rest)
            return
        reply = decision.reply
        if append is None:
            future.set_result(respond(reply))
        else:
            append.waiters.append(_Waiter(future, lambda: respond(reply), fail))

    def _go_on(self, operation: _Operation[R, T]) -> None:
        """Run the next step of an operation, unless its caller has gone: every step leaves a valid
        state, and a repeated request continues from it."""
        if operation.future.done():
            return
        try:
            self._operate(operation)
        except ApiError as error:
            _settle_error(operation.future, operation.fail, error)

    def committed(self) -> asyncio.Future[None]:
        """Return a future that is done when everything appended so far is committed.

        It fails with ApiError NOT_CONTROLLER if this node stops being the active controller before.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._pending:
            self._pending[-1].waiters.append(_Waiter(future, lambda: None, None))
        else:
            future.set_result(None)
        return future

    def touch(
        self,
        broker_id: int,
        *,
        epoch: int,
        metadata_offset: int,
        connection: Connection | None = None,
    ) -> None:
        """Note a broker's heartbeat. It is soft state of the active controller, or of a node that
        is about to be active."""
        if not self.is_active:
            broker = self.committed_image.cluster.brokers.get(broker_id)
            if self.is_leading and broker is not None:
                # An epoch that is not committed here may belong to a newer registration or to none:
                # it must not replace a heartbeat that is known to be the broker's.
                self._early_contacts[broker_id, broker.epoch == epoch] = partial(
                    self.touch,
                    broker_id,
                    epoch=epoch,
                    metadata_offset=metadata_offset,
                    connection=connection,
                )
            return
        is_new = self.heartbeats.touch(
            broker_id,
            epoch=epoch,
            # Controlled shutdowns wait for the broker that is furthest behind, so an offset beyond
            # the log end is capped.
            metadata_offset=min(metadata_offset, self._quorum.log_end_offset),
            monotonic_ms=self._clock.monotonic_ms(),
            connection=connection,
        )
        if is_new and connection is not None and self.settings.connection_loss_fence_ms:
            closed = _HeartbeatConnection(self._connection_closed, broker_id, connection)
            connection.add_close_callback(closed)

    def _connection_closed(self, broker_id: int, connection: Connection) -> None:
        if (
            self.is_active
            and connection.closed_by_peer
            and self.heartbeats.connection_lost(broker_id, connection, self._clock.monotonic_ms())
        ):
            self._look_again()

    def process_gone(self, node_id: int) -> None:
        """Note that a node's port refuses connections, so its process has ended with all its
        roles."""
        if not self.is_active:
            self._gone.add(node_id)
        elif self.heartbeats.process_gone(node_id, self._clock.monotonic_ms()):
            self._look_again()

    def begin_shutdown(self, broker_id: int, epoch: int) -> None:
        """Let the broker registered with `epoch` leave once the others have the log up to its
        current end."""
        self.heartbeats.begin_shutdown(broker_id, self._quorum.log_end_offset - 1, epoch=epoch)

    def _append(self, records: Sequence[MetadataRecord]) -> _Append | None:
        """Replay and append records. Returns: the append to wait for, None without one.

        A request's records are one batch of limited size (`check_record_count`). Records that the
        controller decides by itself may be more: fencing a broker may change every partition. They
        are appended in several batches, and the log may end between them. So their order leaves a
        valid state after each prefix (partitions change before their broker is fenced).
        """
        if not records:
            return self._pending[-1] if self._pending else None
        for start in range(0, len(records), RECORDS_PER_OPERATION_MAX):
            append = self._append_batch(records[start : start + RECORDS_PER_OPERATION_MAX])
        return append if append.last_offset > self.last_committed_offset else None

    def _append_batch(self, records: Sequence[MetadataRecord]) -> _Append:
        before = self._log_image.working
        level = _level_after(before, records)
        records = [fit_record(r, record_version(type(r).__name__, level)) for r in records]
        image = self._replayed(before, records)
        base_offset = self._quorum.log_end_offset
        expected = base_offset + len(records) - 1
        try:
            last_offset = self._quorum.append(self._epoch, records, metadata_version=level)
        except NotLeader as lost:
            self._resign()
            raise self._not_controller() from lost
        except EncodeError as error:
            raise self._unwritable(error) from error
        if last_offset != expected:
            raise self._broken(f"the batch ends at offset {last_offset}, expected {expected}")
        self._log_image.append(image, base_offset=base_offset, epoch=self._epoch)
        self.stats.count_elections(records)
        self._report_epochs.note(image, records)
        self._directory_moves.note(before, records)
        by_local_logs = elections_by_local_logs(image, records)
        if by_local_logs:
            self.stats.passed_over += passed_over(self._view_of(image), by_local_logs)
        self._warn_of_last_known(image, last_known_leaders(records))
        now_ms = self._clock.monotonic_ms()
        append = _Append(last_offset, [])
        self._pending.append(append)
        if image.cluster.brokers is not before.cluster.brokers:
            self.heartbeats.follow(image.cluster.brokers.values(), now_ms)
        self._activities.appended(records, now_ms)
        self._arm()
        # A quorum of one voter may have committed the batch during the append.
        self._settle_committed()
        return append

    @staticmethod
    def _warn_of_last_known(image: MetadataImage, changes: Sequence[PartitionChangeRecord]) -> None:
        """Log one line for a batch: a power failure may cause ten thousand such elections."""
        if changes:
            one = changes[0]
            name = image.topics.by_id[one.topic_id].name
            _log.warning(
                "Elected last known leaders because no clean replica was left; "
                "records that they had not flushed are lost",
                partitions=len(changes),
                one=f"{name}-{one.partition_id}",
                leader=one.leader,
            )

    def _replayed(self, image: MetadataImage, records: Iterable[MetadataRecord]) -> MetadataImage:
        growing = GrowingImage(image)
        for record in records:
            try:
                growing.add(record)
            except ReplayError as error:
                self.stats.metadata_errors += 1
                raise self._broken(
                    f"cannot replay a decided record: {error}; record: {described(record)}"
                ) from error
        return growing.finish()

    def _unwritable(self, error: EncodeError) -> ApiError:
        """Return the error for a record that cannot be encoded; nothing was appended, and the image
        is unchanged."""
        self.stats.metadata_errors += 1
        # The value is left out: that of a configuration may be a password.
        why = f"{error.what} (allowed: {error.allowed})"
        _log.error("A decided record cannot be written", error=why)
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"cannot write a decided record: {why}")

    def _broken(self, message: str) -> InvariantViolated:
        error = InvariantViolated(message)
        self._supervisor.report("controller", error)
        return error

    # --- the loader's calls ---

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
        """Note the leader of an epoch, None if unknown."""
        if leader_id == self._quorum.node_id:
            if self.is_active and self._epoch == epoch:
                return
            if self._claim is not None and self._claim[0] == epoch:
                return
            if self.is_active:
                self._resign()
            self._claim = (epoch, self._quorum.log_end_offset)
            self._maybe_activate()
            return
        self._resign()

    def handle_commit(self, epoch: int) -> None:
        """Note that the committed image has advanced, by records of a leader of that epoch."""
        if self.is_active and epoch != self._epoch:
            # Another leader has written since, so records appended here are not in the log.
            self._resign()
        self._settle_committed()
        self._maybe_activate()

    def _settle_committed(self) -> None:
        while self._pending and self._pending[0].last_offset <= self.last_committed_offset:
            for waiter in self._pending.popleft().waiters:
                if not waiter.future.done():
                    waiter.future.set_result(waiter.result())

    # --- leadership ---

    def _maybe_activate(self) -> None:
        if self._claim is None or self._stopped:
            return
        epoch, end_offset = self._claim
        if self._log_image.end_offset < end_offset:
            return
        self._claim = None
        self._activate(epoch)

    def _activate(self, epoch: int) -> None:
        self._epoch = epoch
        self._active = True
        self.stats.became_active += 1
        _log.info(
            "Became the active controller", epoch=epoch, next_offset=self._quorum.log_end_offset
        )
        self._take_contacts(self.committed_image)
        self._try_append(
            activation_records(
                self._bootstrap,
                has_metadata=self._log_image.working.metadata_version is not None,
                in_transaction=self._log_image.in_transaction,
            )
        )
        if self._active:
            self._activities.begin(self._clock.monotonic_ms())
            self._arm()
        early, self._early = self._early, []
        for operation in early:
            _submit_early(operation)

    def _take_contacts(self, image: MetadataImage) -> None:
        """Start all sessions now, then apply the early heartbeats and closed processes."""
        now_ms = self._clock.monotonic_ms()
        self.heartbeats.reset(image.cluster.brokers.values(), now_ms)
        contacts, self._early_contacts = self._early_contacts, {}
        for touch in contacts.values():
            touch()
        gone, self._gone = self._gone, set()
        for node_id in sorted(gone):
            self.heartbeats.process_gone(node_id, now_ms)

    def _resign(self) -> None:
        self._early_contacts.clear()
        self._gone.clear()
        if self.is_active or self._early:
            self.stats.lost_leadership += 1
        self._claim = None
        early, self._early = self._early, []
        for operation in early:
            _settle_error(operation.future, operation.fail, self._not_controller())
        if not self._active:
            return
        self._active = False
        self._log_image.drop_appended()
        self._report_epochs.clear()
        self._directory_moves.clear()
        pending, self._pending = self._pending, deque()
        self._activities.end()
        self._arm()
        _log.info("No longer the active controller", epoch=self._epoch, in_flight=len(pending))
        if pending:
            mark("controller.resigns-with-writes")
        error = self._not_controller()
        for append in pending:
            for waiter in append.waiters:
                _settle_error(waiter.future, waiter.fail, error)

    def stop(self) -> None:
        """Fail waiting requests and stop for good."""
        self._stopped = True
        self._resign()

    # --- activities ---

    def _arm(self) -> None:
        """Set a timer for each activity, for the time at which it is due."""
        for activity in self._activities:
            timer = self._timers.get(activity)
            if timer is not None:
                if timer.due_ms == activity.due_ms:
                    continue
                timer.handle.cancel()
                del self._timers[activity]
            if activity.due_ms is not None:
                due_ms = max(activity.due_ms, self._refused_until_ms)
                wait_ms = max(due_ms - self._clock.monotonic_ms(), 0.0)
                loop = asyncio.get_running_loop()
                handle = loop.call_at(loop.time() + wait_ms / 1000.0, self._act, activity)
                self._timers[activity] = _Timer(activity.due_ms, handle)

    def _look_again(self) -> None:
        self._fencing.look_again()
        self._arm()

    def _act(self, activity: Activity) -> None:
        """Run one turn of an activity."""
        del self._timers[activity]
        self._try_append(activity.act(self._clock.monotonic_ms(), self.view))
        self._arm()

    def _try_append(self, records: Sequence[MetadataRecord]) -> None:
        try:
            self._append(records)
        except ApiError:
            self._refused_until_ms = self._clock.monotonic_ms() + REFUSED_PAUSE_MS


def _level_after(image: MetadataImage, records: Iterable[MetadataRecord]) -> int:
    """Return the `metadata.version` level in force after the records are written."""
    level = image.metadata_version
    for record in records:
        if type(record) is FeatureLevelRecord and record.name == METADATA_VERSION:
            level = record.feature_level
    return MINIMUM_METADATA_VERSION.level if level is None else level


def _submit_early(operation: _Early) -> None:
    future = operation.future
    if future.done():
        return
    try:
        submitted = operation.submit()
    except ApiError as error:
        future.set_exception(error)
        return

    def copy(done: asyncio.Future[Any]) -> None:
        # Retrieve the exception in any case; else the event loop reports it as never retrieved.
        error = done.exception()
        if future.done():
            return
        if error is None:
            future.set_result(done.result())
        else:
            future.set_exception(error)

    submitted.add_done_callback(copy)


def _limit_wait(
    future: asyncio.Future[T], fail: Callable[[ApiError], T] | None, timeout_ms: int, text: str
) -> None:
    timer = asyncio.get_running_loop().call_later(
        max(timeout_ms, 0) / 1000.0,
        _settle_error,
        future,
        fail,
        ApiError(ErrorCode.REQUEST_TIMED_OUT, text),
    )
    future.add_done_callback(lambda _: timer.cancel())


def _settle_error(
    future: asyncio.Future[Any], fail: Callable[[ApiError], Any] | None, error: ApiError
) -> None:
    if future.done():
        return
    if fail is not None:
        future.set_result(fail(error))
    else:
        future.set_exception(error)
