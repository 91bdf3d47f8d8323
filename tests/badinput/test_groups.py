"""Groups: B15 (hostile names), B33 (group ids), B37 and B38 of the catalogue."""

from __future__ import annotations

import time
from typing import Any

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.messages.sync_group import SyncGroupRequest
from testkit.processes.peer import Peer, Target, Topic

E = ErrorCode
Protocol = JoinGroupRequest.JoinGroupRequestProtocol
NO_PROTOCOLS: list[Protocol] = []


@pytest.fixture(scope="module")
def groups(target: Target) -> Target:
    """Return the target once its coordinator is available."""
    deadline = time.monotonic() + 20.0
    with target.connect() as peer:
        while True:
            found = peer.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
            if not found.error_code:
                break
            assert time.monotonic() < deadline, found
            time.sleep(0.01)
        while True:
            beat = peer.ask(HeartbeatRequest(group_id="g", member_id="m", generation_id=1), 4)
            if E(beat.error_code) is E.UNKNOWN_MEMBER_ID:
                return target
            assert time.monotonic() < deadline, beat
            time.sleep(0.01)


def join_request(
    group_id: str,
    *,
    member_id: str = "",
    session_timeout_ms: int = 10_000,
    rebalance_timeout_ms: int = 10_000,
    protocol_type: str = "consumer",
    protocols: list[Protocol] | None = None,
) -> JoinGroupRequest:
    if protocols is None:
        protocols = [Protocol(name="range", metadata=b"m")]
    return JoinGroupRequest(
        group_id=group_id,
        member_id=member_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=protocol_type,
        protocols=protocols,
    )


def join(peer: Peer, group_id: str, *, version: int = 5, **how: Any) -> JoinGroupResponse:
    return peer.ask(join_request(group_id, **how), version)


def member(peer: Peer, group_id: str, **how: Any) -> JoinGroupResponse:
    """Join as a member: the first request returns an id, the second joins with it."""
    first = join(peer, group_id, **how)
    assert E(first.error_code) is E.MEMBER_ID_REQUIRED, first
    return join(peer, group_id, member_id=first.member_id, **how)


def test_b37_no_protocols(groups: Target) -> None:
    with groups.connect() as peer:
        for protocols, kind in ((NO_PROTOCOLS, "consumer"), (None, "")):
            answer = join(
                peer, groups.new_name("g"), protocols=protocols, protocol_type=kind, version=3
            )
            assert E(answer.error_code) is E.INCONSISTENT_GROUP_PROTOCOL


def test_b37_a_megabyte_of_metadata(groups: Target) -> None:
    with groups.connect() as peer:
        group_id = groups.new_name("g")
        # The coordinator writes the group as one record, which has to fit a batch.
        joined = member(
            peer, group_id, protocols=[Protocol(name="range", metadata=bytes(1_048_576))]
        )
        assert E(joined.error_code) is E.NONE
        sync = SyncGroupRequest(
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=joined.member_id, assignment=bytes(1_048_576)
                )
            ],
        )
        assert E(peer.ask(sync, 4).error_code) is E.UNKNOWN_SERVER_ERROR
        peer.works()


@pytest.mark.parametrize("timeout_ms", [0, -1, 5_999, 1_800_001, 2**31 - 1, -(2**31)])
def test_b37_session_timeouts_out_of_range(groups: Target, timeout_ms: int) -> None:
    with groups.connect() as peer:
        answer = join(peer, groups.new_name("g"), session_timeout_ms=timeout_ms)
        assert E(answer.error_code) is E.INVALID_SESSION_TIMEOUT


def test_b37_another_protocol_type_or_no_common_protocol(groups: Target) -> None:
    group_id = groups.new_name("g")
    with groups.connect() as one, groups.connect() as two:
        assert E(member(one, group_id).error_code) is E.NONE
        for how in (
            {"protocol_type": "connect"},
            {"protocols": [Protocol(name="sticky", metadata=b"")]},
        ):
            answer = join(two, group_id, **how)
            assert E(answer.error_code) is E.INCONSISTENT_GROUP_PROTOCOL


def test_b37_more_members_than_allowed(groups: Target) -> None:
    group_id = groups.new_name("g")
    with groups.connect() as one, groups.connect() as two, groups.connect() as three:
        ids = [join(peer, group_id).member_id for peer in (one, two, three)]
        assert E(join(one, group_id, member_id=ids[0]).error_code) is E.NONE
        two.ask_later(join_request(group_id, member_id=ids[1]), 5)
        describe = DescribeGroupsRequest(groups=[group_id])
        deadline = time.monotonic() + 10.0
        while len(three.ask(describe, 5).groups[0].members) < 2:
            assert time.monotonic() < deadline
        assert E(join(one, group_id, member_id=ids[0]).error_code) is E.NONE
        assert E(two.answer(ApiKey.JOIN_GROUP, 5)[1].error_code) is E.NONE
        answer = join(three, group_id, member_id=ids[2])
        assert E(answer.error_code) is E.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("version", [3, 5])
