"""Shell: Connections of the fetchers: one to each leader, with a timer and callbacks.

There is no task per fetcher: the callback of a response applies it and sends the next request. Only
connecting and resets run as tasks. The requests of resets use a second connection, which exists
while a reset runs: on the first they would wait behind a fetch that waits for bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeVar

from broker.metadata.lost_brokers import LostBrokers
from broker.peers.peer import CONNECT_TIMEOUT_MS, Address
from broker.peers.pool import PeerPool
from broker.replication.durability.flusher import Flusher
from broker.replication.fetching.fetcher import (
    Decided,
    Fetcher,
    FetcherSettings,
    Flush,
    Reset,
    StorageFailed,
    Unforeseen,
)
from broker.replication.partition.effects import Effects
from broker.replication.partition.partition import Partition
from broker.replication.partition.role import ReplicaRole
from broker.replication.throttle import ReplicationThrottle
from broker.replication.waiting.waits import CommitWaiter
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.private_numbers import PRIVATE_VERSIONS
from protocol.schema import Request, Response
from protocol.transport.client import Connection, failed_at_once
from protocol.transport.own_names import BROKER_SOFTWARE_NAME
from runtime.clock import Clock
from runtime.errors import InvariantViolated
from runtime.log import RateLimited, get_logger
from runtime.tasks import Supervisor
from storage.log.errors import LogFailed

LOCAL_LOGS_SINCE: Final = PRIVATE_VERSIONS[ApiKey.FETCH]
"""The version of Fetch that carries local logs."""

_log = get_logger("broker.fetcher")

R = TypeVar("R", bound=Response)


class LeaderLink(Protocol):
    """A channel for requests to a partition's leader."""

    async def ask(self, message: Request[R]) -> R:
        """Send a request to the leader and return its response.

        Raises:
            OSError: the leader is not reachable.
            ProtocolError: the response is invalid.
            ApiError: the request cannot be sent in a version that the leader supports.
        """


class OffsetReset(Protocol):
    """The recovery from OFFSET_OUT_OF_RANGE or OFFSET_MOVED_TO_TIERED_STORAGE."""

    async def reset(self, link: LeaderLink, wanted: Reset) -> None:
        """Bring the log to an offset from which it can be fetched. May send requests to the leader;
        must not change the log once the partition's leader epoch differs from the one in `wanted`.

        Raises:
            OSError, ProtocolError, ApiError: a request failed; the reset is retried later.
        """


class FetcherContext:
    """Dependencies that all links of a broker share."""

    def __init__(  # noqa: PLR0913 - by keyword, all that links have from outside
        self,
        *,
        node_id: int,
        endpoint: Callable[[int], Address | None],
        peers: PeerPool,
        broker_epoch: Callable[[], int],
        clock: Clock,
        supervisor: Supervisor,
        flusher: Flusher,
        resets: OffsetReset,
        storage_failed: Callable[[Partition, BaseException], None],
        carry_out: Callable[[Partition, Effects], None],
        timeout_ms: float,
        throttle: ReplicationThrottle,
        lost: LostBrokers,
    ) -> None:
        """Set the dependencies. `endpoint` returns a broker's address for other brokers, None while
        it is unknown. `peers` has the connections for requests other than Fetch. `lost` receives
        reports on which leaders are reachable."""
        self.node_id = node_id
        self.endpoint = endpoint
        self.peers = peers
        self.broker_epoch = broker_epoch
        self.clock = clock
        self.supervisor = supervisor
        self.flusher = flusher
        self.resets = resets
        self.storage_failed = storage_failed
        self.carry_out = carry_out
        self.timeout_ms = timeout_ms
        self.throttle = throttle
        self.lost = lost
        self.resetting: dict[Partition, int] = {}
        """The newest running reset of each partition, by its leader epoch. There is one at a time
        in an epoch: a log must not be restarted twice at once."""
        self.quiet = RateLimited(clock, 10_000)


def _ignored(_link: FetcherLink, _wanted: Reset) -> None:
    return


