"""Conversion of Kafka's quorum requests and responses to and from the core's messages.

All of them concern one partition, `__cluster_metadata-0`. `metalog.quorum.apis` refuses others with
INVALID_REQUEST or UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from metalog.quorum.core.messages import (
    BeginEpochRequested,
    EndEpochRequested,
    EpochAnswered,
    FetchAnswered,
    FetchRequested,
    FindLeader,
    OffsetAndEpoch,
    ReplyEpoch,
    ReplyFetch,
    ReplyVote,
    ReplyVoterUpdate,
    SendEndEpoch,
    SendFetch,
    SendVote,
    VoteAnswered,
    VoteRequested,
    VoterUpdateRequested,
)
from metalog.quorum.core.voters import NOBODY, Endpoints, ReplicaKey, Voter, VoterEndpoint
from metalog.quorum.log import METADATA_TOPIC
from protocol.errors import ErrorCode
from protocol.ids import METADATA_TOPIC_ID, ZERO_UUID
from protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from protocol.messages.vote import VoteRequest, VoteResponse
from protocol.schema import Records


def _leader(leader_id: int | None) -> int:
    return NOBODY if leader_id is None else leader_id


def leader_or_none(leader_id: int) -> int | None:
    return None if leader_id < 0 else leader_id


def _voter(voter_id: int, directory_id: bytes) -> ReplicaKey | None:
    return None if voter_id < 0 else ReplicaKey(voter_id, directory_id)


# --- Vote -------------------------------------------------------------------------------------


def vote_request(
    send: SendVote, cluster_id: str, node: ReplicaKey, voter: ReplicaKey
) -> VoteRequest:
    partition = VoteRequest.PartitionData(
        replica_epoch=send.epoch,
        replica_id=node.id,
        replica_directory_id=node.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=send.last.epoch,
        last_offset=send.last.offset,
        pre_vote=send.pre_vote,
    )
    return VoteRequest(
        cluster_id=cluster_id,
        voter_id=voter.id,
        topics=[VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
    )


def vote_requested(token: int, request: VoteRequest, version: int) -> VoteRequested:
    partition = request.topics[0].partitions[0]
    return VoteRequested(
        token,
        ReplicaKey(partition.replica_id, partition.replica_directory_id),
        partition.replica_epoch,
        OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch),
        partition.pre_vote,
        _voter(request.voter_id, partition.voter_directory_id) if version >= 1 else None,
    )


def vote_response(reply: ReplyVote, leader_endpoint: VoterEndpoint | None) -> VoteResponse:
    partition = VoteResponse.PartitionData(
        error_code=reply.error,
        leader_id=_leader(reply.leader_id),
        leader_epoch=reply.epoch,
        vote_granted=reply.granted,
    )
    response = VoteResponse(
        topics=[VoteResponse.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    )
    if leader_endpoint is not None and reply.leader_id is not None:
        response.node_endpoints = [
            VoteResponse.NodeEndpoint(
                node_id=reply.leader_id, host=leader_endpoint.host, port=leader_endpoint.port
            )
        ]
    return response


def vote_answered(voter_id: int, response: VoteResponse, *, pre_vote: bool) -> VoteAnswered | None:
    """Return the event, None for a response without our partition."""
    if response.error_code or not response.topics or not response.topics[0].partitions:
        return None
    partition = response.topics[0].partitions[0]
    return VoteAnswered(
        voter_id,
        partition.leader_epoch,
        leader_or_none(partition.leader_id),
        partition.vote_granted and not partition.error_code,
        pre_vote,
    )


# --- BeginQuorumEpoch, EndQuorumEpoch ---------------------------------------------------------


def begin_epoch_request(
    epoch: int, cluster_id: str, leader_id: int, voter: ReplicaKey, endpoints: Endpoints
) -> BeginQuorumEpochRequest:
    partition = BeginQuorumEpochRequest.PartitionData(
        voter_directory_id=voter.directory_id, leader_id=leader_id, leader_epoch=epoch
    )
    return BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=voter.id,
        topics=[
            BeginQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        ],
        leader_endpoints=[
            BeginQuorumEpochRequest.LeaderEndpoint(name=name, host=host, port=port)
            for name, (host, port) in endpoints
        ],
    )


def begin_epoch_requested(
    token: int, request: BeginQuorumEpochRequest, version: int
) -> BeginEpochRequested:
    partition = request.topics[0].partitions[0]
    return BeginEpochRequested(
        token,
        partition.leader_id,
        partition.leader_epoch,
        tuple((e.name, VoterEndpoint(e.host, e.port)) for e in request.leader_endpoints),
        _voter(request.voter_id, partition.voter_directory_id) if version >= 1 else None,
    )


def begin_epoch_response(
    reply: ReplyEpoch, leader_endpoint: VoterEndpoint | None
) -> BeginQuorumEpochResponse:
    partition = BeginQuorumEpochResponse.PartitionData(
        error_code=reply.error, leader_id=_leader(reply.leader_id), leader_epoch=reply.epoch
    )
    response = BeginQuorumEpochResponse(
        topics=[
            BeginQuorumEpochResponse.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        ]
    )
    if leader_endpoint is not None and reply.leader_id is not None:
        response.node_endpoints = [
            BeginQuorumEpochResponse.NodeEndpoint(
                node_id=reply.leader_id, host=leader_endpoint.host, port=leader_endpoint.port
            )
        ]
    return response


def end_epoch_request(
    send: SendEndEpoch, cluster_id: str, leader_id: int, endpoints: Endpoints
) -> EndQuorumEpochRequest:
    partition = EndQuorumEpochRequest.PartitionData(
        leader_id=leader_id,
        leader_epoch=send.epoch,
        preferred_successors=[key.id for key in send.preferred],
        preferred_candidates=[
            EndQuorumEpochRequest.ReplicaInfo(
                candidate_id=key.id, candidate_directory_id=key.directory_id
            )
            for key in send.preferred
        ],
    )
    return EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[EndQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[
            EndQuorumEpochRequest.LeaderEndpoint(name=name, host=host, port=port)
            for name, (host, port) in endpoints
        ],
    )


def end_epoch_requested(
    token: int, request: EndQuorumEpochRequest, version: int
) -> EndEpochRequested:
    partition = request.topics[0].partitions[0]
    if version >= 1:
        preferred = tuple(
            ReplicaKey(c.candidate_id, c.candidate_directory_id)
            for c in partition.preferred_candidates
        )
    else:
        preferred = tuple(ReplicaKey(node_id) for node_id in partition.preferred_successors)
    return EndEpochRequested(token, partition.leader_id, partition.leader_epoch, preferred)


def end_epoch_response(
    reply: ReplyEpoch, leader_endpoint: VoterEndpoint | None
) -> EndQuorumEpochResponse:
    partition = EndQuorumEpochResponse.PartitionData(
        error_code=reply.error, leader_id=_leader(reply.leader_id), leader_epoch=reply.epoch
    )
    response = EndQuorumEpochResponse(
        topics=[EndQuorumEpochResponse.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    )
    if leader_endpoint is not None and reply.leader_id is not None:
        response.node_endpoints = [
            EndQuorumEpochResponse.NodeEndpoint(
                node_id=reply.leader_id, host=leader_endpoint.host, port=leader_endpoint.port
            )
        ]
    return response


def epoch_answered(
    voter_id: int, response: BeginQuorumEpochResponse | EndQuorumEpochResponse
) -> EpochAnswered | None:
    """Return the event, None for a response without our partition."""
    if response.error_code or not response.topics or not response.topics[0].partitions:
        return None
    partition = response.topics[0].partitions[0]
    return EpochAnswered(
        voter_id,
        partition.leader_epoch,
        leader_or_none(partition.leader_id),
        begin=isinstance(response, BeginQuorumEpochResponse),
        ok=not partition.error_code,
    )


# --- Fetch ------------------------------------------------------------------------------------


def fetch_request(
    send: SendFetch | FindLeader,
    cluster_id: str,
    node: ReplicaKey,
    *,
    max_bytes: int,
    max_wait_ms: int,
    high_watermark: int,
) -> FetchRequest:
    partition = FetchRequest.FetchPartition(
        partition=0,
        current_leader_epoch=send.epoch,
        fetch_offset=send.fetch_offset,
        last_fetched_epoch=send.last_epoch,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
        replica_directory_id=node.directory_id,
        high_watermark=high_watermark,
    )
    return FetchRequest(
        cluster_id=cluster_id,
        replica_state=FetchRequest.ReplicaState(replica_id=node.id, replica_epoch=-1),
        max_wait_ms=max_wait_ms,
        min_bytes=0,
        max_bytes=max_bytes,
        topics=[
            FetchRequest.FetchTopic(
                topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
            )
        ],
    )


def fetch_requested(token: int, request: FetchRequest) -> FetchRequested:
    partition = request.topics[0].partitions[0]
    replica_id = request.replica_state.replica_id
    if replica_id < 0:
        replica_id = request.replica_id
    return FetchRequested(
        token,
        ReplicaKey(replica_id, partition.replica_directory_id),
        partition.current_leader_epoch,
        partition.fetch_offset,
        partition.last_fetched_epoch,
    )


def fetch_response(
    reply: ReplyFetch,
    *,
    high_watermark: int | None,
    log_start_offset: int,
    records: Records,
    leader_endpoint: VoterEndpoint | None,
) -> FetchResponse:
    partition = FetchResponse.PartitionData(
        partition_index=0,
        error_code=reply.error,
        high_watermark=-1 if high_watermark is None else high_watermark,
        last_stable_offset=-1,
        log_start_offset=log_start_offset,
        current_leader=FetchResponse.LeaderIdAndEpoch(
            leader_id=_leader(reply.leader_id), leader_epoch=reply.epoch
        ),
        records=records,
    )
    if reply.diverging is not None:
        partition.diverging_epoch = FetchResponse.EpochEndOffset(
            epoch=reply.diverging.epoch, end_offset=reply.diverging.offset
        )
    if reply.snapshot is not None:
        partition.snapshot_id = FetchResponse.SnapshotId(
            end_offset=reply.snapshot.offset, epoch=reply.snapshot.epoch
        )
    response = FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
            )
        ]
    )
    if leader_endpoint is not None and reply.leader_id is not None:
        response.node_endpoints = [
            FetchResponse.NodeEndpoint(
                node_id=reply.leader_id, host=leader_endpoint.host, port=leader_endpoint.port
            )
        ]
    return response


def fetch_answered(
    fetch_id: int, node_id: int, response: FetchResponse
) -> tuple[FetchAnswered, Records] | None:
    """Return the event and the batches in the response; None without our partition."""
    if response.error_code or not response.responses or not response.responses[0].partitions:
        return None
    partition = response.responses[0].partitions[0]
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    records = partition.records or b""
    size_bytes = sum(map(len, records)) if isinstance(records, list) else len(records)
    answered = FetchAnswered(
        fetch_id,
        node_id,
        partition.current_leader.leader_epoch,
        leader_or_none(partition.current_leader.leader_id),
        ErrorCode(partition.error_code),
        partition.high_watermark,
        OffsetAndEpoch(diverging.end_offset, diverging.epoch) if diverging.epoch >= 0 else None,
        OffsetAndEpoch(snapshot.end_offset, snapshot.epoch) if snapshot.epoch >= 0 else None,
        size_bytes,
        tuple(
            (node.node_id, VoterEndpoint(node.host, node.port)) for node in response.node_endpoints
        ),
    )
    return answered, records


# --- UpdateRaftVoter --------------------------------------------------------------------------


def update_voter_request(voter: Voter, cluster_id: str, epoch: int) -> UpdateRaftVoterRequest:
    return UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=epoch,
        voter_id=voter.id,
        voter_directory_id=voter.key.directory_id,
        listeners=[
            UpdateRaftVoterRequest.Listener(name=name, host=host, port=port)
            for name, (host, port) in voter.endpoints
        ],
        kraft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(
            min_supported_version=voter.kraft_version_min,
            max_supported_version=voter.kraft_version_max,
        ),
    )


def voter_update_requested(token: int, request: UpdateRaftVoterRequest) -> VoterUpdateRequested:
    voter = Voter(
        ReplicaKey(request.voter_id, request.voter_directory_id),
        tuple((e.name, VoterEndpoint(e.host, e.port)) for e in request.listeners),
        request.kraft_version_feature.min_supported_version,
        request.kraft_version_feature.max_supported_version,
    )
    return VoterUpdateRequested(token, request.current_leader_epoch, voter)


def update_voter_response(
    reply: ReplyVoterUpdate, leader_endpoint: VoterEndpoint | None
) -> UpdateRaftVoterResponse:
    response = UpdateRaftVoterResponse(error_code=reply.error)
    leader = response.current_leader
    leader.leader_id, leader.leader_epoch = _leader(reply.leader_id), reply.epoch
    if leader_endpoint is not None and reply.leader_id is not None:
        leader.host, leader.port = leader_endpoint
    return response


# --- FetchSnapshot ----------------------------------------------------------------------------


def fetch_snapshot_request(
    snapshot_id: OffsetAndEpoch,
    *,
    cluster_id: str,
    node: ReplicaKey,
    epoch: int,
    position: int,
    max_bytes: int,
) -> FetchSnapshotRequest:
    partition = FetchSnapshotRequest.PartitionSnapshot(
        partition=0,
        current_leader_epoch=epoch,
        snapshot_id=FetchSnapshotRequest.SnapshotId(
            end_offset=snapshot_id.offset, epoch=snapshot_id.epoch
        ),
        position=position,
        replica_directory_id=node.directory_id or ZERO_UUID,
    )
    return FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=node.id,
        max_bytes=max_bytes,
        topics=[FetchSnapshotRequest.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )
