"""Members of consumer groups that do not wait for responses (G8).

A leader sends a second assignment while the first is being stored. Clients leave while their
JoinGroup waits, and come back with the member id that they have dropped.
"""

from __future__ import annotations

import asyncio
import random

from protocol.errors import ApiError, ErrorCode
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.sync_group import SyncGroupResponse
from simulation.clients.client import Unknown
from simulation.clients.groups import JOIN_MS, REBALANCE_MS, SESSION_MS, Member
from simulation.clients.kind import ClientKind
from simulation.clients.load import REQUEST_MS, Load
from simulation.judges.groups import Share
from simulation.shapes.shape import ClientShape, TopicShape

LEAVES_AFTER_S = 0.05
"""Within the initial rebalance delay of a group."""


class HastyMember(Member):
    """A group leader that sends two assignments of one generation at once: members get one
    of them."""

    async def _assignment(
        self, joined: JoinGroupResponse, shares: dict[str, Share]
    ) -> SyncGroupResponse:
        if len(shares) < 2 or self._load.calm:
            return await super()._assignment(joined, shares)
        names = list(shares)
        turned = dict(zip(names, [shares[name] for name in names[1:] + names[:1]], strict=True))
        self._truth.planned(joined.generation_id, turned)
        first = asyncio.ensure_future(super()._assignment(joined, turned))
        try:
            return await super()._assignment(joined, shares)
        finally:
            await asyncio.gather(first, return_exceptions=True)


class Quitter:
    """Joins a new group, leaves while the join waits, joins with the old id, and then without one.

    The node must survive this; the responses are ignored.
    """

    def __init__(self, load: Load, one: ClientShape) -> None:
        self._load = load
        self._name = one.name
        self._count = 0
        self._first, self._second = load.new_client(), load.new_client()

    async def step(self, _rng: random.Random) -> None:
        if self._load.calm:
            return
        self._count += 1
        group = f"{self._name} {self._count}"
        await self._first.topics()
        await self._second.topics()
        try:
            await self._quit(group)
        except (ApiError, Unknown):
            self._first.forget_coordinator(group)
            self._second.forget_coordinator(group)
            raise

    async def _quit(self, group: str) -> None:
        given = await self._second.of_group(group, _join(group, ""))
        if given.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            return
        member_id = given.member_id
        await self._first.cluster.find_broker(await self._first.coordinator(group), REQUEST_MS)
        waiting = asyncio.ensure_future(
            self._first.of_group(group, _join(group, member_id), JOIN_MS)
        )
        try:
            await asyncio.sleep(LEAVES_AFTER_S)
            one = LeaveGroupRequest.MemberIdentity(member_id=member_id)
            await self._second.of_group(group, LeaveGroupRequest(group_id=group, members=[one]))
            await self._second.of_group(group, _join(group, member_id))
            await self._second.of_group(group, _join(group, ""))
        finally:
            await asyncio.gather(waiting, return_exceptions=True)


def _join(group: str, member_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def _draw(_rng: random.Random, _topics: tuple[TopicShape, ...]) -> list[ClientShape]:
    """Return no clients: `simulation.shapes.hasty` draws them."""
    return []


KINDS = {
    "hasty member": ClientKind(
        "hasty",
        "a member of a group that assigns twice in one generation",
        _draw,
        lambda load, one: HastyMember(load, one.name, one.args["group"], static=False).step,
        apart=True,
    ),
    "quitter": ClientKind(
        "hasty",
        "leaves groups while it waits, and comes back with its old member id",
        _draw,
        lambda load, one: Quitter(load, one).step,
        apart=True,
    ),
}
