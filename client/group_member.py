"""Shell: A member of a consumer group, with the classic protocol and the range assignor.

It has no task of its own: `poll` sends the heartbeats and commits. So a member that does not call
`poll` within its session timeout is removed from the group, as with Kafka's `max.poll.interval.ms`.
A commit contains the positions after the records that earlier calls of `poll` returned.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Self

from client.cluster_client import EARLIEST, LATEST, ClusterClient
from client.consumer import Consumer
from client.errors import NotJoined, Refused, check
from client.leaders import TopicPartition
from client.offsets import commit, committed
from client.range_assignor import assign_range
from client.visible_records import Received
from protocol.errors import ApiError, ErrorCode
from protocol.internal import decode_versioned, encode_versioned
from protocol.internal.consumer_protocol_assignment import ConsumerProtocolAssignment
from protocol.internal.consumer_protocol_subscription import ConsumerProtocolSubscription
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.sync_group import SyncGroupRequest

SESSION_TIMEOUT_MS = 30_000
REBALANCE_TIMEOUT_MS = 60_000
HEARTBEAT_INTERVAL_MS = 3_000
AUTO_COMMIT_INTERVAL_MS = 5_000
JOINS_MAX = 10
"""Maximum join attempts while the coordinator assigns or revokes member IDs."""
ANSWER_GRACE_MS = 5_000
"""How long the response to a JoinGroup may take after the rebalance timeout, as in Kafka."""
IDLE_WAIT_MS = 300
"""How long a member without partitions waits in `poll`."""

_PROTOCOL_TYPE = "consumer"
_PROTOCOL = "range"
_SUBSCRIPTION_VERSION = 1
_EXPELLED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class GroupMember:
    """A consumer of the partitions that its group assigns to it.

    Call `join` first and `close` at the end, or use `async with`, which closes without a commit if
    its block fails.

    Args:
        consumer: fetches the records; the group sets its positions.
        start: EARLIEST or LATEST, for partitions without a committed offset.
        auto_commit_interval_ms: None leaves commits to `commit` and `close`.
    """

    def __init__(
        self,
        client: ClusterClient,
        group: str,
        topics: Sequence[str],
        consumer: Consumer | None = None,
        *,
        start: int = LATEST,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS,
        auto_commit_interval_ms: float | None = AUTO_COMMIT_INTERVAL_MS,
    ) -> None:
        if start not in (EARLIEST, LATEST):
            raise ValueError(f"start {start}: must be EARLIEST or LATEST")
        self.member_id = ""
        """Assigned by the coordinator."""
        self.generation = -1
        """The generation of the current assignment."""
        self._client = client
        self._group = group
        self._topics = sorted(set(topics))
        self._consumer = consumer or Consumer(client)
        self._start = start
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._auto_commit_ms = auto_commit_interval_ms
        self._committed: dict[TopicPartition, int] = {}
        self._loop = asyncio.get_running_loop()
        self._next_heartbeat_ms = 0.0
        self._next_commit_ms = 0.0

    async def __aenter__(self) -> Self:
        await self.join()
        return self

    async def __aexit__(self, failure: type[BaseException] | None, *_: object) -> None:
        await self.close(commit_first=failure is None)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each assigned partition."""
        return self._consumer.positions

    async def join(self) -> None:
        """Join or rejoin the group: wait until all members have joined, then start at committed
        offsets.

        Raises NotJoined, Refused, OSError.
        """
        while not await self._sync(await self._join()):
            pass
        self._next_heartbeat_ms = self._now_ms() + HEARTBEAT_INTERVAL_MS

    async def poll(self, records_max: int | None = None) -> list[Received]:
        """Do what is due (a commit, a heartbeat, a rebalance), then fetch as `Consumer.poll` does.

        Raises NotJoined, Refused, OSError, ApiError.
        """
        await self._keep()
        if self.positions:
            return await self._consumer.poll(records_max)
        # There are more members than partitions: wait for a rebalance.
        await asyncio.sleep(IDLE_WAIT_MS / 1000.0)
        return []

    async def commit(self) -> None:
        """Commit the positions that are known and have changed. Raises Refused, OSError."""
        changed = {
            key: position
            for key, position in self.positions.items()
            if position >= 0 and self._committed.get(key) != position
        }
        if changed:
            await commit(
                self._client,
                self._group,
                changed,
                member_id=self.member_id,
                generation=self.generation,
            )
            self._committed.update(changed)

    async def close(self, *, commit_first: bool = True) -> None:
        """Commit and leave the group; errors are ignored."""
        with contextlib.suppress(ApiError, OSError):
            if commit_first:
                await self.commit()
            await self._client.request_coordinator(
                self._group,
                LeaveGroupRequest(
                    group_id=self._group,
                    members=[LeaveGroupRequest.MemberIdentity(member_id=self.member_id)],
                ),
            )

    # --- upkeep --------------------------------------------------------------------------------

    def _now_ms(self) -> float:
        return self._loop.time() * 1000.0

    async def _keep(self) -> None:
        now_ms = self._now_ms()
        try:
            if self._auto_commit_ms is not None and now_ms >= self._next_commit_ms:
                self._next_commit_ms = now_ms + self._auto_commit_ms
                await self.commit()
            if now_ms >= self._next_heartbeat_ms:
                self._next_heartbeat_ms = now_ms + HEARTBEAT_INTERVAL_MS
                await self._heartbeat()
        except Refused as error:
            if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                await self.join()
            elif error.code in _EXPELLED:
                # Partitions with uncommitted positions may already belong to another member.
                if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                    self.member_id = ""
                await self.join()
            else:
                raise

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self._group, generation_id=self.generation, member_id=self.member_id
        )
        reply = await self._client.request_coordinator(self._group, request)
        if reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS and self._auto_commit_ms is not None:
            await self.commit()
        check(reply.error_code, self._group)

    # --- rebalance -----------------------------------------------------------------------------

    async def _join(self) -> JoinGroupResponse:
        subscription = encode_versioned(
            ConsumerProtocolSubscription(topics=self._topics), _SUBSCRIPTION_VERSION
        )
        for _ in range(JOINS_MAX):
            request = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=self._session_timeout_ms,
                rebalance_timeout_ms=self._rebalance_timeout_ms,
                member_id=self.member_id,
                protocol_type=_PROTOCOL_TYPE,
                protocols=[
                    JoinGroupRequest.JoinGroupRequestProtocol(name=_PROTOCOL, metadata=subscription)
                ],
            )
            # The response arrives once all members have joined, or at the rebalance timeout.
            reply = await self._client.request_coordinator(
                self._group,
                request,
                2 * self._rebalance_timeout_ms,
                answer_ms=self._rebalance_timeout_ms + ANSWER_GRACE_MS,
            )
            if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = reply.member_id
                continue
            if reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
                continue
            check(reply.error_code, self._group)
            self.member_id, self.generation = reply.member_id, reply.generation_id
            return reply
        raise NotJoined(f"{self._group}: could not join")

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        """Get the assignment; return False if the next rebalance has already begun."""
        shares = await self._shares(joined) if joined.leader == joined.member_id else {}
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=_PROTOCOL,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=data)
                for member, data in shares.items()
            ],
        )
        reply = await self._client.request_coordinator(
            self._group,
            request,
            self._rebalance_timeout_ms,
            answer_ms=self._rebalance_timeout_ms,
        )
        if reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        check(reply.error_code, self._group)
        await self._begin(reply.assignment)
        return True

    async def _shares(self, joined: JoinGroupResponse) -> dict[str, bytes]:
        """Return every member's assignment, computed by this member as the group's leader."""
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
        return {
            member: encode_versioned(
                ConsumerProtocolAssignment(
                    assigned_partitions=[
                        ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=indexes)
                        for name, indexes in share.items()
                    ]
                ),
                _SUBSCRIPTION_VERSION,
            )
            for member, share in assign_range(wanted, counts).items()
        }

    async def _begin(self, data: bytes) -> None:
        mine: list[TopicPartition] = []
        if data:
            assignment, _ = decode_versioned(ConsumerProtocolAssignment, data, newer_as_latest=True)
            mine = [
                (t.topic, index) for t in assignment.assigned_partitions for index in t.partitions
            ]
        self._committed = await committed(self._client, self._group)
        self._consumer.assign({key: self._committed.get(key, self._start) for key in mine})
