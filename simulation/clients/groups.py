"""Members of consumer groups with the classic protocol (G1 to G9).

They join, share the partitions, commit, fetch committed offsets, leave, or stop without leaving.
Static members come back with the same instance id. Committed offsets are numbers that are never
used again, so that a response identifies its commit.
"""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

from protocol.errors import ApiError, ErrorCode
from protocol.internal import encode_versioned
from protocol.internal.consumer_protocol_assignment import ConsumerProtocolAssignment
from protocol.internal.consumer_protocol_subscription import ConsumerProtocolSubscription
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from simulation.clients.client import Unknown, fail_on
from simulation.clients.kind import ClientKind
from simulation.judges.groups import Share, share_of
from simulation.judges.partitions import OFFSETS_TOPIC
from simulation.shapes.shape import ClientShape, TopicShape
from simulation.world.invariants import require

if TYPE_CHECKING:
    from simulation.clients.load import Load
    from simulation.judges.ledger import PartitionLedger

SESSION_MS = 2_000
REBALANCE_MS = 3_000
JOIN_MS = 10_000
"""Longer than a rebalance, which may wait for a member that has stopped."""
PROTOCOL = "range"
OVER = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})
EXPELLED = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        # The response to a commit after the sessions of all members ended and nothing was
        # committed: a group without members and offsets is deleted, in Kafka too (seed 156 with a
        # tier). The log decides whether a group may be deleted (`judges/expiry.py`).
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
_offset_format = struct.Struct(">q")