class _Flushed:
    """A waiter that resumes a partition once its records are on disk."""

    __slots__ = ("_link",)

    def __init__(self, link: FetcherLink) -> None:
        self._link = link

    def resolved(self, slot: Partition, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            self._link.resume(slot)


class FetcherLink:
    """One fetcher and its connection."""

    def __init__(
        self,
        fetcher: Fetcher,
        context: FetcherContext,
        slot: int,
        reset_over: Callable[[FetcherLink, Reset], None] = _ignored,
    ) -> None:
        """Set up a link without a connection. `reset_over` is called after each reset, whether it
        succeeded or will be retried."""
        self.fetcher = fetcher
        self.slot = slot
        self._context = context
        self._reset_over = reset_over
        purpose = f"fetcher-{slot}-of-leader-{fetcher.leader_id}"
        self._client_id = f"broker-{context.node_id}-{purpose}"
        self._questions = f"{purpose}-questions"
        self._resets = 0  # running
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._connected_to: Address | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._queued = False
        self._closed = False
        self._flushed: CommitWaiter = _Flushed(self)

    # --- requests of other components ----------------------------------------------------------

    def pump_soon(self) -> None:
        """Schedule a check in the next event-loop iteration for requests that can be sent."""
        if not self._queued and not self._closed:
            self._queued = True
            self._loop.call_soon(self._pump_queued)

    def resume(self, partition: Partition) -> None:
        self.fetcher.resume(partition)
        self.pump_soon()

    def leader_changed(self) -> None:
        """Reconnect if needed, after a new registration of the leader: its address may have
        changed, or it has restarted."""
        target = self._context.endpoint(self.fetcher.leader_id)
        if self._connection is not None and target != self._connected_to:
            self._drop(self._connection, "the leader has moved")
        self.fetcher.hurry()
        self.pump_soon()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._connecting is not None:
            self._connecting.cancel()
        self._release_questions()
        self._context.lost.withdraw(self.fetcher.leader_id)  # no link needs this leader any more
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    async def ask(self, message: Request[R]) -> R:
        """Send a request to the leader; see `LeaderLink`."""
        if self._closed:
            raise ConnectionError("the link to the leader is closed")
        context = self._context
        peer = context.peers.peer(self.fetcher.leader_id, self._questions)
        return await peer.request(message, context.timeout_ms)

    def _release_questions(self) -> None:
        self._context.peers.release(self.fetcher.leader_id, self._questions)

    # --- sending ------------------------------------------------------------------------------

    def _pump_queued(self) -> None:
        self._queued = False
        try:
            self._pump()
        except Exception as error:  # noqa: BLE001 - a fetcher that died in silence is worse
            self._context.supervisor.report(self._client_id, error)

    def _pump(self) -> None:
        if self._closed:
            return
        now_ms = self._context.clock.monotonic_ms()
        fetcher = self.fetcher
        due_ms = fetcher.due_ms(now_ms)
        while due_ms is not None and due_ms <= now_ms:
            connection = self._connection
            if connection is None:
                self._connect()
                break
            request = fetcher.next_request(self._context.broker_epoch(), now_ms)
            if request is None:
                break
            try:
                version: int | None = None
                if fetcher.states_local_logs and connection.offers(FetchRequest, LOCAL_LOGS_SINCE):
                    version = LOCAL_LOGS_SINCE
                future = connection.send(request, self._context.timeout_ms, version)
            except (ApiError, ProtocolError, OSError) as error:
                # A leader without a Fetch version that carries replica state cannot be followed.
                self._drop(connection, str(error))
                due_ms = fetcher.due_ms(now_ms)  # after the backoff that has just begun
                break
            future.add_done_callback(partial(self._answered, connection))
            due_ms = fetcher.due_ms(now_ms)
        self._arm(due_ms, now_ms)

    def _arm(self, due_ms: float | None, now_ms: float) -> None:
        """Arm the timer for the end of the next backoff, the fetcher's or a partition's."""
        wake_ms = self.fetcher.wake_ms()
        if due_ms is not None and due_ms > now_ms and (wake_ms is None or due_ms < wake_ms):
            wake_ms = due_ms
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wake_ms is not None:
            delay_ms = max(1.0, wake_ms - now_ms)
            self._timer = self._loop.call_later(delay_ms / 1000.0, self._pump_queued)

    def _connect(self) -> None:
        if self._connecting is None:
            self._connecting = self._context.supervisor.spawn(
                f"connect {self._client_id}", self._dial()
            )

    async def _dial(self) -> None:
        context = self._context
        target = context.endpoint(self.fetcher.leader_id)
        try:
            if target is None:
                raise ConnectionError("the leader's address is not known")
            connection = await Connection.connect(
                *target,
                self._client_id,
                CONNECT_TIMEOUT_MS,
                software_name=BROKER_SOFTWARE_NAME,
                between_nodes=True,
            )
        except (ApiError, ProtocolError, OSError) as error:
            self._grumble(str(error))
            self.fetcher.lost(context.clock.monotonic_ms())
            if target is not None and failed_at_once(error):
                context.lost.unreachable(self.fetcher.leader_id)
        else:
            context.lost.reached(self.fetcher.leader_id)
            if self._closed:
                connection.abort()
            else:
                self._connection, self._connected_to = connection, target
        finally:
            self._connecting = None
        self.pump_soon()

    def _drop(self, connection: Connection, why: str) -> None:
        if self._connection is not connection:
            return
        self._connection = None
        # otherwise the leader is reachable, and its answer was invalid
        ended = connection.is_closed
        connection.abort()
        if not self._closed:
            self._grumble(why)
            now_ms = self._context.clock.monotonic_ms()
            self.fetcher.lost(now_ms)
            if ended:
                self._context.lost.lost(self.fetcher.leader_id, now_ms)
                self.fetcher.try_once()
                self.pump_soon()

    def _grumble(self, why: str) -> None:
        held_back = self._context.quiet.admit(str(self.fetcher.leader_id))
        if held_back is not None:
            _log.warning(
                "cannot fetch, trying again",
                leader=self.fetcher.leader_id,
                error=why,
                held_back=held_back,
            )

    # --- answers ------------------------------------------------------------------------------

    def _answered(self, connection: Connection, done: asyncio.Future[FetchResponse]) -> None:
        error = None if done.cancelled() else done.exception()
        if self._connection is not connection or self._closed:
            return
        try:
            if error is not None or done.cancelled():
                self._drop(connection, str(error))
            else:
                self._take_or_drop(connection, done.result())
            self._pump()
        except Exception as failure:  # noqa: BLE001 - a fetcher that died in silence is worse
            self._context.supervisor.report(self._client_id, failure)

    def _take_or_drop(self, connection: Connection, response: FetchResponse) -> None:
        """Apply a response. One that cannot be applied ends the session, not the node."""
        try:
            self._take(response)
        except InvariantViolated:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a leader says
            leader = self.fetcher.leader_id
            self._context.supervisor.survive("fetch answer", error, leader=leader)
            self._drop(connection, f"an answer that cannot be taken over: {error!r}")

    def _take(self, response: FetchResponse) -> None:
        context = self._context
        for effect in self.fetcher.answered(response, context.clock.monotonic_ms()):
            partition = effect.partition
            match effect:
                case Decided():
                    context.carry_out(partition, effect.effects)
                case Flush():
                    context.flusher.wait(partition, self._flushed, partition)
                case StorageFailed():
                    context.storage_failed(partition, effect.cause)
                case Unforeseen():
                    context.supervisor.survive(
                        "fetched batches",
                        effect.error,
                        effect.records,
                        topic=partition.topic,
                        partition=partition.index,
                        leader=self.fetcher.leader_id,
                    )
                case Reset():
                    if context.resetting.get(partition) == effect.leader_epoch:
                        # started over another link, which resumes the partition afterwards
                        continue
                    name = f"reset {partition.topic}-{partition.index}"
                    context.supervisor.spawn(name, self._reset(effect))

    async def _reset(self, wanted: Reset) -> None:
        partition, resetting = wanted.partition, self._context.resetting
        resetting[partition] = wanted.leader_epoch
        self._resets += 1
        try:
            await self._reset_one(wanted)
        finally:
            if resetting.get(partition) == wanted.leader_epoch:
                del resetting[partition]
            self._resets -= 1
            if not self._resets:
                self._release_questions()

    async def _reset_one(self, wanted: Reset) -> None:
        context, partition = self._context, wanted.partition
        failed = True
        try:
            await context.resets.reset(self, wanted)
            failed = False
        except LogFailed as error:
            context.storage_failed(partition, error.cause)
            return
        except (ApiError, ProtocolError, OSError) as error:
            _log.warning(
                "cannot find out where to fetch from, trying again",
                topic=partition.topic,
                partition=partition.index,
                leader=self.fetcher.leader_id,
                error=str(error),
            )
        except Exception as error:  # noqa: BLE001 - whatever a leader says of its bounds
            context.supervisor.survive(
                "reset", error, topic=partition.topic, partition=partition.index
            )
        if partition.leader_epoch != wanted.leader_epoch:
            pass  # a reset of a newer epoch may hold the partition now, and will resume it
        elif failed:
            self.fetcher.retry_later(partition, context.clock.monotonic_ms())
        else:
            self.fetcher.resume(partition)
        self._reset_over(self, wanted)
        self.pump_soon()


class Fetchers:
    """All fetchers of a broker: `num.replica.fetchers` for each leader that is followed."""

    def __init__(self, context: FetcherContext, settings: FetcherSettings, per_leader: int) -> None:
        self._context = context
        self._settings = settings
        self._per_leader = per_leader
        self._links: dict[tuple[int, int], FetcherLink] = {}
        self._of: dict[Partition, FetcherLink] = {}
        self._closed = False

    @property
    def links(self) -> list[FetcherLink]:
        return list(self._links.values())

    def follow(self, partition: Partition) -> None:
        """Fetch the partition from its leader; see `FetcherPort`."""
        if self._closed or partition.role is not ReplicaRole.FOLLOWER or partition.leader_id < 0:
            return
        self.unfollow(partition)
        if partition.log.bounds.bootstrapping:
            return  # in no ISR before its log begins; `_reset_over` calls this again then
        slot = (int.from_bytes(partition.topic_id[-4:], "big") + partition.index) % (
            self._per_leader
        )
        place = (partition.leader_id, slot)
        link = self._links.get(place)
        if link is None:
            fetcher = Fetcher(
                partition.leader_id,
                self._context.node_id,
                self._settings,
                self._context.throttle,
            )
            link = FetcherLink(fetcher, self._context, slot, self._reset_over)
            self._links[place] = link
        self._of[partition] = link
        link.fetcher.follow(partition)
        link.pump_soon()

    def restate(self, partition: Partition) -> None:
        """Report changed local logs to the leader; see `FetcherPort`."""
        link = self._of.get(partition)
        if link is not None:
            link.fetcher.restate(partition)
            link.pump_soon()

    def unfollow(self, partition: Partition) -> None:
        """Stop fetching the partition; see `FetcherPort`."""
        link = self._of.pop(partition, None)
        if link is not None:
            link.fetcher.unfollow(partition)
            link.pump_soon()

    def _reset_over(self, link: FetcherLink, wanted: Reset) -> None:
        partition = wanted.partition
        now = self._of.get(partition)
        if now is None:
            self.follow(partition)
        elif now is not link and partition.leader_epoch == wanted.leader_epoch:
            # moved to another link in the meantime, where it may wait for this reset
            now.resume(partition)

    def close_idle(self) -> None:
        """Close the connections to leaders that lead no partition of this broker any more."""
        for place, link in list(self._links.items()):
            if not len(link.fetcher):
                del self._links[place]
                link.close()

    def leader_registered(self, broker_id: int) -> None:
        """Check the links to a broker after its registration has changed."""
        for (leader_id, _), link in self._links.items():
            if leader_id == broker_id:
                link.leader_changed()

    def resize(self, per_leader: int) -> None:
        """Redistribute the partitions over `per_leader` fetchers (`num.replica.fetchers`)."""
        if per_leader == self._per_leader:
            return
        self._per_leader = per_leader
        for partition in list(self._of):
            self.follow(partition)
        self.close_idle()

    def close(self) -> None:
        self._closed = True
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._of.clear()
