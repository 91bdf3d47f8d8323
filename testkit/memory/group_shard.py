"""One shard, a log in memory, and a manual clock, for scripted rebalances.

After each step the world checks the invariants G8 and G10 of the coordinator: the shard's own
`validate`, and that hard state equals that of a fresh shard that reads the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from broker.coordinators.group.config import GroupConfig
from broker.coordinators.group.decision import Decision
from broker.coordinators.group.hard_state import EMPTY_STATE, HardState, replay
from broker.coordinators.group.live_group import Caller, LiveGroup
from broker.coordinators.group.records import (
    PendingOffsetRecord,
    Record,
    encode_batch,
    parse_entry,
)
from broker.coordinators.group.shard import GroupShard
from broker.coordinators.group.states import GroupState
from broker.coordinators.log_entries import LogEntry, LogRecord
from broker.coordinators.runtime.decision import Now
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.internal.consumer_protocol_subscription import ConsumerProtocolSubscription
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.schema import Response
from testkit.memory.coordinator_entries import entries_of

WALL_EPOCH_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
GROUP = "g"


def subscription(*topics: str) -> bytes:
    """Return a consumer's subscription, encoded in version 0."""
    return b"\x00\x00" + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


class SomeTopics:
    """TopicLookup over a dictionary: name -> (id, partitions)."""

    def __init__(self, topics: dict[str, tuple[bytes, int]]) -> None:
        self.topics = topics

    def topic_name(self, topic_id: bytes) -> str | None:
        return next((name for name, (own, _) in self.topics.items() if own == topic_id), None)

    def topic_id(self, name: str) -> bytes | None:
        found = self.topics.get(name)
        return None if found is None else found[0]

    def has_partition(self, name: str, partition: int) -> bool:
        found = self.topics.get(name)
        return found is not None and 0 <= partition < found[1]


A_ID, B_ID = b"A" * 16, b"B" * 16
TOPICS = SomeTopics({"a": (A_ID, 4), "b": (B_ID, 2)})


def some_topics() -> SomeTopics:
    """Return a modifiable copy of the topics in `TOPICS`."""
    return SomeTopics(dict(TOPICS.topics))


