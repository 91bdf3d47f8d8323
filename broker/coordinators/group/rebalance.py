"""Rebalances of a classic group: start, join phase, sync phase, end.

Join phase (PreparingRebalance): every member has to send JoinGroup again. It ends when all of them
wait, or when the largest rebalance timeout among them has passed; dynamic members that did not join
are then removed. The first rebalance of an empty group waits `group.initial.rebalance.delay.ms`
instead. It repeats this while new members keep joining, up to the rebalance timeout in total.

Sync phase (CompletingRebalance): the leader sends the assignment, which is stored before any member
receives it. Members that joined and do not send SyncGroup within the rebalance timeout are removed.
Otherwise the group would stand still indefinitely (KAFKA-12890).

A member whose request waits here cannot send heartbeats. Its session does not count in that time
and restarts with the answer. Functions here change live state only; the one record they write is
that of a group that has become empty.
"""

from __future__ import annotations

from typing import Final

from broker.coordinators.group.core import Core
from broker.coordinators.group.decision import Decision
from broker.coordinators.group.live_group import (
    NO_ASSIGNMENT,
    Caller,
    LiveGroup,
    LiveMember,
    Protocols,
)
from broker.coordinators.group.records import GroupRecord
from broker.coordinators.group.states import GroupEvent, GroupState
from broker.coordinators.group.timers import TimerKind
from broker.coordinators.runtime.decision import Answer, Now
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.sync_group import SyncGroupResponse

NOBODY_LEADS_MS_MIN: Final = 1_000
"""Minimum interval between checks of a join phase that no member joined."""
_NULL_PROTOCOL_FROM: Final = 7

# -- replies


def join_error(code: ErrorCode, member_id: str, version: int) -> JoinGroupResponse:
    """Return a refused JoinGroup; the protocol name can be null from version 7 on."""
    name = None if version >= _NULL_PROTOCOL_FROM else ""
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=name)


def joined(group: LiveGroup, member: LiveMember) -> JoinGroupResponse:
    """Return the current generation for `member`; the leader also receives all members'
    metadata."""
    members = current_members(group) if group.leader == member.member_id else []
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol or "",
        leader=group.leader or "",
        member_id=member.member_id,
        members=members,
    )


def current_members(group: LiveGroup) -> list[JoinGroupResponse.JoinGroupResponseMember]:
    """Return all members with their metadata for the chosen protocol, for the leader."""
    return [
        JoinGroupResponse.JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=member.metadata(group.protocol),
        )
        for member in group.members.values()
    ]


def synced(group: LiveGroup, member: LiveMember) -> SyncGroupResponse:
    """Return the member's assignment in this generation."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )


def answer_waiting(
    group: LiveGroup, member: LiveMember, code: ErrorCode, decision: Decision
) -> None:
    """Answer the member's waiting JoinGroup and SyncGroup, if any, with an error."""
    joining = group.take_joining(member)
    if joining is not None:
        response = join_error(code, member.member_id, joining.version)
        decision.answers.append(Answer(joining.ticket, response))
    syncing, member.syncing = member.syncing, None
    if syncing is not None:
        decision.answers.append(Answer(syncing.ticket, SyncGroupResponse(error_code=code)))


def wait_in_join(group: LiveGroup, member: LiveMember, caller: Caller, decision: Decision) -> None:
    """Let the caller's JoinGroup wait; an earlier one of the same member is answered with a
    retriable error."""
    earlier = group.take_joining(member)
    if earlier is not None:
        response = join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id, earlier.version)
        decision.answers.append(Answer(earlier.ticket, response))
    group.set_joining(member, caller)


# -- members come and go


