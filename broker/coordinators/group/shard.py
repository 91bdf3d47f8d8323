"""All groups of one partition of `__consumer_offsets`: the only entry to the core.

The runtime runs it as a `Shard` (`broker/coordinators/runtime/shard.py` describes the order of
calls); requests use `decide_*` and the views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from broker.coordinators.group import admin, expiry, join, membership, offsets, rebalance
from broker.coordinators.group.config import GroupConfig
from broker.coordinators.group.core import Core
from broker.coordinators.group.decision import AssignmentStored, Decision
from broker.coordinators.group.deleted_topics import TopicLookup
from broker.coordinators.group.hard_state import HardState, replay
from broker.coordinators.group.live_group import Caller, LiveGroup
from broker.coordinators.group.offsets import FetchedTopic
from broker.coordinators.group.records import (
    CommittedOffset,
    GroupRecord,
    PendingOffsetRecord,
    ReplayedRecord,
    TopicPartition,
    parse_entry,
)
from broker.coordinators.group.states import GroupEvent, GroupState
from broker.coordinators.group.timers import TIMER_STATES, TimerKey, TimerKind
from broker.coordinators.log_entries import LogEntry
from broker.coordinators.runtime.decision import Now
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.list_groups import ListGroupsResponse
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.messages.sync_group import SyncGroupRequest
from runtime.errors import InvariantViolated, invariant


class GroupShard:
    """The groups of one partition. `new_uuid` makes the random part of member ids; `topics` are
    those of the present metadata image."""

    def __init__(
        self, config: GroupConfig, new_uuid: Callable[[], str], topics: TopicLookup
    ) -> None:
        self.core = Core(config, new_uuid, topics)
        self.deletions = self.core.deletions
        """Deletions of topics, which make `decide_stale` find offsets."""

    # -- loading

    def replay(self, entry: LogEntry) -> None:
        """Replay one entry of the log. Raises ProtocolError if it cannot be parsed."""
        record = parse_entry(entry)
        if record is not None:
            self.core.appended = replay(self.core.appended, record)

    def replayed(self) -> list[str]:
        """Make the replayed state visible: all of it is committed. Returns: the groups to
        `revive`."""
        self.core.committed = self.core.appended
        return list(self.core.appended.groups)

    def revive(self, group_id: str, now: Now) -> int:
        """Start a loaded group; return its number of members."""
        if group_id in self.core.appended.foreign:
            return 0
        group = LiveGroup.from_persisted(group_id, self.core.appended.groups[group_id])
        self.core.adopt(group)
        for member in group.members.values():
            self.core.touch(group, member, now)
        if len(group.members) > self.core.config.max_size:
            # group.max.size was lowered. As in Kafka, members may commit before they join again.
            rebalance.start_rebalance(self.core, group, Decision(), now)
        return len(group.members)

    # -- outcomes of decisions

    def epoch_raised(self, leader_epoch: int, now: Now) -> Decision:
        """Do nothing: no state of a group depends on the leader epoch."""
        return Decision()

    @property
    def appended(self) -> HardState:
        """Hard state after the last appended record; the runtime passes it to `committed` later."""
        return self.core.appended

    def apply(self, records: Sequence[ReplayedRecord], base_offset: int, now: Now) -> HardState:
        """Replay the records of a decision, which were appended from `base_offset` on. Returns the
        hard state after them."""
        for offset, record in enumerate(records, base_offset):
            if isinstance(record, PendingOffsetRecord):
                record = record._replace(log_offset=offset)
            self.core.appended = replay(self.core.appended, record)
            if isinstance(record, GroupRecord) and record.value is None:
                group = self.core.groups[record.group_id]
                self.core.transition(group, GroupEvent.REMOVED, now)
                self.core.drop(group)
        return self.core.appended

    def committed(self, state: HardState, decision: Decision | None, now: Now) -> Decision:
        """Process the commit of the records that led to `state`. Returns the resulting decision;
        the runtime itself sends the reply of `decision`, which is None after `timed_out`."""
        self.core.committed = state
        if decision is not None and isinstance(decision.event, AssignmentStored):
            return membership.assignment_stored(self.core, decision.event, now)
        return Decision()

    def failed(self, decision: Decision, code: ErrorCode, now: Now) -> Decision:
        """Process a failed append. The runtime calls it before anything else happens. Returns the
        resulting decision."""
        event = decision.event
        if isinstance(event, AssignmentStored):
            return membership.assignment_lost(self.core, event, code, now)
        if event is not None:
            join.undo_static_replacement(self.core, event, now)
        # A group that became empty and was never stored has no other trace.
        for record in decision.records:
            if not isinstance(record, GroupRecord):
                continue
            group = self.core.groups.get(record.group_id)
            if group is not None:
                self.core.forget_if_idle(group)
        return Decision()

    def timed_out(self, decision: Decision, code: ErrorCode, now: Now) -> Decision:
        """Process a decision whose records are appended but not committed in time: members need not
        wait any longer. `committed` still follows, without the decision."""
        if isinstance(decision.event, AssignmentStored):
            return membership.assignment_lost(self.core, decision.event, code, now)
        return Decision()

    def abandon(self, code: ErrorCode) -> Decision:
        """Answer every waiting request, because this broker is no longer the coordinator."""
        decision = Decision()
        for group in self.core.groups.values():
            for member in group.members.values():
                rebalance.answer_waiting(group, member, code, decision)
        return decision

    # -- time

    def next_deadline_ms(self) -> float | None:
        """Return when `on_deadline` must be called, in monotonic milliseconds; None: not at all."""
        return self.core.timers.next_deadline_ms()

    def on_deadline(self, now: Now) -> Decision | None:
        """Process one timer that is due; return None when no timer is due. Call it until then, or a
        limited number of times: timers that are left stay due. At one and the same `now` each timer
        is processed at most once, so the calls come to an end."""
        key = self.core.timers.pop_due(now.monotonic_ms)
        if key is None:
            return None
        decision = Decision()
        group = self.core.groups.get(key.group_id)
        mine = group is not None and group.incarnation == key.incarnation
        if group is not None and mine and group.state in TIMER_STATES[key.kind]:
            with self.core.timers.serving(now.monotonic_ms):
                self._serve(key, group, decision, now)
        return decision

    def _serve(self, key: TimerKey, group: LiveGroup, decision: Decision, now: Now) -> None:
        if key.kind is TimerKind.SESSION:
            rebalance.on_session_timer(self.core, group, key.member_id, decision, now)
        elif key.kind is TimerKind.PENDING_MEMBER:
            rebalance.on_pending_timer(self.core, group, key.member_id, decision, now)
        elif key.kind is TimerKind.JOIN:
            rebalance.on_join_timer(self.core, group, decision, now)
        else:
            rebalance.on_sync_timer(self.core, group, decision, now)

    # -- requests

    def decide_join(self, caller: Caller, request: JoinGroupRequest, now: Now) -> Decision:
        return join.decide_join(self.core, caller, request, now)

    def decide_sync(self, caller: Caller, request: SyncGroupRequest, now: Now) -> Decision:
        return membership.decide_sync(self.core, caller, request, now)

    def decide_heartbeat(self, request: HeartbeatRequest, now: Now) -> HeartbeatResponse:
        return membership.decide_heartbeat(self.core, request, now)

    def decide_leave(self, caller: Caller, request: LeaveGroupRequest, now: Now) -> Decision:
        return membership.decide_leave(self.core, caller, request, now)

    def decide_offset_commit(
        self, caller: Caller, request: OffsetCommitRequest, topics: TopicLookup, now: Now
    ) -> Decision:
        return offsets.decide_offset_commit(self.core, caller, request, topics, now)

    def decide_offset_delete(self, request: OffsetDeleteRequest, topics: TopicLookup) -> Decision:
        return offsets.decide_offset_delete(self.core, request, topics)

    def decide_delete_group(self, group_id: str) -> Decision:
        return admin.decide_delete_group(self.core, group_id)

    def expirable_groups(self) -> Iterator[str]:
        """Yield the ids of the groups to check for expired offsets."""
        return expiry.expirable_groups(self.core)

    def decide_expired(self, group_ids: Iterable[str], now: Now) -> Iterator[Decision]:
        """Yield the decisions in slices: other work may be done between two of them."""
        return expiry.decide_expired(self.core, group_ids, now)

    def decide_stale(self) -> Iterator[Decision]:
        """Yield the tombstones of the offsets of deleted topics, in slices."""
        return expiry.decide_stale(self.core)

    # -- views

    def fetch_offsets(
        self,
        group_id: str,
        topics: Sequence[tuple[str, bytes, Sequence[int]]] | None,
        *,
        require_stable: bool = False,
    ) -> list[FetchedTopic]:
        """Return committed offsets of (name, id or zero, partitions), or all offsets for None. With
        `require_stable`, offsets that an open transaction may change have UNSTABLE_OFFSET_COMMIT.
        """
        if topics is None:
            return offsets.fetch_all_offsets(self.core, group_id, require_stable)
        return offsets.fetch_offsets(self.core, group_id, topics, require_stable)

    def committed_offset(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return one committed offset with all its stored fields."""
        at = TopicPartition(topic, partition)
        return self.core.committed.offsets_of(group_id).get(at)

    def list_groups(
        self, states: frozenset[str], types: frozenset[str]
    ) -> list[ListGroupsResponse.ListedGroup]:
        return admin.list_groups(self.core, states, types)

    def describe_group(self, group_id: str, version: int) -> DescribeGroupsResponse.DescribedGroup:
        return admin.describe_group(self.core, group_id, version)

    def count_by_state(self) -> dict[GroupState, int]:
        return admin.count_by_state(self.core)

    # -- self-check

    def validate(self) -> None:
        """Check the live state; called by tests and by the simulation after every step. Raises
        InvariantViolated if it contradicts itself."""
        for group in self.core.groups.values():
            try:
                _validate_group(group)
            except InvariantViolated as broken:
                raise InvariantViolated(f"group {group.group_id}: {broken}") from None


