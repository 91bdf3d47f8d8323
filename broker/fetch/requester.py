"""The two senders of a Fetch, as the shared course of a fetch uses them.

`Consumer` and `Follower` implement `Requester`. They differ in the end of their reads, in quotas
and throttles, and in the state that a fetch changes. They have no reference to the `RunningFetch`
that uses them: a fetch must die with its last reference, without the garbage collector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from broker.context import BrokerContext
from broker.fetch.reading import Arrived, Wish
from broker.fetch.recent import RecentRead
from broker.fetch.request import Due, Wanted
from broker.fetch.response import PartitionData, Read, is_turned_away
from broker.replication.partition.partition import Partition
from broker.replication.replicas.replica_manager import ReplicaManager
from broker.replication.sessions.fetch_session import FetchPlan, PartitionKey
from broker.replication.sessions.session_watch import LoneWatch
from broker.replication.waiting.waits import FetchWait
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchResponse
from protocol.transport.dispatch import RequestContext

if TYPE_CHECKING:
    from broker.tiering.reader import RemoteReader

AddHints = Callable[[RequestContext, FetchResponse, dict[PartitionKey, int]], None]
"""Adds the leaders of refused partitions to a response (KIP-951); the last argument are the leader
epochs that the client named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchShared:
    """Dependencies that all fetches of a broker share."""

    broker: BrokerContext
    add_hints: AddHints
    response_bytes_max: int
    rack_aware: bool
    local_log_aware: bool = False
    recent: RecentRead = field(default_factory=RecentRead)


class Requester(Protocol):
    """A consumer or a follower, for one Fetch."""

    @property
    def more(self) -> bool:
        """True if more partitions are due than this fetch reads: it is answered at once."""

    @property
    def remote(self) -> RemoteReader | None:
        """The reader of the tier, None if this fetch must not read from it."""

    def bytes_max(self) -> int:
        """Return the limit of the response in bytes."""

    def due_after_wait(self, due: Due) -> Due:
        """Return the partitions to read after a wait; `due` were read before."""

    def wish(self, key: PartitionKey, partition: Partition, wanted: Wanted) -> Wish | None:
        """Return the limits of a read, None if the partition is to be read from another replica.

        Raises:
            ApiError: as `read`.
        """

    def read(
        self,
        partition: Partition,
        key: PartitionKey,
        wanted: Wanted,
        budget: int,
        arrived: dict[PartitionKey, Arrived | None],
        whole_first: bool,
    ) -> PartitionData:
        """Return the partition's answer.

        Args:
            budget: bytes that the response may still contain.
            arrived: results of background reads; the partition's is removed.
            whole_first: whether the first batch is read whole even if it exceeds the budget.

        Raises:
            ApiError: the partition's error.
        """

    def refusal(
        self, partition: Partition | None, wanted: Wanted, code: ErrorCode
    ) -> PartitionData:
        """Return the answer for a partition whose read has failed."""

    def wait_ms(self, now_ms: float) -> float:
        """Return how long the fetch may wait for news."""

    def subscribe(self, wait: FetchWait, due: Due) -> None:
        """Subscribe a wait to the partitions."""

    def response(self, reads: list[Read], size_bytes: int) -> FetchResponse:
        """Return the response, and note what the sender will have once it has received it."""


def subscribe_to_due(
    wait: FetchWait,
    due: Due,
    plan: FetchPlan[Wanted],
    replicas: ReplicaManager,
    *,
    replica: bool = False,
    committed: bool = False,
) -> None:
    """Subscribe a wait to `due`, through the session if there is one.

    Args:
        replica: whether the reader is a follower.
        committed: whether it is a read_committed consumer.
    """
    watch = None if plan.session is None else plan.session.watch
    if watch is None or watch.over:
        watch = LoneWatch(replica=replica, committed=committed)
    known = replicas.known
    for key, _ in due:
        partition = known(*key)
        if partition is not None:
            watch.cover(key, partition)
    watch.add_fetch_wait(wait)


def due_after_wait(plan: FetchPlan[Wanted], due: Due) -> Due:
    """Return the partitions to read after a wait: all for a full answer. If the session, which
    would have been notified, has ended in the meantime, return the previous ones."""
    if plan.session is None or not plan.incremental:
        return plan.partitions
    return due if plan.session.watch.over else plan.session.to_look_at()


def find(replicas: ReplicaManager, key: PartitionKey) -> Partition:
    """Return the replica of a partition on this broker.

    Raises:
        ApiError: of `ReplicaManager.find`, if this broker has no replica.
    """
    topic, index = key
    if isinstance(topic, bytes):
        return replicas.find_by_id(topic, index)
    return replicas.find(topic, index)


def read_wishes(requester: Requester, due: Due, replicas: ReplicaManager) -> Iterator[Wish]:
    """Yield the partitions that may be read, as far as that is known in advance."""
    for key, wanted in due:
        try:
            wish = requester.wish(key, find(replicas, key), wanted)
        except ApiError:
            continue  # the response will contain this error
        if wish is not None:
            yield wish


def read_due(
    requester: Requester,
    due: Due,
    replicas: ReplicaManager,
    bytes_max: int,
    arrived: dict[PartitionKey, Arrived | None],
) -> tuple[list[Read], int, bool]:
    """Read the partitions in their order, with one budget for all.

    Args:
        bytes_max: the limit of the response. The first batch may exceed it.
        arrived: results of background reads.

    Returns:
        The answers, the bytes of their records, and whether one of them must be sent at once: an
        error, a divergence or a preferred replica.
    """
    reads: list[Read] = []
    known = replicas.known
    total = 0
    must_answer = False
    for key, wanted in due:
        partition: Partition | None = None
        try:
            partition = known(*key)
            if partition is None:
                partition = find(replicas, key)
            partition.counters.fetches += 1
            budget = bytes_max - total
            data = requester.read(partition, key, wanted, budget, arrived, total == 0)
        except ApiError as error:
            if partition is not None:
                partition.counters.failed_fetches += 1
            data = requester.refusal(partition, wanted, error.code)
            must_answer = True
        else:
            records = data.records
            if records:
                total += len(records)
            elif is_turned_away(data):
                must_answer = True
        reads.append((key, data))
    return reads, total, must_answer
