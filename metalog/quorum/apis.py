"""Shell: Handlers of the quorum's APIs on controller listeners.

Each handler checks the destination (cluster id, topic, partition), passes an event to the core and
returns the core's answer. If the core must persist state first, the answer is a future. A Fetch
waits for new data, up to the replica's maximum wait.

Versions are Kafka 4.3's: Vote 0-2, BeginQuorumEpoch and EndQuorumEpoch 0-1, Fetch, FetchSnapshot
0-1, DescribeQuorum 0-2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from metalog.quorum import wire
from metalog.quorum.core.messages import (
    OffsetAndEpoch,
    ReplyEpoch,
    ReplyFetch,
    ReplyVote,
    ReplyVoterUpdate,
)
from metalog.quorum.core.roles import Progress
from metalog.quorum.core.voters import Endpoints, ReplicaKey, Voter, VoterEndpoint
from metalog.quorum.log import METADATA_TOPIC
from metalog.quorum.node import QuorumNode
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.ids import METADATA_TOPIC_ID
from protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from protocol.messages.update_raft_voter import (
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from protocol.messages.vote import VoteRequest, VoteResponse
from protocol.transport.dispatch import HandlerTable, RequestContext

R = TypeVar("R")
MaybeLater: TypeAlias = R | asyncio.Future[R]

DIRECTORIES_SINCE = 2
"""First version of DescribeQuorum with directory ids and the voters' endpoints (KIP-853)."""

FETCH_ENDPOINTS_SINCE = 16
"""First version of Fetch whose response contains the leader's endpoint (KIP-951)."""

FETCH_VERSION_MAX = 18
"""Higher versions are for brokers only."""

FETCH_BYTES_MAX = 8 << 20
"""Limit of records in one response, whatever the replica requests; a larger first batch is
whole."""


def register_quorum_apis(table: HandlerTable, node: QuorumNode) -> None:
    """Register the quorum's APIs in a controller's handler table."""
    apis = QuorumApis(node)
    table.register(ApiKey.VOTE, apis.vote)
    table.register(ApiKey.BEGIN_QUORUM_EPOCH, apis.begin_quorum_epoch)
    table.register(ApiKey.END_QUORUM_EPOCH, apis.end_quorum_epoch)
    table.register(ApiKey.DESCRIBE_QUORUM, apis.describe_quorum)
    table.register(ApiKey.FETCH, apis.fetch, max_version=FETCH_VERSION_MAX)
    table.register(ApiKey.FETCH_SNAPSHOT, apis.fetch_snapshot)
    table.register(ApiKey.UPDATE_RAFT_VOTER, apis.update_raft_voter)