def test_b38_empty_group_id(groups: Target, version: int) -> None:
    with groups.connect() as peer:
        assert E(join(peer, "", version=version).error_code) is E.INVALID_GROUP_ID
        beat = HeartbeatRequest(group_id="", member_id="m", generation_id=1)
        assert E(peer.ask(beat, 4).error_code) in (E.INVALID_GROUP_ID, E.UNKNOWN_MEMBER_ID)


def test_b38_the_empty_group_id_has_no_offsets_to_delete(groups: Target) -> None:
    with groups.connect() as peer:
        answer = peer.ask(OffsetDeleteRequest(group_id=""), 0)
        assert (E(answer.error_code), answer.topics) == (E.INVALID_GROUP_ID, [])


def test_b38_members_that_do_not_exist(groups: Target) -> None:
    group_id = groups.new_name("g")
    with groups.connect() as peer:
        for group in (group_id, groups.new_name("g")):
            answer = join(peer, group, member_id="never-issued")
            assert E(answer.error_code) is E.UNKNOWN_MEMBER_ID
            beat = HeartbeatRequest(group_id=group, member_id="never-issued", generation_id=1)
            assert E(peer.ask(beat, 4).error_code) is E.UNKNOWN_MEMBER_ID
            sync = SyncGroupRequest(group_id=group, member_id="never-issued", generation_id=1)
            assert E(peer.ask(sync, 4).error_code) is E.UNKNOWN_MEMBER_ID
            leave = LeaveGroupRequest(
                group_id=group, members=[LeaveGroupRequest.MemberIdentity(member_id="never")]
            )
            (left,) = peer.ask(leave, 4).members
            assert E(left.error_code) is E.UNKNOWN_MEMBER_ID
        joined = member(peer, group_id)
        assert E(joined.error_code) is E.NONE
        for generation in (0, joined.generation_id + 1, -1, 2**31 - 1):
            beat = HeartbeatRequest(
                group_id=group_id, member_id=joined.member_id, generation_id=generation
            )
            assert E(peer.ask(beat, 4).error_code) is E.ILLEGAL_GENERATION


def commit(
    topic: Topic, group_id: str, *, partition: int = 0, offset: int = 1, metadata: str | None = ""
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_metadata=metadata,
                    )
                ],
            )
        ],
    )


def commit_code(peer: Peer, request: OffsetCommitRequest) -> ErrorCode:
    (topic,) = peer.ask(request, 8).topics
    (partition,) = topic.partitions
    return E(partition.error_code)


def test_b38_metadata_of_commits(groups: Target) -> None:
    topic = groups.topic()
    group_id = groups.new_name("g")
    with groups.connect() as peer:
        over = commit(topic, group_id, metadata="m" * 4097)
        assert commit_code(peer, over) is E.OFFSET_METADATA_TOO_LARGE
        most = commit(topic, group_id, metadata="m" * 4096)
        assert commit_code(peer, most) is E.NONE
        assert commit_code(peer, commit(topic, group_id, metadata=None)) is E.NONE


def test_b38_commits_to_what_does_not_exist(groups: Target) -> None:
    topic = groups.topic()
    group_id = groups.new_name("g")
    with groups.connect() as peer:
        for partition in (-1, 1, 2**31 - 1):
            request = commit(topic, group_id, partition=partition)
            assert commit_code(peer, request) is E.UNKNOWN_TOPIC_OR_PARTITION
        nowhere = commit(Topic("no-such-topic", bytes(16)), group_id)
        assert commit_code(peer, nowhere) is E.UNKNOWN_TOPIC_OR_PARTITION
        for member_id in ("ghost", ""):
            request = commit(topic, group_id)
            request.member_id, request.generation_id_or_member_epoch = member_id, 3
            assert commit_code(peer, request) is E.ILLEGAL_GENERATION
        assert E(member(peer, group_id).error_code) is E.NONE
        request.member_id = "ghost"
        assert commit_code(peer, request) is E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "group_id", ["../../etc/x", "a/b", "a\x00b", "\x1b[31m\n", "日本", "g" * 32_000]
)
def test_b33_strange_group_ids_work(groups: Target, group_id: str) -> None:
    topic = groups.topic()
    with groups.connect() as peer:
        assert commit_code(peer, commit(topic, group_id, offset=7)) is E.NONE
        request = OffsetFetchRequest(
            group_id=group_id,
            topics=[
                OffsetFetchRequest.OffsetFetchRequestTopic(name=topic.name, partition_indexes=[0])
            ],
        )
        (one,) = peer.ask(request, 7).topics
        assert one.partitions[0].committed_offset == 7