class ShardWorld:
    """Records are committed at once unless `hold_commits` is set; then `commit_next`
    commits them."""

    def __init__(
        self,
        config: GroupConfig | None = None,
        log: Sequence[Record | LogEntry] = (),
        topics: SomeTopics | None = None,
    ) -> None:
        self.topics = topics or some_topics()
        self.config = config or GroupConfig(initial_rebalance_delay_ms=0)
        self.now_ms = 0
        self.log: list[LogEntry] = [
            LogRecord(at, *each) if len(each) == 2 else each for at, each in enumerate(log)
        ]
        self.hold_commits = False
        self.refuse_appends: ErrorCode | None = None
        self.in_flight: deque[tuple[Decision, HardState, int]] = deque()
        self.ends: deque[int] = deque()
        """The length of the log after each append that is in flight."""
        self.committed_end = len(log)
        self.answers: dict[int, Response] = {}
        self.last_ticket = 0
        self._uuids = 0
        self.shard = GroupShard(self.config, self._new_uuid, self.topics)
        for entry in self.log:
            self.shard.replay(entry)
        self.revive()
        self.check()

    def revive(self) -> None:
        """Start all groups and sessions, once everything has been replayed and is committed."""
        for group_id in self.shard.replayed():
            self.shard.revive(group_id, self.now)

    @property
    def now(self) -> Now:
        return Now(float(self.now_ms), WALL_EPOCH_MS + self.now_ms)

    def _new_uuid(self) -> str:
        self._uuids += 1
        return f"uuid-{self._uuids}"

    def restarted(self, lost: int = 0) -> ShardWorld:
        """Move the coordinator: return a new shard from the log, without the last `lost` appends of
        those in flight."""
        kept = len(self.ends) - lost
        end = len(self.log) if not lost else self.ends[kept - 1] if kept else self.committed_end
        world = ShardWorld(self.config, self.log[:end], self.topics)
        world._uuids = self._uuids
        return world

    # -- the driver's part

    def run(self, decision: Decision, ticket: int = 0) -> None:
        for answer in decision.answers:
            assert answer.ticket not in self.answers, "answered twice"
            self.answers[answer.ticket] = answer.response
        if not decision.records:
            if decision.reply is not None:
                self.answers[ticket] = decision.reply
        elif self.refuse_appends is not None:
            self.run(self.shard.failed(decision, self.refuse_appends, self.now))
            if decision.on_failure is not None:
                self.answers[ticket] = decision.on_failure(self.refuse_appends)
        else:
            base_offset = len(self.log)
            entries = entries_of(encode_batch(decision.records), base_offset)
            parsed = [parse_entry(entry) for entry in entries]
            expected = [
                each._replace(log_offset=offset) if isinstance(each, PendingOffsetRecord) else each
                for offset, each in enumerate(decision.records, base_offset)
            ]
            assert parsed == expected, "a record does not survive its encoding"
            self.log.extend(entries)
            state = self.shard.apply(decision.records, base_offset, self.now)
            self.in_flight.append((decision, state, ticket))
            self.ends.append(len(self.log))
            if not self.hold_commits:
                self.commit_next()
        self.check()

    def commit_next(self) -> None:
        decision, state, ticket = self.in_flight.popleft()
        self.committed_end = self.ends.popleft()
        follow = self.shard.committed(state, decision, self.now)
        if decision.reply is not None:
            self.answers[ticket] = decision.reply
        self.run(follow)

    def time_out_next(self, code: ErrorCode) -> None:
        """Let the oldest append time out; it may still be committed."""
        decision, state, ticket = self.in_flight[0]
        if decision.on_failure is not None:
            self.answers[ticket] = decision.on_failure(code)
        self.in_flight[0] = Decision(), state, ticket
        self.run(self.shard.timed_out(decision, code, self.now))

    def advance(self, by_ms: int) -> None:
        """Move the clock and run every timer on the way, each at its own time."""
        until_ms = self.now_ms + by_ms
        while (due_ms := self.shard.next_deadline_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, int(due_ms))
            self.serve()
        self.now_ms = until_ms

    def serve(self) -> int:
        """Run every timer that is due now, each of them once. Returns: their number."""
        limit = len(self.shard.core.timers)
        for served in range(limit + 1):
            decision = self.shard.on_deadline(self.now)
            if decision is None:
                return served
            self.run(decision)
        raise AssertionError(f"more than {limit} timers are due at the same time")

    def check(self) -> None:
        self.shard.validate()
        state = EMPTY_STATE
        for entry in self.log:
            record = parse_entry(entry)
            if record is not None:
                state = replay(state, record)
        assert state == self.shard.appended, "G10: memory is not the replay of the log"
        if not self.in_flight:
            assert self.shard.core.committed == self.shard.appended
            for group_id, group in self.shard.core.groups.items():
                if group.state is GroupState.STABLE:
                    assert group.persisted() == state.groups[group_id]._replace(
                        state_timestamp_ms=group.state_timestamp_ms
                    )

    # -- requests; all return the ticket, the response is in `answers` once it exists

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", subscription("a")),),
        version: int = 9,
        client: str = "client",
        group: str = GROUP,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> int:
        request = JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            group_instance_id=instance,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols
            ],
        )
        caller = self.caller(version, client)
        self.run(self.shard.decide_join(caller, request, self.now), caller.ticket)
        return caller.ticket

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        group: str = GROUP,
        version: int = 5,
        protocol_type: str | None = "consumer",
        protocol: str | None = "range",
    ) -> int:
        request = SyncGroupRequest(
            group_id=group,
            member_id=member_id,
            generation_id=generation,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=data)
                for name, data in (assignments or {}).items()
            ],
        )
        caller = self.caller(version)
        self.run(self.shard.decide_sync(caller, request, self.now), caller.ticket)
        return caller.ticket

    def heartbeat(
        self, member_id: str, generation: int, instance: str | None = None, group: str = GROUP
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group,
            member_id=member_id,
            generation_id=generation,
            group_instance_id=instance,
        )
        response = self.shard.decide_heartbeat(request, self.now)
        self.check()
        return ErrorCode(response.error_code)

    def leave(
        self,
        *members: tuple[str, str | None],
        group: str = GROUP,
        version: int = 5,
    ) -> int:
        request = LeaveGroupRequest(
            group_id=group,
            member_id=members[0][0] if version < 3 else "",
            members=[
                LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance)
                for member_id, instance in members
            ]
            if version >= 3
            else [],
        )
        caller = self.caller(version)
        self.run(self.shard.decide_leave(caller, request, self.now), caller.ticket)
        return caller.ticket

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        group: str = GROUP,
        version: int = 9,
        metadata: str | None = "",
        retention_ms: int = -1,
    ) -> int:
        topics: dict[str, Any] = {}
        for (name, partition), offset in offsets.items():
            topic = topics.setdefault(
                name,
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=name, topic_id=self.topics.topic_id(name) or bytes(16)
                ),
            )
            topic.partitions.append(
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=list(topics.values()),
        )
        caller = self.caller(version)
        decision = self.shard.decide_offset_commit(caller, request, self.topics, self.now)
        self.run(decision, caller.ticket)
        return caller.ticket

    def commit_codes(self, ticket: int) -> set[ErrorCode]:
        response: Any = self.answers[ticket]
        return {
            ErrorCode(partition.error_code)
            for topic in response.topics
            for partition in topic.partitions
        }

    def fetch(self, name: str, partition: int, group: str = GROUP) -> int:
        (topic,) = self.shard.fetch_offsets(group, [(name, bytes(16), [partition])])
        return topic.partitions[0].offset

    def delete_offsets(self, offsets: Sequence[tuple[str, int]], group: str = GROUP) -> int:
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[
                        OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=partition)
                    ],
                )
                for name, partition in offsets
            ],
        )
        self.last_ticket += 1
        self.run(self.shard.decide_offset_delete(request, self.topics), self.last_ticket)
        return self.last_ticket

    def delete_group(self, group: str = GROUP) -> ErrorCode:
        response: Any = self.answers[self.delete_group_later(group)]
        return ErrorCode(response.results[0].error_code)

    def delete_group_later(self, group: str = GROUP) -> int:
        """Delete a group while appends are not committed. Returns: the ticket."""
        self.last_ticket += 1
        self.run(self.shard.decide_delete_group(group), self.last_ticket)
        return self.last_ticket

    def leave_codes(self, ticket: int) -> list[ErrorCode]:
        response: Any = self.answers[ticket]
        return [ErrorCode(member.error_code) for member in response.members]

    def delete_topics(self, *names: str) -> None:
        """Remove these topics from the metadata image; `forget` deletes their offsets."""
        for name in names:
            del self.topics.topics[name]
        self.shard.deletions.note(names, self.shard.appended)

    def forget(self) -> None:
        """Execute one walk over the offsets of deleted topics."""
        for decision in self.shard.decide_stale():
            self.run(decision)

    def expire(self) -> None:
        for decision in self.shard.decide_expired(self.shard.expirable_groups(), self.now):
            self.run(decision)

    # -- shortcuts

    def caller(self, version: int, client: str = "client") -> Caller:
        self.last_ticket += 1
        return Caller(self.last_ticket, version, client, "/10.0.0.1")

    def code(self, ticket: int) -> ErrorCode:
        response: Any = self.answers[ticket]
        return ErrorCode(response.error_code)

    def joined(self, ticket: int) -> JoinGroupResponse:
        response = self.answers[ticket]
        assert isinstance(response, JoinGroupResponse)
        return response

    def synced(self, ticket: int) -> SyncGroupResponse:
        response = self.answers[ticket]
        assert isinstance(response, SyncGroupResponse)
        return response

    def group(self, group: str = GROUP) -> LiveGroup:
        return self.shard.core.groups[group]

    def state(self, group: str = GROUP) -> GroupState:
        return self.group(group).state

    def new_id(self, **how: Any) -> str:
        """Return a member id from the first of two JoinGroups."""
        ticket = self.join(**how)
        assert self.code(ticket) is ErrorCode.MEMBER_ID_REQUIRED
        return self.joined(ticket).member_id

    def stable_group(self, size: int = 1, **how: Any) -> list[str]:
        """Return the members of a new stable group of dynamic members; the first is the leader."""
        ids = [self.new_id(**how) for _ in range(size)]
        tickets = [self.join(member_id, **how) for member_id in ids]
        self.advance(self.config.initial_rebalance_delay_ms)
        generation = self.joined(tickets[0]).generation_id
        assert self.joined(tickets[0]).leader == ids[0]
        self.sync_all(ids, generation)
        assert self.state() is GroupState.STABLE
        return ids

    def sync_all(self, ids: Sequence[str], generation: int) -> list[int]:
        assignments = {member_id: member_id.encode() for member_id in ids}
        leader = self.group().leader
        return [
            self.sync(member_id, generation, assignments if member_id == leader else None)
            for member_id in ids
        ]