def _validate_group(group: LiveGroup) -> None:
    members = group.members
    stable = group.state is GroupState.STABLE
    completing = group.state is GroupState.COMPLETING_REBALANCE
    invariant(group.state is not GroupState.DEAD, "a dead group still exists")
    invariant(bool(members) or not (stable or completing), f"{group.state.value} without members")
    invariant(not members or group.state is not GroupState.EMPTY, "empty with members")
    invariant((group.leader in members) == bool(members), "the leader is not a member")
    joining = sum(member.joining is not None for member in members.values())
    invariant(joining == group.joining_count, "wrong count of waiting JoinGroup requests")
    preparing = group.state is GroupState.PREPARING_REBALANCE
    invariant(preparing or joining == 0, "a JoinGroup request waits after the join phase")
    syncing = any(member.syncing is not None for member in members.values())
    invariant(completing or not syncing, "a SyncGroup request waits outside the sync phase")
    instances = {
        member.group_instance_id: member.member_id
        for member in members.values()
        if member.group_instance_id is not None
    }
    invariant(instances == group.static_members, "static members differ from members")
    invariant(not group.pending & members.keys(), "a member is also pending")
    invariant(group.unsynced <= members.keys(), "waiting for the SyncGroup of a member that left")
    if stable or completing:
        everywhere = all(
            any(name == group.protocol for name, _ in member.protocols)
            for member in members.values()
        )
        invariant(everywhere, "a member does not support the chosen protocol")
