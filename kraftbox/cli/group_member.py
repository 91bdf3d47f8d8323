"""A member of a consumer group, by the classic protocol, for `kraftbox consume --group`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

from kraftbox.cli.client import Client, check
from kraftbox.cli.consumer import Consumer, Received, Sink
from kraftbox.cli.offsets import EARLIEST, LATEST, Partition, commit, committed, end_offsets
from kraftbox.cli.output import CommandFailed
from protocol.errors import ErrorCode
from protocol.internal import decode_versioned, encode_versioned
from protocol.internal.consumer_protocol_assignment import ConsumerProtocolAssignment
from protocol.internal.consumer_protocol_subscription import ConsumerProtocolSubscription
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.sync_group import SyncGroupRequest

SESSION_MS = 30_000
REBALANCE_MS = 60_000
HEARTBEAT_MS = 3_000
COMMIT_MS = 5_000
PROTOCOL_TYPE = "consumer"
PROTOCOL = "range"
SUBSCRIPTION_VERSION = 1


class Deadline(Protocol):
    def passed(self) -> bool: ...

    def restart(self) -> None: ...


class GroupMember:
    """Joins, consumes what it is assigned, commits, and leaves when it ends."""

    def __init__(
        self,
        client: Client,
        group: str,
        topics: Sequence[str],
        consumer: Consumer,
        *,
        from_beginning: bool,
    ) -> None:
        self._client = client
        self._group = group
        self._topics = sorted(set(topics))
        self._consumer = consumer
        self._from = EARLIEST if from_beginning else LATEST
        self._member_id = ""
        self._generation = -1
        self._committed: dict[Partition, int] = {}
        self._next_heartbeat = 0.0
        self._next_commit = 0.0

    async def run(self, sink: Sink, deadline: Deadline) -> None:
        """Until the sink wants no more, the deadline passes, or the task is cancelled."""
        more = True

        def counting(record: Received) -> bool:
            nonlocal more
            more = sink(record)
            return more

        try:
            await self._rejoin()
            while more and not deadline.passed():
                if await self._consume(counting):
                    deadline.restart()
                await self._keep()
        finally:
            with contextlib.suppress(CommandFailed, OSError):
                await self._leave()

    async def _consume(self, sink: Sink) -> int:
        if self._consumer.positions:
            return await self._consumer.poll(sink)
        # More members than partitions: wait for a rebalance.
        await asyncio.sleep(HEARTBEAT_MS / 10_000)
        return 0

    async def _keep(self) -> None:
        now = time.monotonic() * 1000
        if now >= self._next_commit:
            self._next_commit = now + COMMIT_MS
            await self._commit()
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + HEARTBEAT_MS
            await self._heartbeat()

    async def _heartbeat(self) -> None:
        reply = await self._client.ask_coordinator(
            self._group,
            HeartbeatRequest(
                group_id=self._group, generation_id=self._generation, member_id=self._member_id
            ),
        )
        if reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            await self._commit()
            await self._rejoin()
        elif reply.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._member_id = ""
            await self._rejoin()
        else:
            check(reply.error_code, self._group)

    async def _rejoin(self) -> None:
        joined = await self._join()
        assignments = await self._assign(joined) if joined.leader == joined.member_id else {}
        reply = await self._client.ask_coordinator(
            self._group,
            SyncGroupRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=PROTOCOL,
                assignments=[
                    SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=data)
                    for member, data in assignments.items()
                ],
            ),
        )
        if reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            await self._rejoin()
            return
        check(reply.error_code, self._group)
        await self._start(reply.assignment)
        self._next_heartbeat = time.monotonic() * 1000 + HEARTBEAT_MS

    async def _join(self) -> JoinGroupResponse:
        subscription = encode_versioned(
            ConsumerProtocolSubscription(topics=self._topics), SUBSCRIPTION_VERSION
        )
        for _ in range(10):
            reply = await self._client.ask_coordinator(
                self._group,
                JoinGroupRequest(
                    group_id=self._group,
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=REBALANCE_MS,
                    member_id=self._member_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocols=[
                        JoinGroupRequest.JoinGroupRequestProtocol(
                            name=PROTOCOL, metadata=subscription
                        )
                    ],
                ),
            )
            if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = reply.member_id
                continue
            if reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
                continue
            check(reply.error_code, self._group)
            self._member_id, self._generation = reply.member_id, reply.generation_id
            return reply
        raise CommandFailed(f"{self._group}: could not join")

    async def _assign(self, joined: JoinGroupResponse) -> dict[str, bytes]:
        """What every member gets, when this one leads."""
        wanted: dict[str, list[str]] = {}
        for member in joined.members:
            subscription, _ = decode_versioned(
                ConsumerProtocolSubscription, member.metadata, newer_as_latest=True
            )
            wanted[member.member_id] = subscription.topics
        counts = {
            name: len((await self._client.topic(name)).partitions)
            for name in sorted({name for topics in wanted.values() for name in topics})
        }
        shares = assign_range(wanted, counts)
        return {
            member: encode_versioned(
                ConsumerProtocolAssignment(
                    assigned_partitions=[
                        ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=indexes)
                        for name, indexes in share.items()
                    ]
                ),
                SUBSCRIPTION_VERSION,
            )
            for member, share in shares.items()
        }

    async def _start(self, data: bytes) -> None:
        mine: list[Partition] = []
        if data:
            assignment, _ = decode_versioned(ConsumerProtocolAssignment, data, newer_as_latest=True)
            mine = [
                (t.topic, index) for t in assignment.assigned_partitions for index in t.partitions
            ]
        self._committed = await committed(self._client, self._group)
        missing = [key for key in mine if key not in self._committed]
        start = await end_offsets(self._client, missing, self._from)
        self._consumer.assign({key: self._committed.get(key, start.get(key, 0)) for key in mine})

    async def _commit(self) -> None:
        changed = {
            key: position
            for key, position in self._consumer.positions.items()
            if self._committed.get(key) != position
        }
        if changed:
            await commit(
                self._client,
                self._group,
                changed,
                member_id=self._member_id,
                generation=self._generation,
            )
            self._committed.update(changed)

    async def _leave(self) -> None:
        await self._commit()
        await self._client.ask_coordinator(
            self._group,
            LeaveGroupRequest(
                group_id=self._group,
                members=[LeaveGroupRequest.MemberIdentity(member_id=self._member_id)],
            ),
        )


def assign_range(
    wanted: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> dict[str, dict[str, list[int]]]:
    """Topic by topic, neighbouring partitions to each member in order of its id; the first ones
    get one more where it does not divide."""
    shares: dict[str, dict[str, list[int]]] = {member: {} for member in wanted}
    takers: dict[str, list[str]] = defaultdict(list)
    for member in sorted(wanted):
        for name in wanted[member]:
            takers[name].append(member)
    for name, members in takers.items():
        each, extra = divmod(counts[name], len(members))
        first = 0
        for at, member in enumerate(members):
            size = each + (1 if at < extra else 0)
            if size:
                shares[member][name] = list(range(first, first + size))
            first += size
    return shares
