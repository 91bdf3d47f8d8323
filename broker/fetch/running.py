"""Shell: One Fetch from its arrival to its answer.

It reads each partition of its plan, answers when that is enough, and waits otherwise: first for
data that workers or the tier read, then for news of its partitions. `Consumer` or `Follower` has
the rules of its sender.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker.fetch.background import BackgroundReads
from broker.fetch.reading import Arrived, needs_background, plan_reads
from broker.fetch.request import LEADERS_SINCE, READ_COMMITTED, Due, Wanted
from broker.fetch.requester import FetchShared, Requester, read_due, read_wishes
from broker.fetch.response import Read
from broker.replication.sessions.fetch_session import FetchPlan, PartitionKey
from broker.replication.waiting.waits import FetchWait
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.transport.dispatch import Body, Reply, RequestContext

BACKGROUND_READS_MS: Final = 10_000.0
"""How long a fetch waits for a disk before it answers without the missing data. It is less than the
timeout of clients and followers, so that they receive the other partitions."""

NONE_ARRIVED: Final[dict[PartitionKey, Arrived | None]] = {}


class RunningFetch:
    """One request from its arrival to its answer."""

    __slots__ = (
        "_arrived",
        "_broker",
        "_bytes",
        "_bytes_max",
        "_bytes_min",
        "_context",
        "_deadline_ms",
        "_due",
        "_future",
        "_must_answer",
        "_plan",
        "_queued",
        "_reads",
        "_request",
        "_requester",
        "_rested",
        "_shared",
    )

    def __init__(
        self,
        shared: FetchShared,
        context: RequestContext,
        request: FetchRequest,
        plan: FetchPlan[Wanted],
        requester: Requester,
        due: Due,
    ) -> None:
        """Set the partitions to read first."""
        self._shared = shared
        self._broker = shared.broker
        self._context = context
        self._request = request
        self._plan = plan
        self._requester = requester
        self._due = due
        self._bytes_max = requester.bytes_max()
        # The response cannot exceed the limit, so do not wait for more.
        self._bytes_min = min(request.min_bytes, max(self._bytes_max, 0))
        self._deadline_ms = 0.0
        self._future: asyncio.Future[Body] | None = None
        self._queued = False
        self._arrived = NONE_ARRIVED
        self._reads: list[Read] = []
        self._bytes = 0
        self._must_answer = False
        self._rested = False
        """True if nothing was read before it waited."""

    @property
    def is_enough(self) -> bool:
        """True if the reads so far end the wait."""
        return self._must_answer or self._bytes >= self._bytes_min or self._requester.more

    @property
    def is_answered(self) -> bool:
        """True if the reads so far are enough for an answer at once."""
        if self.is_enough or self._request.max_wait_ms <= 0:
            return True
        return self._plan.session is None and not self._plan.partitions

    def start(self) -> Reply:
        """Read once; return the answer, or a future for it."""
        remote = self._requester.remote is not None
        if needs_background(self._due, self._broker.replicas, self._bytes_max, remote=remote):
            return self._read_in_background()
        self._read_all()
        if self.is_answered:
            return self._response()
        return self._wait_for_news()

    def rest(self) -> Reply:
        """Wait for news without a first read; return a future for the answer."""
        self._rested = True
        return self._wait_for_news()

    # --- reads in workers and from the tier ---------------------------------------------------

    def _read_in_background(self) -> asyncio.Future[Body]:
        """Start the reads in workers and from the tier; afterwards everything is read as usual.

        That later read decides what may be sent, not the state before.
        """
        waits, clock = self._broker.waits, self._broker.clock
        future = self._future = waits.new_future()
        remote, now_ms = self._requester.remote, clock.monotonic_ms()
        has_room = remote is not None and remote.has_room
        wishes = read_wishes(self._requester, self._due, self._broker.replicas)
        planned = plan_reads(wishes, self._bytes_max, remote=has_room)
        reads = BackgroundReads(
            planned,
            self._broker.supervisor,
            remote,
            over=self._reads_over_soon,
            late=self._reads_late,
            cancel=future.cancel,
            committed=self._request.isolation_level == READ_COMMITTED,
        )
        deadline_ms = self._deadline_ms = now_ms + BACKGROUND_READS_MS
        if remote is not None and reads.has_remote:
            deadline_ms = now_ms + remote.fetch_wait_ms
        waits.hold(reads, deadline_ms, self._context.connection)
        if reads.finished:
            self._reads_over_soon(reads)
        return future

    def _reads_late(self, reads: BackgroundReads) -> None:
        """Stop waiting for the store; a disk may have more time."""
        if reads.waits_for_disk and self._broker.clock.monotonic_ms() < self._deadline_ms:
            self._broker.waits.hold(reads, self._deadline_ms, self._context.connection)
        else:
            self._reads_over_soon(reads)

    def _reads_over_soon(self, reads: BackgroundReads) -> None:
        if not self._queued:
            self._queued = True
            self._broker.waits.soon(lambda: self._reads_over(reads))

    def _reads_over(self, reads: BackgroundReads) -> None:
        """Read and answer after all data has arrived, or its time is up."""
        self._queued = False
        future = self._future
        reads.leave()
        self._broker.waits.purgatory.remove(reads)
        if future is None or future.done():
            return
        if reads.failure is not None:
            future.set_exception(reads.failure)
            return
        self._arrived = reads.results
        # A late disk is not read again on the loop, and data in the tier can only be sent by the
        # next fetch.
        over = reads.has_remote or None in reads.results.values()
        try:
            self._read_all()
        except Exception as error:  # noqa: BLE001 - whatever it is, the client must not hang on it
            future.set_exception(error)
            return
        if over or self.is_answered:
            future.set_result(self._response())
        else:
            self._wait_for_news()

    # --- waiting for news ---------------------------------------------------------------------

    def _wait_for_news(self) -> asyncio.Future[Body]:
        """Wait for as long as the request allows."""
        if self._future is None:
            self._future = self._broker.waits.new_future()
        now_ms = self._broker.clock.monotonic_ms()
        self._deadline_ms = now_ms + self._requester.wait_ms(now_ms)
        self._hold(self._future)
        return self._future

    def _hold(self, future: asyncio.Future[Body]) -> None:
        if self._bytes:
            self._reads = []
        wait = FetchWait(self._bytes_min - self._bytes, self._ready, future.cancel)
        self._requester.subscribe(wait, self._due)
        self._broker.waits.hold(wait, self._deadline_ms, self._context.connection)

    def _ready(self, wait: FetchWait) -> None:
        if not self._queued:
            self._queued = True
            self._broker.waits.soon(lambda: self._finish(wait))

    def _finish(self, wait: FetchWait) -> None:
        """Read again after a notification or at the deadline; answer, or wait on."""
        self._queued = False
        self._context.connection.remove_behind_callback(wait.interrupt)
        future = self._future
        if future is None or future.done() or wait.over:
            return
        self._broker.waits.purgatory.remove(wait)
        wait.leave()
        if wait.superseded:
            # The session's next fetch has read the partitions and reports their news.
            self._reads = []
            future.set_result(self._response())
            return
        if wait.timed_out and not (wait.touched or self._bytes or self._rested):
            # The results of the first read are still valid.
            future.set_result(self._response())
            return
        try:
            self._due = self._requester.due_after_wait(self._due)
            self._read_all()
        except Exception as error:  # noqa: BLE001 - whatever it is, the client must not hang on it
            future.set_exception(error)
            return
        if self.is_enough or wait.timed_out or wait.interrupted:
            future.set_result(self._response())
        else:
            self._hold(future)

    # --- reading and answering ----------------------------------------------------------------

    def _read_all(self) -> None:
        self._reads, self._bytes, self._must_answer = read_due(
            self._requester, self._due, self._broker.replicas, self._bytes_max, self._arrived
        )

    def _response(self) -> FetchResponse:
        reads, self._reads = self._reads, []
        response = self._requester.response(reads, self._bytes)
        if self._must_answer and self._context.api_version >= LEADERS_SINCE:
            epochs = {key: wanted.current_leader_epoch for key, wanted in self._due}
            self._shared.add_hints(self._context, response, epochs)
        return response
