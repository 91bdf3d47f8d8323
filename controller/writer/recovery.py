"""Shell: Connections to brokers for unclean recovery, and operators that wait for its elections.

This activity runs the state machine of `elections.recovery`, which makes the decisions. The active
controller connects to the registered inter-broker listener of a broker when it has a query, and
closes the connection after the last one. A broker counts as not having answered if it is
unreachable, too slow or lacks the API.

A controller without a configured inter-broker listener name tries the listeners of the inter-broker
security protocol one after the other. Only the inter-broker listener serves the API, so an answer
proves that it is the right one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from controller.elections.log_facts import LogFacts
from controller.elections.recovery import RecoveryCounts, UncleanRecovery
from controller.elections.recovery_events import (
    Activated,
    Answered,
    Appended,
    Committed,
    Deactivated,
    Decided,
    Due,
    Event,
    Requested,
    Unanswered,
    Withdrawn,
)
from controller.elections.recovery_questions import PartitionKey, Question
from controller.elections.recovery_requests import RecoveryOutcome, RecoveryRequest
from controller.elections.recovery_waiting import Waiting
from controller.settings import ControllerSettings
from controller.writer.activities import MakeView
from controller.writer.endpoints import endpoints_for_nodes
from metalog.image.values import BrokerImage, Endpoint
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.messages.get_replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
)
from protocol.schema import MetadataRecord
from protocol.transport.client import Connection
from protocol.transport.own_names import CONTROLLER_SOFTWARE_NAME
from runtime.clock import Clock
from runtime.log import get_logger
from runtime.tasks import Supervisor

ASK_TIMEOUT_MS: Final = 5_000.0
REQUESTS_MAX: Final = 200
"""Limit of waiting operators' requests; each one has a connection."""

_log = get_logger("controller")