class QuorumApis:
    """The handlers of one node."""

    def __init__(self, node: QuorumNode) -> None:
        self._node = node

    def _request_error(self, request: Any) -> ErrorCode:
        """Return the error of a request for another cluster or partition, else NONE."""
        if request.cluster_id is not None and request.cluster_id != self._node.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        topics = request.topics
        if len(topics) != 1 or len(topics[0].partitions) != 1:
            return ErrorCode.INVALID_REQUEST
        name = getattr(topics[0], "topic_name", METADATA_TOPIC)
        index = getattr(topics[0].partitions[0], "partition_index", 0)
        if name != METADATA_TOPIC or index != 0:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _ask(self, make: Callable[[int], Any], respond: Callable[[Any], R]) -> MaybeLater[R]:
        """Return the response, or a future of it while the core's answer waits for the disk."""
        ready: list[R] = []
        later: asyncio.Future[R] | None = None

        def then(answer: Any) -> None:
            if later is None:
                ready.append(respond(answer))
            elif not later.done():
                _set_response(later, respond, answer)

        self._node.driver.request(make, then)
        if ready:
            return ready[0]
        later = asyncio.get_running_loop().create_future()
        return later

    def _leader_endpoint(self, version: int, since: int) -> VoterEndpoint | None:
        """Return the leader's endpoint, for a response that has it from version `since` on."""
        return self._node.leader_endpoint() if version >= since else None

    # --- elections ----------------------------------------------------------------------------

    def vote(self, context: RequestContext, request: VoteRequest) -> MaybeLater[VoteResponse]:
        error = self._request_error(request)
        if error is not ErrorCode.NONE:
            return VoteResponse(error_code=error)
        version = context.api_version

        def respond(reply: ReplyVote) -> VoteResponse:
            return wire.vote_response(reply, self._leader_endpoint(version, 1))

        return self._ask(lambda token: wire.vote_requested(token, request, version), respond)

    def begin_quorum_epoch(
        self, context: RequestContext, request: BeginQuorumEpochRequest
    ) -> MaybeLater[BeginQuorumEpochResponse]:
        error = self._request_error(request)
        if error is not ErrorCode.NONE:
            return BeginQuorumEpochResponse(error_code=error)
        version = context.api_version

        def respond(reply: ReplyEpoch) -> BeginQuorumEpochResponse:
            return wire.begin_epoch_response(reply, self._leader_endpoint(version, 1))

        return self._ask(lambda token: wire.begin_epoch_requested(token, request, version), respond)

    def end_quorum_epoch(
        self, context: RequestContext, request: EndQuorumEpochRequest
    ) -> MaybeLater[EndQuorumEpochResponse]:
        error = self._request_error(request)
        if error is not ErrorCode.NONE:
            return EndQuorumEpochResponse(error_code=error)
        version = context.api_version

        def respond(reply: ReplyEpoch) -> EndQuorumEpochResponse:
            return wire.end_epoch_response(reply, self._leader_endpoint(version, 1))

        return self._ask(lambda token: wire.end_epoch_requested(token, request, version), respond)

    # --- replication --------------------------------------------------------------------------

    def fetch(self, context: RequestContext, request: FetchRequest) -> MaybeLater[FetchResponse]:
        """Serve a fetch of the metadata log by a voter, an observer, or a tool."""
        error = self._fetch_error(context, request)
        if error is not ErrorCode.NONE:
            return FetchResponse(error_code=error)
        idle = False

        def respond(reply: ReplyFetch) -> FetchResponse:
            nonlocal idle
            response = self._fetch_response(reply, request, context.api_version)
            idle = self._is_idle(reply, request, response)
            return response

        answer = self._ask(lambda token: wire.fetch_requested(token, request), respond)
        if idle and request.max_wait_ms > 0:
            return _WaitingFetch(self, request, context.api_version).future
        return answer

    def _fetch_error(self, context: RequestContext, request: FetchRequest) -> ErrorCode:
        error = self._request_error(request)
        if error is not ErrorCode.NONE:
            return error
        topic = request.topics[0]
        partition = topic.partitions[0]
        ours = (
            topic.topic_id == METADATA_TOPIC_ID
            if context.api_version >= 13
            else topic.topic == METADATA_TOPIC
        )
        numbers = (partition.fetch_offset, partition.last_fetched_epoch, request.max_wait_ms)
        if not ours or partition.partition != 0 or min(numbers) < 0:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _is_idle(self, reply: ReplyFetch, request: FetchRequest, response: FetchResponse) -> bool:
        """Return whether there is nothing new: no error, no records, no higher high watermark."""
        known = request.topics[0].partitions[0].high_watermark
        news = (self._node.core.shown_high_watermark or -1) > known
        special = reply.error or reply.diverging is not None or reply.snapshot is not None
        return not special and not news and not response.responses[0].partitions[0].records

    def _fetch_response(
        self, reply: ReplyFetch, request: FetchRequest, version: int
    ) -> FetchResponse:
        node = self._node
        records = b""
        if not reply.error and reply.diverging is None and reply.snapshot is None:
            partition = request.topics[0].partitions[0]
            limit = min(request.max_bytes, partition.partition_max_bytes, FETCH_BYTES_MAX)
            records = node.read_log(reply.fetch_offset, max(1, limit))
        return wire.fetch_response(
            reply,
            high_watermark=node.core.shown_high_watermark,
            log_start_offset=node.log.start_offset,
            records=records,
            leader_endpoint=self._leader_endpoint(version, FETCH_ENDPOINTS_SINCE),
        )

    def fetch_snapshot(
        self, context: RequestContext, request: FetchSnapshotRequest
    ) -> FetchSnapshotResponse:
        """Serve a part of a snapshot file, from a byte position on."""
        node = self._node
        if request.cluster_id is not None and request.cluster_id != node.cluster_id:
            return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        topics = request.topics
        if len(topics) != 1 or len(topics[0].partitions) != 1 or topics[0].name != METADATA_TOPIC:
            return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
        requested = topics[0].partitions[0]
        leader_id, epoch = node.leader()
        snapshot_id = OffsetAndEpoch(requested.snapshot_id.end_offset, requested.snapshot_id.epoch)
        partition = FetchSnapshotResponse.PartitionSnapshot(
            index=requested.partition,
            snapshot_id=FetchSnapshotResponse.SnapshotId(
                end_offset=snapshot_id.offset, epoch=snapshot_id.epoch
            ),
            current_leader=FetchSnapshotResponse.LeaderIdAndEpoch(
                leader_id=-1 if leader_id is None else leader_id, leader_epoch=epoch
            ),
        )
        partition.error_code = self._snapshot_error(requested, snapshot_id)
        if not partition.error_code:
            replica = ReplicaKey(request.replica_id, requested.replica_directory_id)
            node.snapshot_requested(replica)
            partition.size = node.log.snapshots.size(snapshot_id) or 0
            partition.position = requested.position
            limit = max(1, min(request.max_bytes, FETCH_BYTES_MAX))
            partition.unaligned_records = node.log.snapshots.read(
                snapshot_id, requested.position, limit
            )
        response = FetchSnapshotResponse(
            topics=[
                FetchSnapshotResponse.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
            ]
        )
        endpoint = self._leader_endpoint(context.api_version, 1)
        if endpoint is not None and leader_id is not None:
            response.node_endpoints = [
                FetchSnapshotResponse.NodeEndpoint(
                    node_id=leader_id, host=endpoint.host, port=endpoint.port
                )
            ]
        return response

    def _snapshot_error(
        self, requested: FetchSnapshotRequest.PartitionSnapshot, snapshot_id: OffsetAndEpoch
    ) -> ErrorCode:
        node = self._node
        _, epoch = node.leader()
        if requested.partition != 0:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if requested.current_leader_epoch < epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if requested.current_leader_epoch > epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not node.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        size = node.log.snapshots.size(snapshot_id)
        if size is None:
            return ErrorCode.SNAPSHOT_NOT_FOUND
        if not 0 <= requested.position < size:
            return ErrorCode.POSITION_OUT_OF_RANGE
        return ErrorCode.NONE

    # --- membership ---------------------------------------------------------------------------

    def update_raft_voter(
        self, context: RequestContext, request: UpdateRaftVoterRequest
    ) -> MaybeLater[UpdateRaftVoterResponse]:
        """Update a voter's endpoints; answered once they are committed (KIP-853)."""
        if request.cluster_id is not None and request.cluster_id != self._node.cluster_id:
            leader_id, epoch = self._node.leader()
            refused = ReplyVoterUpdate(0, ErrorCode.INCONSISTENT_CLUSTER_ID, epoch, leader_id)
            return wire.update_voter_response(refused, self._node.leader_endpoint())
        return _WaitingUpdate(self._node, request).future

    # --- describing ---------------------------------------------------------------------------

    def describe_quorum(
        self, context: RequestContext, request: DescribeQuorumRequest
    ) -> DescribeQuorumResponse:
        """Describe the quorum: KIP-595, KIP-836 (timestamps), KIP-853 (directory ids, nodes)."""
        requested = [
            (topic.topic_name, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        ]
        alone = requested == [(METADATA_TOPIC, 0)]
        response = DescribeQuorumResponse()
        for topic in request.topics:
            partitions = [
                self._describe(context.api_version) if alone else _unknown_partition(partition)
                for partition in topic.partitions
            ]
            response.topics.append(
                DescribeQuorumResponse.TopicData(topic_name=topic.topic_name, partitions=partitions)
            )
        if alone and self._node.is_leader and context.api_version >= DIRECTORIES_SINCE:
            response.nodes = self._nodes()
        return response

    def _describe(self, version: int) -> DescribeQuorumResponse.PartitionData:
        """Return the state of the quorum's partition.

        Voters have the key in the voter set. Static voters have no directory id there, as in Kafka,
        although their fetches contain one.
        """
        node = self._node
        leader_id, epoch = node.leader()
        partition = DescribeQuorumResponse.PartitionData(
            partition_index=0, leader_id=-1 if leader_id is None else leader_id
        )
        partition.leader_epoch = epoch
        if not node.is_leader:
            partition.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return partition
        partition.high_watermark = -1 if node.high_watermark is None else node.high_watermark
        replicas = dict(node.core.replicas)
        for voter in node.voters:
            progress = _pop_progress(replicas, voter.key)
            partition.current_voters.append(self._replica_state(voter.key, progress))
        partition.observers = [
            self._replica_state(key, progress)
            for key, progress in sorted(replicas.items(), key=lambda item: item[0])
        ]
        if version < DIRECTORIES_SINCE:
            for state in (*partition.current_voters, *partition.observers):
                state.replica_directory_id = bytes(16)
        return partition

    def _replica_state(
        self, key: ReplicaKey, progress: Progress | None
    ) -> DescribeQuorumResponse.ReplicaState:
        node = self._node
        state = DescribeQuorumResponse.ReplicaState(
            replica_id=key.id, replica_directory_id=key.directory_id, log_end_offset=-1
        )
        if key.id == node.node_id:
            now_ms = node.wall_ms(None)
            state.log_end_offset = node.log_end_offset
            state.last_fetch_timestamp = state.last_caught_up_timestamp = now_ms
        elif progress is not None:
            state.log_end_offset = progress.end_offset
            if progress.fetch_ms is not None:
                state.last_fetch_timestamp = node.wall_ms(progress.fetch_ms)
            if progress.caught_up_ms is not None:
                state.last_caught_up_timestamp = node.wall_ms(progress.caught_up_ms)
        return state

    def _nodes(self) -> list[DescribeQuorumResponse.Node]:
        return [
            DescribeQuorumResponse.Node(
                node_id=voter.id,
                listeners=[
                    DescribeQuorumResponse.Listener(name=name, host=host, port=port)
                    for name, (host, port) in self._endpoints(voter)
                ],
            )
            for voter in self._node.voters
        ]

    def _endpoints(self, voter: Voter) -> Endpoints:
        """Return a voter's endpoints; this node's own may have ports that the kernel assigned."""
        own = voter.id == self._node.node_id
        return self._node.endpoints if own and self._node.endpoints else voter.endpoints


def _set_response(future: asyncio.Future[R], respond: Callable[[Any], R], answer: Any) -> None:
    """Set the response of a waiting request.

    An error belongs to that request alone: the caller is a timer, or appends for another request.
    """
    try:
        future.set_result(respond(answer))
    except Exception as error:  # noqa: BLE001 - the transport answers and counts it
        future.set_exception(error)


def _pop_progress(replicas: dict[ReplicaKey, Progress], voter: ReplicaKey) -> Progress | None:
    """Remove a voter's progress from `replicas` and return it, None without one."""
    found = next((key for key in replicas if key.matches(voter)), None)
    return None if found is None else replicas.pop(found)


class _WaitingUpdate:
    """An update of a voter's entry, answered when it is refused or committed."""

    def __init__(self, node: QuorumNode, request: UpdateRaftVoterRequest) -> None:
        self._node = node
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[UpdateRaftVoterResponse] = loop.create_future()
        node.driver.request(
            lambda token: wire.voter_update_requested(token, request), self._decided
        )

    def _decided(self, reply: ReplyVoterUpdate) -> None:
        if self.future.done():
            return
        node = self._node
        self._response = wire.update_voter_response(reply, node.leader_endpoint())
        self._epoch = reply.epoch
        if not reply.appended:
            self._answer(reply.error)
            return
        self._offset = node.log.voters_offset
        wait_s = node.config.timing.request_timeout_ms / 1000.0
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(wait_s, self._answer, ErrorCode.REQUEST_TIMED_OUT)
        self._forget = node.watchers.watch_log(self._check)
        self.future.add_done_callback(self._done)
        self._check()

    def _done(self, future: asyncio.Future[UpdateRaftVoterResponse]) -> None:
        self._timer.cancel()
        self._forget()

    def _check(self) -> None:
        if not self._node.is_leader or self._node.leader()[1] != self._epoch:
            self._answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif (self._node.high_watermark or 0) > self._offset:
            self._answer(ErrorCode.NONE)

    def _answer(self, error: ErrorCode) -> None:
        if not self.future.done():
            self._response.error_code = error
            self.future.set_result(self._response)


class _WaitingFetch:
    """A fetch that waits for records, for a higher high watermark, or for its timeout."""

    def __init__(self, apis: QuorumApis, request: FetchRequest, version: int) -> None:
        self._apis = apis
        self._request = request
        self._version = version
        self._node = apis._node
        self._before = self._state()
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[FetchResponse] = loop.create_future()
        self._timer = loop.call_later(request.max_wait_ms / 1000.0, self._answer)
        self._forget = self._node.watchers.watch_log(self._check)
        self.future.add_done_callback(self._done)

    def _state(self) -> tuple[Any, ...]:
        node = self._node
        return (node.log_end_offset, node.high_watermark, node.is_leader, node.leader())

    def _check(self) -> None:
        if self._state() != self._before:
            self._answer()

    def _answer(self) -> None:
        if self.future.done():
            return
        self._forget()
        try:
            self._node.driver.request(
                lambda token: wire.fetch_requested(token, self._request), self._respond
            )
        except Exception as error:  # noqa: BLE001 - it fails the fetch, not the caller
            if not self.future.done():
                self.future.set_exception(error)

    def _respond(self, reply: ReplyFetch) -> None:
        if not self.future.done():
            apis, request, version = self._apis, self._request, self._version
            _set_response(self.future, lambda it: apis._fetch_response(it, request, version), reply)

    def _done(self, future: asyncio.Future[FetchResponse]) -> None:
        self._timer.cancel()
        self._forget()


def _unknown_partition(
    requested: DescribeQuorumRequest.PartitionData,
) -> DescribeQuorumResponse.PartitionData:
    """Return the error for a partition of a DescribeQuorum.

    Only the metadata log's partition can be described, and only in a request for it alone.
    """
    return DescribeQuorumResponse.PartitionData(
        partition_index=requested.partition_index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=f"only {METADATA_TOPIC}-0 can be described, in a request of its own",
    )
