"""JoinGroup: admission of members and its effect on the group.

A member without an id gets one. From version 4 on a dynamic member must join again with it
(MEMBER_ID_REQUIRED, KIP-394), so that a client that stops early leaves only an id behind. A static
member (`group.instance.id`, KIP-345) is recognised by its instance id. It takes the place of its
former member id, which is fenced from then on.

A static member that returns to a stable group does not disturb it if the group would choose the
same protocol: the new id is stored and the assignment stays. From version 9 on a returning leader
is instructed to skip the assignment (KIP-814). Before that the response names its old id as leader,
so that it acts as a follower.
"""

from __future__ import annotations

from broker.coordinators.group import rebalance
from broker.coordinators.group.core import Core, membership_error
from broker.coordinators.group.decision import Decision, StaticMemberReplaced
from broker.coordinators.group.live_group import Caller, LiveGroup, LiveMember, Protocols
from broker.coordinators.group.records import GroupRecord
from broker.coordinators.group.states import GroupState
from broker.coordinators.runtime.decision import Now
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

_MEMBER_ID_REQUIRED_FROM = 4
_SKIP_ASSIGNMENT_FROM = 9


def decide_join(core: Core, caller: Caller, request: JoinGroupRequest, now: Now) -> Decision:
    """Admit a member or refuse it. The reply is immediate, or comes with the end of the join
    phase."""
    code = _refusal(core, request)
    if code is not None:
        return _refused(code, request.member_id, caller)
    group = core.groups.get(request.group_id)
    if group is None:
        if request.member_id:
            return _refused(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id, caller)
        group = LiveGroup(request.group_id, now.wall_ms)
        core.adopt(group)
    decision = Decision()
    if not _has_room(core, group, request.member_id):
        _turn_away(core, group, request, decision)
        decision.reply = rebalance.join_error(ErrorCode.GROUP_MAX_SIZE_REACHED, "", caller.version)
    elif not request.member_id:
        _join_without_id(core, group, caller, request, decision, now)
    else:
        _join_with_id(core, group, caller, request, decision, now)
    # Even a refused join may have removed the last member that the join phase waits for.
    rebalance.complete_join_if_all_joined(core, group, decision, now)
    core.forget_if_idle(group)
    return decision


def _refusal(core: Core, request: JoinGroupRequest) -> ErrorCode | None:
    config = core.config
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    timeout_ms = request.session_timeout_ms
    if not config.min_session_timeout_ms <= timeout_ms <= config.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if request.group_id in core.appended.foreign:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return None


def _refused(code: ErrorCode, member_id: str, caller: Caller) -> Decision:
    return Decision(reply=rebalance.join_error(code, member_id, caller.version))


def _has_room(core: Core, group: LiveGroup, member_id: str) -> bool:
    """Return whether the group has room for this join. During a rebalance only members that have
    joined count: a group that is larger than a lowered `group.max.size` shrinks to it (KAFKA-9844).
    """
    max_size = core.config.max_size
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        waits_already = member is not None and member.joining is not None
        return waits_already or group.joining_count < max_size
    if group.state is GroupState.EMPTY:
        return True
    return member is not None or len(group.members) < max_size


def _turn_away(core: Core, group: LiveGroup, request: JoinGroupRequest, decision: Decision) -> None:
    """Remove the caller from a full group, so that the join phase does not wait for it."""
    member_id, instance_id = request.member_id, request.group_instance_id
    if member_id in group.pending:
        if instance_id is None:
            core.remove_pending(group, member_id)
    elif membership_error(group, member_id, instance_id) is None:
        rebalance.remove(core, group, group.members[member_id], decision)


# -- members without an id


def _join_without_id(
    core: Core,
    group: LiveGroup,
    caller: Caller,
    request: JoinGroupRequest,
    decision: Decision,
    now: Now,
) -> None:
    protocols = _protocols(request)
    instance_id = request.group_instance_id
    holder_id = group.static_members.get(instance_id) if instance_id is not None else None
    if not group.supports(request.protocol_type, protocols):
        decision.reply = rebalance.join_error(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "", caller.version
        )
        return
    member_id = core.new_member_id(caller.client_id, instance_id)
    if holder_id is not None:
        old = group.members[holder_id]
        _replace_static(core, group, old, member_id, caller, request, decision, now)
    elif instance_id is None and caller.version >= _MEMBER_ID_REQUIRED_FROM:
        core.add_pending(group, member_id, now, request.session_timeout_ms)
        decision.reply = rebalance.join_error(
            ErrorCode.MEMBER_ID_REQUIRED, member_id, caller.version
        )
    else:
        _add(core, group, member_id, caller, request, decision, now)


