"""Shell: The controller's single writer: decide, replay, append, answer at commit.

The process's metadata loader shares its image of the log. It replays records of other writers and
notifies the writer of each commit. While this node leads, it decides on the working image: the
committed records and all that it has appended since. It replays a decision's records on that image
before it appends them (`batch_writer.py`). One event loop runs all of it without a wait in between,
so decisions see each other in log order.

The writer answers when the records are committed (`pending.py`). A decision without records waits
for the last append before it, whose effects it may have seen.

When the node loses leadership, it drops uncommitted records from the image and fails waiting
requests with NOT_CONTROLLER. The next leader's log determines whether these records survive (M18).

A node that becomes leader decides only once its whole log is committed and replayed; requests wait
until then. Before its first decision it may have to write records (`activation.py`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from controller.configs.topic_settings import ELECTION_KEYS
from controller.decision import (
    RECORDS_PER_OPERATION_MAX,
    ControllerView,
    Decide,
    Step,
)
from controller.elections.upkeep import Rebalance, decide_unclean_elections
from controller.heartbeats import Heartbeats
from controller.quotas.mutations import MutationQuotas
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
from controller.writer.activity_timers import ActivityTimers
from controller.writer.batch_writer import BatchWriter, Quorum
from controller.writer.contacts import Contacts
from controller.writer.pending import (
    EarlyOperations,
    PendingBatch,
    PendingBatches,
    Waiter,
    settle_error,
)
from controller.writer.recovery import Recovery
from controller.writer.roll_call import RollCall
from controller.writer.stats import ControllerStats
from metalog.image.values import MetadataImage
from metalog.loader import MetadataLoader
from metalog.quorum.node import NotLeader
from protocol.errors import ApiError, ErrorCode
from protocol.schema import MetadataRecord
from runtime.clock import Clock
from runtime.log import get_logger
from runtime.marks import mark
from runtime.tasks import Supervisor

R = TypeVar("R")
T = TypeVar("T")

_log = get_logger("controller")


class _Operation(NamedTuple, Generic[R, T]):
    """The rest of an operation, and the future of its caller."""

    future: asyncio.Future[T]
    decide: Decide[R]
    respond: Callable[[R], T]
    fail: Callable[[ApiError], T] | None


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
        self._bootstrap = bootstrap
        self._log_image = loader.log_image
        self._active = False
        self._epoch = -1
        self._claim: tuple[int, int] | None = None
        self._pending = PendingBatches()
        self._early = EarlyOperations()
        self._batches = BatchWriter(
            quorum, self._log_image, self.stats, supervisor, view_of=self._view_of
        )
        self.contacts = Contacts(
            self.heartbeats,
            clock=clock,
            watches_connections=bool(settings.connection_loss_fence_ms),
            is_leading=lambda: self.is_leading,
            committed_image=lambda: self.committed_image,
            log_end_offset=lambda: quorum.log_end_offset,
            shortened=self._look_again,
        )
        self.recovery = Recovery(
            settings,
            self.stats.recovery,
            clock=clock,
            supervisor=supervisor,
            view=self.view,
            rearm=lambda: self._timers.arm(),
            committed=self.committed,
        )
        self._roll_call = RollCall(
            settings, supervisor=supervisor, view=self.view, gone=self.contacts.process_gone
        )
        self._fencing = Fencing(self.heartbeats, settings.session_timeouts, self.stats)
        self._activities = Activities(self._own_activities())
        self._timers = ActivityTimers(self._activities, clock, self._act)
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
            report_epochs=self._batches.report_epochs,
            directory_moves=self._batches.directory_moves,
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
            self._early.add(future, again, fail)
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
            batch = self._append(decision.records)
        finally:
            self.stats.operation(self._clock.monotonic_ms() - started_ms)
        if isinstance(decision, Step):
            rest = operation._replace(decide=decision.then)
            asyncio.get_running_loop().call_soon(self._go_on, rest)
            return
        reply = decision.reply
        if batch is None:
            future.set_result(respond(reply))
        else:
            batch.waiters.append(Waiter(future, lambda: respond(reply), fail))

    def _go_on(self, operation: _Operation[R, T]) -> None:
        """Run the next step of an operation, unless its caller has gone: every step leaves a valid
        state, and a repeated request continues from it."""
        if operation.future.done():
            return
        try:
            self._operate(operation)
        except ApiError as error:
            settle_error(operation.future, operation.fail, error)

    def committed(self) -> asyncio.Future[None]:
        """Return a future that is done when everything appended so far is committed.

        It fails with ApiError NOT_CONTROLLER if this node stops being the active controller before.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        newest = self._pending.newest
        if newest is not None:
            newest.waiters.append(Waiter(future, lambda: None, None))
        else:
            future.set_result(None)
        return future

    def _append(self, records: Sequence[MetadataRecord]) -> PendingBatch | None:
        """Replay and append records. Returns: the batch to wait for, None without one.

        A request's records are one batch of limited size (`check_record_count`). Records that the
        controller decides by itself may be more: fencing a broker may change every partition. They
        are appended in several batches, and the log may end between them. So their order leaves a
        valid state after each prefix (partitions change before their broker is fenced).
        """
        if not records:
            return self._pending.newest
        for start in range(0, len(records), RECORDS_PER_OPERATION_MAX):
            batch = self._append_batch(records[start : start + RECORDS_PER_OPERATION_MAX])
        return batch if batch.last_offset > self.last_committed_offset else None

    def _append_batch(self, records: Sequence[MetadataRecord]) -> PendingBatch:
        before = self._log_image.working
        try:
            written = self._batches.append(records, self._epoch)
        except NotLeader as lost:
            self._resign()
            raise self._not_controller() from lost
        now_ms = self._clock.monotonic_ms()
        batch = self._pending.add(written.last_offset)
        brokers = written.image.cluster.brokers
        if brokers is not before.cluster.brokers:
            self.heartbeats.follow(brokers.values(), now_ms)
        self._activities.appended(written.records, now_ms)
        self._timers.arm()
        # A quorum of one voter may have committed the batch during the append.
        self._settle_committed()
        return batch

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
        self._pending.commit(self.last_committed_offset)

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
        self.contacts.begin()
        self._try_append(
            activation_records(
                self._bootstrap,
                has_metadata=self._log_image.working.metadata_version is not None,
                in_transaction=self._log_image.in_transaction,
            )
        )
        if self._active:
            self._activities.begin(self._clock.monotonic_ms())
            self._timers.arm()
        self._early.submit_all()

    def _resign(self) -> None:
        self.contacts.end()
        if self.is_active or self._early:
            self.stats.lost_leadership += 1
        self._claim = None
        self._early.fail_all(self._not_controller)
        if not self._active:
            return
        self._active = False
        self._batches.drop_appended()
        pending = self._pending.remove_all()
        self._activities.end()
        self._timers.arm()
        _log.info("No longer the active controller", epoch=self._epoch, in_flight=len(pending))
        if pending:
            mark("controller.resigns-with-writes")
        error = self._not_controller()
        for batch in pending:
            batch.fail(error)

    def stop(self) -> None:
        """Fail waiting requests and stop for good."""
        self._stopped = True
        self._resign()

    # --- activities ---

    def _look_again(self) -> None:
        self._fencing.look_again()
        self._timers.arm()

    def _act(self, activity: Activity) -> None:
        """Run one step of an activity."""
        self._try_append(activity.act(self._clock.monotonic_ms(), self.view))

    def _try_append(self, records: Sequence[MetadataRecord]) -> None:
        try:
            self._append(records)
        except ApiError:
            self._timers.back_off()


def _limit_wait(
    future: asyncio.Future[T], fail: Callable[[ApiError], T] | None, timeout_ms: int, text: str
) -> None:
    timer = asyncio.get_running_loop().call_later(
        max(timeout_ms, 0) / 1000.0,
        settle_error,
        future,
        fail,
        ApiError(ErrorCode.REQUEST_TIMED_OUT, text),
    )
    future.add_done_callback(lambda _: timer.cancel())
