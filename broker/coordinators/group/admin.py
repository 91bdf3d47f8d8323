"""ListGroups, DescribeGroups and DeleteGroups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.coordinators.group.core import Core
from broker.coordinators.group.decision import Decision
from broker.coordinators.group.live_group import LiveGroup
from broker.coordinators.group.records import GroupRecord, OffsetRecord, ParsedRecord
from broker.coordinators.group.states import GroupState
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsResponse
from protocol.messages.describe_groups import DescribeGroupsResponse
from protocol.messages.list_groups import ListGroupsResponse

GROUP_TYPE: Final = "classic"
"""Type of these groups in ListGroups."""

_NOT_FOUND_IS_AN_ERROR_FROM: Final = 6


# -- ListGroups


def list_groups(
    core: Core, states: frozenset[str], types: frozenset[str]
) -> list[ListGroupsResponse.ListedGroup]:
    """Return the groups in one of `states` and of one of `types` (lower case; empty: all)."""
    if types and GROUP_TYPE not in types:
        return []
    return [
        ListGroupsResponse.ListedGroup(
            group_id=group_id,
            protocol_type=protocol_type,
            group_state=state.value,
            group_type=GROUP_TYPE,
        )
        for group_id, protocol_type, state in _visible_groups(core)
        if not states or state.value.lower() in states
    ]


def _visible_groups(core: Core) -> Iterator[tuple[str, str, GroupState]]:
    """Yield the groups with members, pending members or a committed record, and those with offsets
    alone."""
    for group_id, group in core.groups.items():
        lives = group.state is not GroupState.EMPTY or group.pending
        if lives or core.committed.has_group(group_id):
            yield group_id, group.protocol_type or "", group.state
    state = core.committed
    for group_id in {**state.offsets, **state.transactions.offsets}:
        if group_id not in core.groups and group_id not in core.committed.foreign:
            yield group_id, "", GroupState.EMPTY


def count_by_state(core: Core) -> dict[GroupState, int]:
    """Return the number of groups in each state, for metrics."""
    counts = dict.fromkeys(GroupState, 0)
    for _, _, state in _visible_groups(core):
        counts[state] += 1
    return counts


# -- DescribeGroups


def describe_group(
    core: Core, group_id: str, version: int
) -> DescribeGroupsResponse.DescribedGroup:
    """Return the description of one group. Members' metadata is included if the group is stable."""
    group = core.groups.get(group_id)
    if group is None:
        has_offsets = core.committed.has_offsets(group_id)
        if has_offsets and group_id not in core.committed.foreign:
            return DescribeGroupsResponse.DescribedGroup(
                group_id=group_id, group_state=GroupState.EMPTY.value
            )
        return _not_found(core, group_id, version)
    stable = group.state is GroupState.STABLE
    return DescribeGroupsResponse.DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=_described_members(group, with_metadata=stable),
    )


def describe_error(group_id: str, code: ErrorCode) -> DescribeGroupsResponse.DescribedGroup:
    return DescribeGroupsResponse.DescribedGroup(group_id=group_id, error_code=code)


def _not_found(core: Core, group_id: str, version: int) -> DescribeGroupsResponse.DescribedGroup:
    """Return the description of a missing group: "Dead" for older clients, an error for newer
    ones."""
    described = DescribeGroupsResponse.DescribedGroup(
        group_id=group_id, group_state=GroupState.DEAD.value
    )
    if version >= _NOT_FOUND_IS_AN_ERROR_FROM:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = f"Group {group_id} not found."
        if group_id in core.committed.foreign:
            described.error_message = f"Group {group_id} is not a classic group."
    return described


def _described_members(
    group: LiveGroup, *, with_metadata: bool
) -> list[DescribeGroupsResponse.DescribedGroupMember]:
    return [
        DescribeGroupsResponse.DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol) if with_metadata else b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]


# -- DeleteGroups


def decide_delete_group(core: Core, group_id: str) -> Decision:
    """Delete a group without members and all its offsets. The reply has one result."""
    code = _delete_refusal(core, group_id)
    decision = Decision(reply=delete_result(group_id, code or ErrorCode.NONE))
    if code is not ErrorCode.NON_EMPTY_GROUP:
        decision.on_failure = lambda code: delete_result(group_id, code)
    if code is not None:
        return decision
    # A tombstone also removes pending offsets.
    offsets = {*core.appended.offsets_of(group_id), *core.appended.pending_of(group_id)}
    records: list[ParsedRecord] = [OffsetRecord(group_id, at, None) for at in sorted(offsets)]
    core.counters.offset_deletions += len(records)
    if group_id in core.appended.groups:
        records.append(GroupRecord(group_id, None))
    decision.records = [*records]
    return decision


def delete_result(group_id: str, code: ErrorCode) -> DeleteGroupsResponse:
    """Return a response for this one group; the handler joins those of all requested groups.

    A refused group has a message, which version 3 sends.
    """
    result = DeleteGroupsResponse.DeletableGroupResult(
        group_id=group_id, error_code=code, error_message=code.text if code else None
    )
    return DeleteGroupsResponse(results=[result])


def _delete_refusal(core: Core, group_id: str) -> ErrorCode | None:
    group = core.groups.get(group_id)
    if group is not None and group.state is not GroupState.EMPTY:
        return ErrorCode.NON_EMPTY_GROUP
    known = group_id in core.appended.groups or core.appended.has_offsets(group_id)
    if group_id in core.appended.foreign or (group is None and not known):
        return ErrorCode.GROUP_ID_NOT_FOUND
    return None