class Recovery:
    """The recovery activity of a controller.

    rearm: called when `due_ms` has changed outside of the writer's own calls. committed: returns a
    future that is done when everything appended so far is committed. connect: takes host, port and
    a timeout in ms.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        counts: RecoveryCounts,
        *,
        clock: Clock,
        supervisor: Supervisor,
        view: MakeView,
        rearm: Callable[[], None],
        committed: Callable[[], asyncio.Future[None]],
        connect: Callable[[str, int, float], Awaitable[Connection]] | None = None,
    ) -> None:
        self.due_ms: float | None = None
        self.facts = LogFacts()
        self._core = UncleanRecovery(self.facts, counts)
        self._settings = settings
        self._clock = clock
        self._supervisor = supervisor
        self._view = view
        self._rearm = rearm
        self._committed = committed
        self._connect = connect or self._dial
        self._active = False
        self._links: dict[int, tuple[Endpoint, Connection]] = {}
        self._misses: dict[int, int] = {}
        """Consecutive number of requests without an answer, by broker."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiters: dict[
            RecoveryRequest, asyncio.Future[Mapping[PartitionKey, RecoveryOutcome]]
        ] = {}

    # --- the activity -------------------------------------------------------------------------

    def begin(self, now_ms: float) -> None:
        self._active = True
        self._step(Activated(), now_ms)

    def end(self) -> None:
        """Stop, and fail waiting requests with NOT_CONTROLLER."""
        self._active = False
        self._step(Deactivated(), self._clock.monotonic_ms())
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        for _, connection in self._links.values():
            connection.abort()
        self._links.clear()
        self._misses.clear()
        waiters, self._waiters = self._waiters, {}
        for future in waiters.values():
            if not future.done():
                future.set_exception(ApiError(ErrorCode.NOT_CONTROLLER, None))

    def act(self, now_ms: float, view: MakeView) -> Sequence[MetadataRecord]:
        return self._step(Due(view()), now_ms)

    def appended(self, records: Sequence[MetadataRecord], now_ms: float) -> None:
        self._step(Appended(records), now_ms)

    def _step(self, event: Event, now_ms: float) -> Sequence[MetadataRecord]:
        """Pass an event to the state machine and carry out its effects. Returns: the records to
        append."""
        effects = self._core.step(event, now_ms)
        for question in effects.questions:
            self._send(question)
        self._tell(effects.complete)
        if effects.decided:
            self._committed().add_done_callback(partial(self._settle, effects.decided))
        for broker_id in effects.idle:
            self._hang_up(broker_id)
        self.due_ms = effects.due_ms
        return effects.records

    def _step_now(self, event: Event) -> None:
        """Make a step outside of the writer's own calls."""
        self._step(event, self._clock.monotonic_ms())
        self._rearm()

    # --- operators ----------------------------------------------------------------------------

    async def wait(self, request: RecoveryRequest) -> Mapping[PartitionKey, RecoveryOutcome]:
        """Wait for the outcomes of all partitions of a request.

        It returns once they are committed or the request has timed out. Partitions without a
        committed outcome by then have REQUEST_TIMED_OUT.

        Raises:
            ApiError: NOT_CONTROLLER, also if this controller loses leadership between an election
                and its
                commit. The next leader's log then determines whether it took place; if so, a
                    repeated
                request returns ELECTION_NOT_NEEDED. POLICY_VIOLATION if too many requests wait.
        """
        if not self._active:
            raise ApiError(ErrorCode.NOT_CONTROLLER, None)
        if len(self._waiters) >= REQUESTS_MAX:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"limit of {REQUESTS_MAX} waiting election requests reached",
            )
        future: asyncio.Future[Mapping[PartitionKey, RecoveryOutcome]]
        future = asyncio.get_running_loop().create_future()
        self._waiters[request] = future
        self._step_now(Requested(request))
        try:
            return await future
        finally:
            if self._waiters.pop(request, None) is not None:
                self._withdraw(request)

    def _withdraw(self, request: RecoveryRequest) -> None:
        if self._active:
            self._step_now(Withdrawn(request))

    def _settle(self, decided: tuple[Decided, ...], committed: asyncio.Future[None]) -> None:
        if committed.exception() is None and self._active:
            self._step_now(Committed(decided))

    def _tell(self, requests: Iterable[RecoveryRequest]) -> None:
        for request in requests:
            future = self._waiters.pop(request, None)
            if future is not None and not future.done():
                future.set_result(request.outcomes)

    def waits_for(self, topic_id: bytes, partition_id: int) -> Waiting | None:
        """Return what a leaderless partition waits for; None for others, and while not active."""
        return self._core.waits_for(topic_id, partition_id)

    # --- brokers ------------------------------------------------------------------------------

    def _send(self, question: Question) -> None:
        name = f"request log end offsets from broker {question.broker_id}"
        task = self._supervisor.spawn(name, self._ask(question), fatal=False)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, question: Question) -> None:
        response = None
        try:
            response = await self._answer(question)
        except (OSError, ApiError, ProtocolError) as error:
            _log.info(
                "A broker did not report its log end offsets",
                broker=question.broker_id,
                partitions=len(question.partitions),
                error=f"{type(error).__name__}: {error}",
            )
        finally:
            # In any case: a broker gets no further query while one is in flight.
            if self._active:
                if response is None:
                    self._misses[question.broker_id] = self._misses.get(question.broker_id, 0) + 1
                    self._step_now(Unanswered(question))
                else:
                    self._step_now(Answered(question, response, self._view()))

    async def _answer(self, question: Question) -> GetReplicaLogInfoResponse:
        broker = self._view().image.cluster.brokers.get(question.broker_id)
        if broker is None:
            raise ConnectionError("the broker is not registered")
        connection = await self._connection(broker)
        try:
            return await connection.request(_request(question), ASK_TIMEOUT_MS)
        except ApiError:
            # A broker without the API: the connection itself is fine.
            raise
        except BaseException:
            self._hang_up(broker.id)
            raise

    async def _connection(self, broker: BrokerImage) -> Connection:
        endpoint = self._endpoint(broker)
        if endpoint is None:
            raise ConnectionError(f"broker {broker.id} has no listener for brokers")
        known = self._links.get(broker.id)
        if known is not None:
            if known[0] == endpoint and not known[1].is_closed:
                return known[1]
            self._hang_up(broker.id)
        connection = await self._connect(endpoint.host, endpoint.port, ASK_TIMEOUT_MS)
        self._links[broker.id] = endpoint, connection
        return connection

    def _endpoint(self, broker: BrokerImage) -> Endpoint | None:
        """Return the endpoint to try now; after each miss the next one, if there are several."""
        found = endpoints_for_nodes(self._settings.config, broker)
        return found[self._misses.get(broker.id, 0) % len(found)] if found else None

    async def _dial(self, host: str, port: int, timeout_ms: float) -> Connection:
        return await Connection.connect(
            host,
            port,
            f"controller-{self._settings.node_id}-recovery",
            timeout_ms,
            software_name=CONTROLLER_SOFTWARE_NAME,
            between_nodes=True,
        )

    def _hang_up(self, broker_id: int) -> None:
        link = self._links.pop(broker_id, None)
        if link is not None:
            link[1].abort()


def _request(question: Question) -> GetReplicaLogInfoRequest:
    return GetReplicaLogInfoRequest(
        broker_id=question.broker_id,
        topic_partitions=[
            GetReplicaLogInfoRequest.TopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in _by_topic(question.partitions).items()
        ],
    )


def _by_topic(partitions: Iterable[PartitionKey]) -> dict[bytes, list[int]]:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, index in partitions:
        by_topic.setdefault(topic_id, []).append(index)
    return by_topic
