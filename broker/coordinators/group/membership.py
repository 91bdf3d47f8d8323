"""SyncGroup, Heartbeat and LeaveGroup."""

from __future__ import annotations

from typing import Final

from broker.coordinators.group import rebalance
from broker.coordinators.group.core import Core, membership_error
from broker.coordinators.group.decision import AssignmentStored, Decision
from broker.coordinators.group.live_group import Caller, LiveGroup
from broker.coordinators.group.records import GroupRecord
from broker.coordinators.group.states import GroupState
from broker.coordinators.runtime.decision import Answer, Now
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

# The heartbeat response of a known member of the current generation, by state.

HEARTBEAT_ANSWERS: Final[dict[GroupState, ErrorCode]] = {
    GroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    GroupState.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    # A member may begin to heartbeat as soon as it has its JoinGroup response.
    GroupState.COMPLETING_REBALANCE: ErrorCode.NONE,
    GroupState.STABLE: ErrorCode.NONE,
    GroupState.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}

SYNC_REFUSALS: Final[dict[GroupState, ErrorCode | None]] = {
    GroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    GroupState.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    GroupState.COMPLETING_REBALANCE: None,
    GroupState.STABLE: None,
    GroupState.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}

_LEAVE_IN_BATCH_FROM: Final = 3
_PROTOCOL_SAID_FROM: Final = 5