def add_and_rebalance(
    core: Core,
    group: LiveGroup,
    member: LiveMember,
    protocol_type: str,
    caller: Caller,
    decision: Decision,
    now: Now,
) -> None:
    """Add a new member, which waits for the resulting rebalance."""
    core.remove_pending(group, member.member_id)
    member.is_new = True
    if group.is_initial_rebalance:
        group.new_member_joined = True
    group.add_member(member, protocol_type)
    group.set_joining(member, caller)
    # A new member may disappear unnoticed while its JoinGroup waits, and join again under another
    # id. This deadline bounds the number of such abandoned members per client.
    core.set_session(group, member.member_id, now, core.config.new_member_join_timeout_ms)
    rebalance_or_complete(core, group, decision, now)


def update_and_rebalance(
    core: Core,
    group: LiveGroup,
    member: LiveMember,
    caller: Caller,
    *,
    protocols: Protocols,
    rebalance_timeout_ms: int,
    session_timeout_ms: int,
    decision: Decision,
    now: Now,
) -> None:
    """Update a member that joins again; it waits for the rebalance."""
    group.update_member(
        member,
        caller=caller,
        protocols=protocols,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
    )
    wait_in_join(group, member, caller, decision)
    rebalance_or_complete(core, group, decision, now)


def remove(core: Core, group: LiveGroup, member: LiveMember, decision: Decision) -> None:
    """Remove a member. The caller must call `after_removal` afterwards."""
    answer_waiting(group, member, ErrorCode.UNKNOWN_MEMBER_ID, decision)
    core.cancel_session(group, member.member_id)
    group.remove_member(member.member_id)


def after_removal(core: Core, group: LiveGroup, decision: Decision, now: Now) -> None:
    """Continue after members were removed: start a rebalance, or end the join phase if possible."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        start_rebalance(core, group, decision, now)
    elif group.state is GroupState.PREPARING_REBALANCE:
        complete_join_if_all_joined(core, group, decision, now)
    else:
        core.forget_if_idle(group)


# -- the join phase


def rebalance_or_complete(core: Core, group: LiveGroup, decision: Decision, now: Now) -> None:
    """Start a rebalance, or end the join phase of the running one if all members have joined."""
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_join_if_all_joined(core, group, decision, now)
    else:
        start_rebalance(core, group, decision, now)


def start_rebalance(core: Core, group: LiveGroup, decision: Decision, now: Now) -> None:
    """Start a rebalance with its join phase."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        fail_syncs(core, group, ErrorCode.REBALANCE_IN_PROGRESS, decision, now)
    group.assignment_under_way = False
    group.unsynced.clear()
    core.transition(group, GroupEvent.REBALANCE_STARTED, now)
    if group.is_initial_rebalance:
        delay_ms = core.config.initial_rebalance_delay_ms
        group.new_member_joined = False
        group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        core.set_group_timer(TimerKind.JOIN, group, now, delay_ms)
    elif group.all_joined:
        complete_join(core, group, decision, now)
    else:
        core.set_group_timer(TimerKind.JOIN, group, now, group.rebalance_timeout_ms)


def complete_join_if_all_joined(core: Core, group: LiveGroup, decision: Decision, now: Now) -> None:
    """End the join phase early if all members have joined. A group's first rebalance always waits
    for its delay."""
    preparing = group.state is GroupState.PREPARING_REBALANCE
    if preparing and group.all_joined and not group.is_initial_rebalance:
        complete_join(core, group, decision, now)


def on_join_timer(core: Core, group: LiveGroup, decision: Decision, now: Now) -> None:
    """End the join phase, or extend it for a group's first rebalance."""
    more_came = group.is_initial_rebalance and group.new_member_joined
    delay_ms = min(core.config.initial_rebalance_delay_ms, group.initial_delay_left_ms)
    if more_came and delay_ms > 0:
        group.initial_delay_left_ms -= delay_ms
        group.new_member_joined = False
        core.set_group_timer(TimerKind.JOIN, group, now, delay_ms)
        return
    complete_join(core, group, decision, now)