def _add(
    core: Core,
    group: LiveGroup,
    member_id: str,
    caller: Caller,
    request: JoinGroupRequest,
    decision: Decision,
    now: Now,
) -> None:
    member = LiveMember(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=_protocols(request),
    )
    rebalance.add_and_rebalance(core, group, member, request.protocol_type, caller, decision, now)


# -- static members that return


def _replace_static(
    core: Core,
    group: LiveGroup,
    old: LiveMember,
    member_id: str,
    caller: Caller,
    request: JoinGroupRequest,
    decision: Decision,
    now: Now,
) -> None:
    old_leader = group.leader
    rebalance.answer_waiting(group, old, ErrorCode.FENCED_INSTANCE_ID, decision)
    core.cancel_session(group, old.member_id)
    member = old.renamed(member_id)
    group.replace_member(old, member)
    group.update_member(
        member,
        caller=caller,
        protocols=_protocols(request),
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
    )
    core.touch(group, member, now)
    if group.state is GroupState.STABLE and group.select_protocol() == group.protocol:
        decision.records.append(GroupRecord(group.group_id, group.persisted()))
        decision.event = StaticMemberReplaced(group.group_id, old, member_id)
        decision.reply = _rejoined(group, member, caller.version, old_leader)
        decision.on_failure = lambda code: rebalance.join_error(code, "", caller.version)
        return
    # The leader may have the old id already, in an assignment that the new id would not receive.
    group.set_joining(member, caller)
    rebalance.rebalance_or_complete(core, group, decision, now)


def _rejoined(
    group: LiveGroup, member: LiveMember, version: int, old_leader: str | None
) -> JoinGroupResponse:
    response = rebalance.joined(group, member)
    if version >= _SKIP_ASSIGNMENT_FROM:
        response.skip_assignment = group.leader == member.member_id
    else:
        response.leader = old_leader or ""
        response.members = []
    return response


def undo_static_replacement(core: Core, event: StaticMemberReplaced, now: Now) -> None:
    """Restore the old member after the new member id could not be stored. No other call has
    happened since, because a refused append is reported at once."""
    group = core.groups[event.group_id]
    member = group.members[event.member_id]
    core.cancel_session(group, member.member_id)
    group.replace_member(member, event.replaced)
    core.touch(group, event.replaced, now)


# -- members with an id


def _join_with_id(
    core: Core,
    group: LiveGroup,
    caller: Caller,
    request: JoinGroupRequest,
    decision: Decision,
    now: Now,
) -> None:
    member_id = request.member_id
    protocols = _protocols(request)
    if not group.supports(request.protocol_type, protocols):
        decision.reply = rebalance.join_error(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id, caller.version
        )
        return
    if member_id in group.pending and request.group_instance_id is None:
        _add(core, group, member_id, caller, request, decision, now)
        return
    code = membership_error(group, member_id, request.group_instance_id)
    if code is not None:
        decision.reply = rebalance.join_error(code, member_id, caller.version)
        return
    member = group.members[member_id]
    if _may_stay(group, member, protocols):
        core.touch(group, member, now)
        decision.reply = rebalance.joined(group, member)
        return
    rebalance.update_and_rebalance(
        core,
        group,
        member,
        caller,
        protocols=protocols,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        decision=decision,
        now=now,
    )


def _may_stay(group: LiveGroup, member: LiveMember, protocols: Protocols) -> bool:
    """Return whether a member's join changes nothing, so that the generation can continue.

    In CompletingRebalance the member may have missed the previous answer. A follower of a stable
    group may repeat its request. If the leader joins again it wants a new assignment, as only the
    leader watches the topics.
    """
    if member.protocols != protocols:
        return False
    if group.state is GroupState.COMPLETING_REBALANCE:
        return True
    return group.state is GroupState.STABLE and group.leader != member.member_id


def _protocols(request: JoinGroupRequest) -> Protocols:
    return tuple((protocol.name, protocol.metadata) for protocol in request.protocols)


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Return the rebalance timeout. Version 0 has none, so the session timeout is used."""
    timeout_ms = request.rebalance_timeout_ms
    return timeout_ms if timeout_ms >= 0 else request.session_timeout_ms