def heartbeat_error(code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


def _generation_error(
    group: LiveGroup | None, member_id: str, group_instance_id: str | None, generation: int
) -> ErrorCode | None:
    code = membership_error(group, member_id, group_instance_id)
    if code is None and group is not None and group.generation != generation:
        return ErrorCode.ILLEGAL_GENERATION
    return code


# -- Heartbeat


def decide_heartbeat(core: Core, request: HeartbeatRequest, now: Now) -> HeartbeatResponse:
    """Restart the member's session and return the response. It never writes or waits, so it needs
    no Decision."""
    if not request.group_id:
        return heartbeat_error(ErrorCode.INVALID_GROUP_ID)
    group = core.groups.get(request.group_id)
    code = _generation_error(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    if code is not None or group is None:
        return heartbeat_error(code or ErrorCode.UNKNOWN_MEMBER_ID)
    core.touch(group, group.members[request.member_id], now)
    return heartbeat_error(HEARTBEAT_ANSWERS[group.state])


# -- SyncGroup


def decide_sync(core: Core, caller: Caller, request: SyncGroupRequest, now: Now) -> Decision:
    """Let a follower wait for the assignment; store the leader's, which waits until it is
    committed.

    A generation has one assignment. A leader that repeats its SyncGroup before the first one is
    committed waits for the first: members receive what the log contains.
    """
    if not request.group_id:
        return Decision(reply=sync_error(ErrorCode.INVALID_GROUP_ID))
    unsaid = request.protocol_type is None or request.protocol_name is None
    if unsaid and caller.version >= _PROTOCOL_SAID_FROM:
        return Decision(reply=sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    group = core.groups.get(request.group_id)
    code = _sync_refusal(group, request)
    if code is not None or group is None:
        return Decision(reply=sync_error(code or ErrorCode.UNKNOWN_MEMBER_ID))
    member = group.members[request.member_id]
    group.unsynced.discard(member.member_id)
    if group.state is GroupState.STABLE:
        core.touch(group, member, now)
        return Decision(reply=rebalance.synced(group, member))
    decision = Decision()
    if member.syncing is not None:
        response = sync_error(ErrorCode.REBALANCE_IN_PROGRESS)
        decision.answers.append(Answer(member.syncing.ticket, response))
    member.syncing = caller
    if group.leader == member.member_id and not group.assignment_under_way:
        assignments = {each.member_id: each.assignment for each in request.assignments}
        decision.records.append(GroupRecord(group.group_id, group.persisted(assignments)))
        decision.event = AssignmentStored(
            group.group_id, group.incarnation, group.generation, assignments
        )
        group.assignment_under_way = True
    return decision


def _sync_refusal(group: LiveGroup | None, request: SyncGroupRequest) -> ErrorCode | None:
    code = _generation_error(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    if code is not None or group is None:
        return code
    # From version 5 on the member has to name the agreed protocol type and protocol (KIP-559).
    other_type = request.protocol_type not in (None, group.protocol_type)
    other_protocol = request.protocol_name not in (None, group.protocol)
    if other_type or other_protocol:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return SYNC_REFUSALS[group.state]


def assignment_stored(core: Core, event: AssignmentStored, now: Now) -> Decision:
    """Distribute a committed assignment, unless the group has moved on in the meantime."""
    decision = Decision()
    group = core.groups.get(event.group_id)
    if _awaits(group, event) and group is not None:
        rebalance.assign(core, group, event.assignments, decision, now)
    return decision


def assignment_lost(core: Core, event: AssignmentStored, code: ErrorCode, now: Now) -> Decision:
    """Report an assignment that was not stored to the waiting members, and start a rebalance."""
    decision = Decision()
    group = core.groups.get(event.group_id)
    if _awaits(group, event) and group is not None:
        rebalance.fail_syncs(core, group, code, decision, now)
        rebalance.start_rebalance(core, group, decision, now)
    return decision


def _awaits(group: LiveGroup | None, event: AssignmentStored) -> bool:
    return (
        group is not None
        and group.incarnation == event.incarnation
        and group.state is GroupState.COMPLETING_REBALANCE
        and group.generation == event.generation
    )


# -- LeaveGroup


def leave_error(code: ErrorCode) -> LeaveGroupResponse:
    """Return the response for an error that concerns the whole request: nothing was done."""
    return LeaveGroupResponse(error_code=code)


def decide_leave(core: Core, caller: Caller, request: LeaveGroupRequest, now: Now) -> Decision:
    """Remove members. A static member may be identified by its instance id alone, so that an
    administrator can remove one that will not return."""
    if not request.group_id:
        return Decision(reply=leave_error(ErrorCode.INVALID_GROUP_ID))
    decision = Decision()
    group = core.groups.get(request.group_id)
    size, pending = (0, 0) if group is None else (len(group.members), len(group.pending))
    results: list[LeaveGroupResponse.MemberResponse] = []
    for leaving in _leaving(caller, request):
        code = ErrorCode.UNKNOWN_MEMBER_ID
        if group is not None:
            code = _leave(core, group, leaving, decision)
        results.append(
            LeaveGroupResponse.MemberResponse(
                member_id=leaving.member_id,
                group_instance_id=leaving.group_instance_id,
                error_code=code,
            )
        )
    if group is not None and len(group.members) < size:
        rebalance.after_removal(core, group, decision, now)
    elif group is not None and len(group.pending) < pending:
        rebalance.after_pending_gone(core, group, decision, now)
    decision.reply = _left(caller, results)
    if decision.records:
        decision.on_failure = leave_error
    return decision


def _leaving(caller: Caller, request: LeaveGroupRequest) -> list[LeaveGroupRequest.MemberIdentity]:
    if caller.version >= _LEAVE_IN_BATCH_FROM:
        return request.members
    return [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]


def _left(caller: Caller, results: list[LeaveGroupResponse.MemberResponse]) -> LeaveGroupResponse:
    if caller.version >= _LEAVE_IN_BATCH_FROM:
        return LeaveGroupResponse(members=results)
    return LeaveGroupResponse(error_code=results[0].error_code)


def _leave(
    core: Core, group: LiveGroup, leaving: LeaveGroupRequest.MemberIdentity, decision: Decision
) -> ErrorCode:
    member_id, instance_id = leaving.member_id, leaving.group_instance_id
    if not member_id and instance_id is not None:
        member_id = group.static_members.get(instance_id, "")
    if member_id in group.pending and instance_id is None:
        core.remove_pending(group, member_id)
        return ErrorCode.NONE
    code = membership_error(group, member_id, instance_id)
    if code is not None:
        return code
    rebalance.remove(core, group, group.members[member_id], decision)
    return ErrorCode.NONE