def complete_join(core: Core, group: LiveGroup, decision: Decision, now: Now) -> None:
    """End the join phase: the new generation has the members that joined and the static members."""
    for member in list(group.members.values()):
        if member.joining is None and member.group_instance_id is None:
            remove(core, group, member, decision)
    if not group.members:
        _become_empty(core, group, decision, now)
    elif group.elect_joined_leader():
        _begin_sync_phase(core, group, decision, now)
    else:
        # Only static members are left and none has joined, so there is no possible leader. Their
        # sessions run: either one of them joins or all of them expire.
        delay_ms = max(group.rebalance_timeout_ms, NOBODY_LEADS_MS_MIN)
        core.set_group_timer(TimerKind.JOIN, group, now, delay_ms)


def _become_empty(core: Core, group: LiveGroup, decision: Decision, now: Now) -> None:
    group.begin_generation()
    core.transition(group, GroupEvent.ALL_LEFT, now)
    decision.records.append(GroupRecord(group.group_id, group.persisted()))


def _begin_sync_phase(core: Core, group: LiveGroup, decision: Decision, now: Now) -> None:
    group.begin_generation()
    core.transition(group, GroupEvent.JOINED, now)
    core.counters.completed_rebalances += 1
    for member in group.members.values():
        caller = group.take_joining(member)
        if caller is not None:
            decision.answers.append(Answer(caller.ticket, joined(group, member)))
        member.is_new = False
        group.unsynced.add(member.member_id)
        core.touch(group, member, now)
    core.set_group_timer(TimerKind.SYNC, group, now, group.rebalance_timeout_ms)


# -- the sync phase


def assign(
    core: Core, group: LiveGroup, assignments: dict[str, bytes], decision: Decision, now: Now
) -> None:
    """Distribute a committed assignment to all members that wait for it."""
    core.transition(group, GroupEvent.ASSIGNED, now)
    group.assignment_under_way = False
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
        syncing, member.syncing = member.syncing, None
        if syncing is not None:
            decision.answers.append(Answer(syncing.ticket, synced(group, member)))
            core.touch(group, member, now)


def fail_syncs(core: Core, group: LiveGroup, code: ErrorCode, decision: Decision, now: Now) -> None:
    """Answer all waiting SyncGroups with an error: the generation ends without an assignment."""
    for member in group.members.values():
        member.assignment = NO_ASSIGNMENT
        syncing, member.syncing = member.syncing, None
        if syncing is not None:
            decision.answers.append(Answer(syncing.ticket, SyncGroupResponse(error_code=code)))
            core.touch(group, member, now)


def on_sync_timer(core: Core, group: LiveGroup, decision: Decision, now: Now) -> None:
    """Remove members that joined and have not sent SyncGroup in time."""
    waiting_for = [m for m in group.members.values() if m.member_id in group.unsynced]
    group.unsynced.clear()
    for member in waiting_for:
        remove(core, group, member, decision)
    if waiting_for:
        after_removal(core, group, decision, now)


# -- sessions


def on_session_timer(
    core: Core, group: LiveGroup, member_id: str, decision: Decision, now: Now
) -> None:
    """Remove a member whose session has expired, unless one of its requests waits here."""
    member = group.members.get(member_id)
    if member is None:
        return
    waits = member.joining is not None or member.syncing is not None
    if waits and not member.is_new:
        return
    remove(core, group, member, decision)
    after_removal(core, group, decision, now)


def on_pending_timer(
    core: Core, group: LiveGroup, member_id: str, decision: Decision, now: Now
) -> None:
    """Remove a member id that was given out and not used in time."""
    if member_id in group.pending:
        group.pending.remove(member_id)
        after_pending_gone(core, group, decision, now)


def after_pending_gone(core: Core, group: LiveGroup, decision: Decision, now: Now) -> None:
    """Continue after a pending member id was removed: the join phase may end."""
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_join_if_all_joined(core, group, decision, now)
    else:
        core.forget_if_idle(group)