class Member:
    """One member of one group. A member of a static kind has an instance id."""

    def __init__(self, load: Load, name: str, group: str, *, static: bool) -> None:
        self._load = load
        self._name = name
        self._group = group
        self._instance = name if static else None
        self._client = load.new_client()
        self._truth = load.group(group)
        self._truth.members[name] = -1
        self._member_id = ""
        self._generation = -1
        self._share: Share = frozenset()
        self._knows_brokers = False

    async def step(self, rng: random.Random) -> None:
        try:
            await self._do(rng)
        except Unknown:
            self._client.forget_coordinator(self._group)
            raise
        except ApiError as error:
            self._knows_brokers = error.code is not ErrorCode.BROKER_NOT_AVAILABLE
            if error.code in EXPELLED:
                self._member_id = ""
            if error.code in OVER | EXPELLED:
                self._out()
                return
            self._client.forget_coordinator(self._group)
            raise

    def _out(self) -> None:
        self._generation = self._truth.members[self._name] = -1

    async def _do(self, rng: random.Random) -> None:
        if not self._knows_brokers:
            await self._client.topics()
            self._knows_brokers = True
        if self._generation < 0:
            await self._join()
            return
        chance = rng.random()
        if chance < 0.5 or not self._share:
            await self._heartbeat()
        elif chance < 0.75:
            await self._commit(rng)
        elif chance < 0.95 or self._load.calm:
            await self._ask(rng)
        elif chance < 0.975:
            await self._leave()
        else:
            await self._die(rng)

    # --- membership ---------------------------------------------------------------------------

    async def _join(self) -> None:
        topics = sorted({one.topic for one in self._load.ledgers.partitions})
        metadata = encode_versioned(ConsumerProtocolSubscription(topics=topics), 1)
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            group_instance_id=self._instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=PROTOCOL, metadata=metadata)],
        )
        joined = await self._client.of_group(self._group, request, JOIN_MS)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return
        fail_on(joined.error_code)
        self._member_id = joined.member_id
        self._truth.names[joined.member_id] = self._name
        shares: dict[str, Share] = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            shares = self._plan(joined)
            self._truth.planned(joined.generation_id, shares)
        asked_s = self._load.now_s()
        synced = await self._assignment(joined, shares)
        fail_on(synced.error_code)
        self._share = share_of(synced.assignment)
        self._truth.synced(
            self._name,
            self._member_id,
            joined.generation_id,
            self._share,
            self._load.now_s(),
            asked_s=asked_s,
        )
        self._generation = joined.generation_id

    async def _assignment(
        self, joined: JoinGroupResponse, shares: dict[str, Share]
    ) -> SyncGroupResponse:
        """Send SyncGroup; the group's leader sends `shares`."""
        return await self._client.of_group(self._group, self._sync(joined, shares), JOIN_MS)

    def _plan(self, joined: JoinGroupResponse) -> dict[str, Share]:
        """Assign partitions to members in turns."""
        members = sorted(one.member_id for one in joined.members)
        parts = sorted((one.topic, one.index) for one in self._load.ledgers.partitions)
        count = len(members)
        return {name: frozenset(parts[at::count]) for at, name in enumerate(members)}

    def _sync(self, joined: JoinGroupResponse, shares: dict[str, Share]) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            group_instance_id=self._instance,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=member_id, assignment=_encoded(share)
                )
                for member_id, share in shares.items()
            ],
        )

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance,
        )
        coordinator = await self._client.coordinator(self._group)
        begin_s, led = self._load.now_s(), self._load.coordinates(coordinator)
        fail_on((await self._client.of_group(self._group, request)).error_code)
        # A replaced coordinator may not know that it was replaced.
        if led and self._load.coordinates(coordinator) == led:
            self._truth.confirmed(self._member_id, self._generation, begin_s)

    async def _leave(self) -> None:
        one = LeaveGroupRequest.MemberIdentity(
            member_id=self._member_id, group_instance_id=self._instance
        )
        self._out()
        self._member_id = ""
        request = LeaveGroupRequest(group_id=self._group, members=[one])
        answer = await self._client.of_group(self._group, request)
        fail_on(answer.error_code or answer.members[0].error_code)

    async def _die(self, rng: random.Random) -> None:
        """Stop without leaving. A static member comes back, and its former member id is fenced
        (G8)."""
        before, generation, share = self._member_id, self._generation, self._share
        self._out()
        self._member_id = ""
        if self._instance is None or not share:
            return
        await self._join()
        if self._generation < 0 or self._member_id == before:
            return
        one = self._some(rng)
        if one is None:
            return
        try:
            await self._commit_as(before, generation, one)
        except ApiError:
            return
        require(False, f"G8: {self._group}: {before} commits, {self._member_id} has replaced it")

    # --- offsets ------------------------------------------------------------------------------

    async def _commit(self, rng: random.Random) -> None:
        one = self._some(rng)
        if one is None:
            await self._heartbeat()
        else:
            await self._commit_as(self._member_id, self._generation, one)

    async def _commit_as(self, member_id: str, generation: int, one: PartitionLedger) -> None:
        offset = self._load.number()
        commit = self._truth.committing(
            (one.topic_id, one.index), offset, generation, self._load.now_s()
        )
        wish = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=one.index, committed_offset=offset, committed_metadata=""
        )
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(
            name=one.topic, topic_id=one.topic_id, partitions=[wish]
        )
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=self._instance,
            topics=[topic],
        )
        answer = await self._client.of_group(self._group, request)
        fail_on(answer.topics[0].partitions[0].error_code)
        require(
            self._load.promises.shows(f"{OFFSETS_TOPIC}-0", _offset_format.pack(offset)),
            f"G9: {self._group}: a commit of {offset} is acknowledged, no replica shows it",
        )
        self._truth.committed(commit, self._load.now_s())

    async def _ask(self, rng: random.Random) -> None:
        one = self._some(rng)
        if one is None:
            await self._heartbeat()
            return
        coordinator = await self._client.coordinator(self._group)
        begin_s, led = self._load.now_s(), self._load.coordinates(coordinator)
        offset = await self._client.committed(self._group, one.topic, one.topic_id, one.index)
        # A replaced coordinator may not know that it was replaced, and responds from its memory.
        if led and self._load.coordinates(coordinator) == led and not one.ended:
            self._truth.fetched((one.topic_id, one.index), offset, begin_s, self._load.now_s())

    def _some(self, rng: random.Random) -> PartitionLedger | None:
        """Return an assigned partition of a topic whose deletion was never requested under its
        name, since commits name topics; None if there is no such partition."""
        gone = self._load.promises.may_vanish
        mine = [
            self._load.ledgers.partition(*one) for one in sorted(self._share) if one[0] not in gone
        ]
        there = [one for one in mine if one is not None]
        return rng.choice(there) if there else None


def _encoded(share: Share) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(share):
        topics.setdefault(topic, []).append(index)
    assigned = [
        ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=indexes)
        for topic, indexes in topics.items()
    ]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), 1)


def _draw(rng: random.Random, _topics: tuple[TopicShape, ...]) -> list[ClientShape]:
    if rng.random() < 0.6:
        return []
    static = rng.random() < 0.5
    return [
        ClientShape(
            "member",
            f"member {number}",
            rng.choice((100.0, 200.0)),
            {"group": "g", "static": static and number != 1},
        )
        for number in range(rng.randint(1, 3))
    ]


KINDS = {
    "member": ClientKind(
        "groups",
        "a member of a consumer group",
        _draw,
        lambda load, one: Member(load, one.name, one.args["group"], static=one.args["static"]).step,
    )
}
