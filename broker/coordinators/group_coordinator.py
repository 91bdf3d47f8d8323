"""Shell: Group coordinator of one broker: its shards, the expiry of offsets, its metrics.

The runtime loads the partitions of `__consumer_offsets` and carries out the decisions of their
shards. Offsets expire in a task here; the tasks of `stale_offsets.py` delete those of deleted
topics.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeVar

from broker.coordinators.coordinator_log import CoordinatorLog
from broker.coordinators.group.config import GroupConfig
from broker.coordinators.group.decision import Decision
from broker.coordinators.group.deleted_topics import TopicLookup
from broker.coordinators.group.live_group import Caller
from broker.coordinators.group.records import encode_batch
from broker.coordinators.group.shard import GroupShard
from broker.coordinators.group.states import GroupState
from broker.coordinators.runtime.decision import Now
from broker.coordinators.runtime.runtime import CoordinatorRuntime
from broker.coordinators.stale_offsets import StaleOffsets
from protocol.errors import ErrorCode
from protocol.ids import random_uuid
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.schema import Response
from protocol.transport.dispatch import RequestContext
from runtime.clock import Clock
from runtime.errors import InvariantViolated
from runtime.metrics import Family, Kind
from runtime.tasks import Supervisor

R = TypeVar("R", bound=Response)


class GroupCoordinator:
    """The coordinator of a broker's groups. Call `start` once the log exists; all other calls are
    synchronous, from the loop."""

    def __init__(
        self,
        *,
        config: GroupConfig,
        clock: Clock,
        rng: random.Random,
        log: CoordinatorLog,
        supervisor: Supervisor,
        topics: TopicLookup,
    ) -> None:
        self.config = config
        self._topics = topics
        self._rng = rng
        self._supervisor = supervisor
        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            "group",
            self,
            log=log,
            encode=encode_batch,
            clock=clock,
            commit_timeout_ms=config.offsets_commit_timeout_ms,
            supervisor=supervisor,
        )
        self.stale_offsets = StaleOffsets(self.runtime, supervisor)

    def start(self) -> None:
        """Start to listen for leadership and to search for expired offsets."""
        self.runtime.start()
        self._supervisor.spawn("expire offsets", self._expire_for_ever())

    def close(self) -> None:
        """Answer every waiting request with NOT_COORDINATOR and stop."""
        self.runtime.close()

    # -- shards

    def new_shard(self, partition: int, leader_epoch: int) -> GroupShard:
        return GroupShard(self.config, self._new_uuid, self._topics)

    def perform(self, partition: int, effects: Sequence[Any]) -> None:
        raise InvariantViolated(f"decisions about groups have no effects: {effects}")

    def loaded(self, partition: int, shard: GroupShard) -> None:
        self.stale_offsets.loaded(partition, shard)

    def dropped(self, partition: int, shard: GroupShard) -> None:
        self.stale_offsets.dropped(partition, shard)

    def closed(self, partition: int) -> None:
        self.stale_offsets.closed(partition)

    def _new_uuid(self) -> str:
        text = random_uuid(self._rng).hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    # -- offsets that end

    def topics_deleted(self, names: Collection[str]) -> None:
        """Delete the offsets of topics with these names, which have been deleted and are missing in
        the metadata image."""
        self.stale_offsets.topics_deleted(names)

    async def _expire_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.config.offsets_retention_check_interval_ms / 1000.0)
            try:
                await self.expire_offsets()
            except Exception as error:  # noqa: BLE001 - what expires is what clients committed
                self._supervisor.survive("expiry of offsets", error)

    async def expire_offsets(self) -> None:
        """Delete expired offsets and groups of all shards once, in slices."""
        for partition, shard in self.runtime.partitions():
            if shard is not None:
                group_ids = shard.expirable_groups()
                decisions = shard.decide_expired(group_ids, self.runtime.executor.now())
                await self.runtime.carry_out_in_slices(partition, shard, decisions)

    # -- requests

    def ask(
        self,
        group_id: str,
        decide: Callable[[GroupShard, Now], Decision],
        refuse: Callable[[ErrorCode], R],
    ) -> R | asyncio.Future[R]:
        """Let the shard of `group_id` decide and carry it out. Not for decisions that wait."""
        return self.runtime.ask(group_id, decide, refuse)

    def ask_and_wait(
        self,
        group_id: str,
        context: RequestContext,
        decide: Callable[[GroupShard, Caller, Now], Decision],
        refuse: Callable[[ErrorCode], R],
    ) -> R | asyncio.Future[R]:
        """Do the same as `ask`, for callers that may have to wait for other members."""

        def decide_for(shard: GroupShard, ticket: int, now: Now) -> Decision:
            return decide(shard, caller_of(context, ticket), now)

        return self.runtime.ask_and_wait(group_id, decide_for, refuse)

    def view(self, group_id: str) -> GroupShard | ErrorCode:
        """Return the shard of `group_id` for reading, or the error code if there is no shard
        here."""
        slot = self.runtime.find(group_id)
        return slot if isinstance(slot, ErrorCode) else slot.loaded()

    def shards(self) -> tuple[list[GroupShard], bool]:
        """Return all loaded shards, and whether others are still loading."""
        return self.runtime.shards()

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Answer a heartbeat. It is by far the most frequent request, so it needs no decision and
        no future."""
        slot = self.runtime.find(request.group_id)
        if isinstance(slot, ErrorCode):
            return HeartbeatResponse(error_code=slot)
        executor = self.runtime.executor
        response = slot.loaded().decide_heartbeat(request, executor.now())
        executor.set_wake(slot)
        return response

    # -- metrics

    def collect(self) -> Iterator[Family | None]:
        """Yield counts over all loaded shards, under the names Kafka's MBeans get in Prometheus.
        Yields None between shards, so that other work can run."""
        states = dict.fromkeys(GroupState, 0)
        offsets = commits = expired = deleted = rebalances = 0
        shards, _ = self.shards()
        for shard in shards:
            for state, count in shard.count_by_state().items():
                states[state] += count
            counters = shard.core.counters
            offsets += shard.core.committed.offset_count()
            commits += counters.offset_commits
            expired += counters.offset_expirations
            deleted += counters.offset_deletions
            rebalances += counters.completed_rebalances
            yield None
        manager = "kafka_coordinator_group_groupmetadatamanager_num"
        group = "kafka_server_group_coordinator_metrics_"
        yield from (
            _family(manager + "groups", "Groups", "gauge", sum(states.values())),
            _family(manager + "offsets", "Committed offsets", "gauge", offsets),
            _family(group + "offset_commit_count", "Offsets committed", "counter", commits),
            _family(group + "offset_expiration_count", "Offsets expired", "counter", expired),
            _family(group + "offset_deletion_count", "Offsets deleted", "counter", deleted),
            _family(
                group + "group_completed_rebalance_count", "Join phases", "counter", rebalances
            ),
        )
        for state, count in states.items():
            name = f"{manager}groups{state.value.lower()}"
            yield _family(name, f"Groups in state {state.value}", "gauge", count)


def _family(name: str, help: str, kind: Kind, value: float) -> Family:
    return Family(name, help, kind, [({}, value)])


def caller_of(context: RequestContext, ticket: int = 0) -> Caller:
    """Return the caller for the core. The host gets the leading slash that Java writes."""
    return Caller(ticket, context.api_version, context.client_id or "", "/" + context.client_host)
