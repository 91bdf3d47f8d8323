"""The quorum's requests over a real connection to a controller listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from metalog.quorum import wire
from metalog.quorum.apis import QuorumApis, register_quorum_apis
from metalog.quorum.batches import read_batches
from metalog.quorum.config import QuorumConfig
from metalog.quorum.core.discovery import Addresses
from metalog.quorum.core.replica import Timing
from metalog.quorum.core.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from metalog.quorum.log import DIRECTORY_NAME, METADATA_TOPIC
from metalog.quorum.snapshots import (
    FIRST_SNAPSHOT,
    SnapshotReader,
    snapshot_name,
    snapshot_parts,
    write_snapshot,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.ids import METADATA_TOPIC_ID
from protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from protocol.messages.describe_quorum import DescribeQuorumRequest
from protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from protocol.messages.vote import VoteRequest
from protocol.metadata import NoOpRecord, TopicRecord
from protocol.transport.client import Connection
from protocol.transport.dispatch import HandlerTable
from protocol.transport.server import Server
from runtime.clock import SystemClock
from storage.files import File, MemoryFiles
from testkit.memory.quorum_nodes import (
    CLUSTER_ID,
    DIRECTORY_ID,
    ENDPOINTS,
    RunningQuorum,
    make_config,
)


@asynccontextmanager
async def serving(q: RunningQuorum) -> AsyncIterator[tuple[str, int]]:
    table = HandlerTable()
    table.serve_api_versions()
    register_quorum_apis(table, q.node)
    server = Server(table, clock=SystemClock(), listener="CONTROLLER")
    host, port = await server.start("127.0.0.1", 0)
    q.node.advertise((("CONTROLLER", VoterEndpoint(host, port)),))
    try:
        yield host, port
    finally:
        await server.close(grace_ms=0)


@asynccontextmanager
async def connected(q: RunningQuorum) -> AsyncIterator[Connection]:
    async with serving(q) as (host, port):
        connection = await Connection.connect(host, port, "test")
        try:
            yield connection
        finally:
            await connection.close()


def topic(n: int) -> TopicRecord:
    return TopicRecord(name=f"t{n}", topic_id=n.to_bytes(16, "big"))


def fetch(offset: int = 0, *, epoch: int = 1, last_epoch: int = 0, **more: Any) -> FetchRequest:
    partition = FetchRequest.FetchPartition(
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=1 << 20,
        replica_directory_id=b"o" * 16,
    )
    values: dict[str, Any] = {
        "cluster_id": CLUSTER_ID,
        "replica_state": FetchRequest.ReplicaState(replica_id=9),
        "topics": [FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    }
    return FetchRequest(**{**values, **more})


def part(response: FetchResponse) -> FetchResponse.PartitionData:
    assert response.error_code == 0
    return response.responses[0].partitions[0]


async def test_an_observer_replicates_from_the_first_record_on() -> None:
    async with RunningQuorum(MemoryFiles()) as q, connected(q) as connection:
        await q.commit(topic(1))
        got = part(await connection.request(fetch()))
        assert isinstance(got.records, (bytes, memoryview))
        batches = list(read_batches(got.records))
        assert [b.base_offset for b in batches] == [0, 1]
        assert batches[1].records == (topic(1),)
        assert (got.high_watermark, got.log_start_offset) == (2, 0)
        assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == (1, 1)


async def test_a_fetch_at_the_end_waits_for_records() -> None:
    async with RunningQuorum(MemoryFiles()) as q, connected(q) as connection:
        await q.commit(topic(1))
        request = fetch(2, last_epoch=1, max_wait_ms=60_000)
        request.topics[0].partitions[0].high_watermark = 2
        waiting = connection.send(request, 60_000)
        await asyncio.sleep(0.01)
        assert not waiting.done()
        q.node.append(1, [topic(2)])
        records = part(await waiting).records
        assert records is not None and len(records) > 0


async def test_news_of_the_high_watermark_end_the_wait() -> None:
    async with RunningQuorum(MemoryFiles()) as q, connected(q) as connection:
        await q.commit(topic(1))
        request = fetch(2, last_epoch=1, max_wait_ms=60_000)
        request.topics[0].partitions[0].high_watermark = 1
        got = part(await connection.request(request))
        assert not got.records and got.high_watermark == 2


async def test_a_fetch_without_news_is_answered_when_its_time_is_over() -> None:
    async with RunningQuorum(MemoryFiles()) as q, connected(q) as connection:
        await q.commit(topic(1))
        assert not part(await connection.request(fetch(2, last_epoch=1, max_wait_ms=20))).records


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (fetch(epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
        (fetch(epoch=2), ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
async def test_a_fetch_in_another_epoch_learns_the_leader(
    request_: FetchRequest, error: ErrorCode
) -> None:
    async with RunningQuorum(MemoryFiles()) as q, connected(q) as connection:
        response = await connection.request(request_)
        got = part(response)
        assert got.error_code == error
        assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == (1, 1)
        assert response.node_endpoints[0].node_id == 1


async def test_a_diverging_fetch_learns_where() -> None:
    async with RunningQuorum(MemoryFiles()) as q, connected(q) as connection:
        await q.commit(topic(1))
        got = part(await connection.request(fetch(50, last_epoch=1)))
        assert (got.diverging_epoch.epoch, got.diverging_epoch.end_offset) == (1, 2)
        assert not got.records


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"topics": []}, ErrorCode.INVALID_REQUEST),
        ({"max_wait_ms": -1}, ErrorCode.INVALID_REQUEST),
        (
            {
                "topics": [
                    FetchRequest.FetchTopic(
                        topic_id=b"x" * 16,
                        partitions=[FetchRequest.FetchPartition(last_fetched_epoch=0)],
                    )
                ]
            },
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
async def test_fetches_that_are_not_for_us(changes: dict[str, Any], error: ErrorCode) -> None:
    async with RunningQuorum(MemoryFiles()) as q, connected(q) as connection:
        assert (await connection.request(fetch(**changes))).error_code == error


def vote(epoch: int, **more: Any) -> VoteRequest:
    values: dict[str, Any] = {
        "replica_epoch": epoch,
        "replica_id": 2,
        "last_offset_epoch": 9,
        "last_offset": 99,
    }
    partition = VoteRequest.PartitionData(**{**values, **more})
    return VoteRequest(
        cluster_id=CLUSTER_ID,
        topics=[VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
    )


async def test_a_vote_answers_when_the_new_epoch_is_on_disk() -> None:
    files = MemoryFiles()
    async with RunningQuorum(files) as q, connected(q) as connection:
        response = await connection.request(vote(5))
        partition = response.topics[0].partitions[0]
        assert (partition.error_code, partition.leader_epoch) == (0, 5)
        assert partition.vote_granted
        state = q.node.log.state_file.read()
        assert state is not None and (state.epoch, state.voted) == (5, ReplicaKey(2))


async def test_votes_that_are_refused() -> None:
    async with RunningQuorum(MemoryFiles()) as q, connected(q) as connection:
        fenced = (await connection.request(vote(0))).topics[0].partitions[0]
        assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH and fenced.leader_id == 1
        same = (await connection.request(vote(1))).topics[0].partitions[0]
        assert not same.vote_granted and q.node.is_leader
        other = vote(7)
        other.cluster_id = "another"
        refused = await connection.request(other)
        assert refused.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        wrong = vote(7, voter_directory_id=b"?" * 16)
        wrong.voter_id = 1
        partition = (await connection.request(wrong)).topics[0].partitions[0]
        assert partition.error_code == ErrorCode.INVALID_VOTER_KEY and q.node.is_leader


async def test_beginning_and_ending_epochs() -> None:
    async with RunningQuorum(MemoryFiles()) as q, connected(q) as connection:
        begin = BeginQuorumEpochRequest(
            cluster_id=CLUSTER_ID,
            voter_id=1,
            topics=[
                BeginQuorumEpochRequest.TopicData(
                    topic_name=METADATA_TOPIC,
                    partitions=[BeginQuorumEpochRequest.PartitionData(leader_id=2, leader_epoch=0)],
                )
            ],
        )
        answer = (await connection.request(begin)).topics[0].partitions[0]
        assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
        end = EndQuorumEpochRequest(
            cluster_id=CLUSTER_ID,
            topics=[
                EndQuorumEpochRequest.TopicData(
                    topic_name=METADATA_TOPIC,
                    partitions=[EndQuorumEpochRequest.PartitionData(leader_id=2, leader_epoch=1)],
                )
            ],
        )
        assert (await connection.request(end)).topics[0].partitions[0].error_code == (
            ErrorCode.INVALID_REQUEST
        )


def fetch_snapshot(end_offset: int, epoch: int, position: int, **more: Any) -> FetchSnapshotRequest:
    partition = FetchSnapshotRequest.PartitionSnapshot(
        current_leader_epoch=1,
        snapshot_id=FetchSnapshotRequest.SnapshotId(end_offset=end_offset, epoch=epoch),
        position=position,
    )
    return FetchSnapshotRequest(
        cluster_id=CLUSTER_ID,
        replica_id=9,
        topics=[FetchSnapshotRequest.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
        **more,
    )


async def test_a_snapshot_is_fetched_in_pieces() -> None:
    async with RunningQuorum(MemoryFiles()) as q, connected(q) as connection:
        await q.commit(topic(1))
        snapshot_id = await q.node.create_snapshot(q.loader.image)
        assert snapshot_id is not None
        data = b""
        while True:
            response = await connection.request(
                fetch_snapshot(*snapshot_id, len(data), max_bytes=50)
            )
            piece = response.topics[0].partitions[0]
            assert piece.error_code == 0 and piece.position == len(data)
            assert isinstance(piece.unaligned_records, (bytes, memoryview))
            data += piece.unaligned_records
            if len(data) == piece.size:
                break
        assert list(SnapshotReader(data, snapshot_id).records()) == [topic(1)]
        for asked, error in (
            (fetch_snapshot(1, 1, 0), ErrorCode.SNAPSHOT_NOT_FOUND),
            (fetch_snapshot(*snapshot_id, len(data)), ErrorCode.POSITION_OUT_OF_RANGE),
        ):
            partition = (await connection.request(asked)).topics[0].partitions[0]
            assert partition.error_code == error


async def test_a_fetch_below_the_log_start_is_sent_to_the_snapshot() -> None:
    async with RunningQuorum(MemoryFiles()) as q, connected(q) as connection:
        await q.commit(topic(1))
        await q.node.create_snapshot(q.loader.image)
        await q.commit(topic(2))
        latest = await q.node.create_snapshot(q.loader.image)
        q.node.log.config = q.node.log.config._replace(retention_bytes=1)
        assert q.node.log.clean(0) and latest is not None
        got = part(await connection.request(fetch()))
        assert (got.snapshot_id.end_offset, got.snapshot_id.epoch) == latest


async def test_describing_the_quorum() -> None:
    async with RunningQuorum(MemoryFiles()) as q, connected(q) as connection:
        await q.commit(topic(1))
        await connection.request(fetch(2, last_epoch=1))
        response = await connection.request(described((METADATA_TOPIC, 0)))
        (ours,) = response.topics[0].partitions
        assert (ours.leader_id, ours.leader_epoch, ours.high_watermark) == (1, 1, 2)
        (voter,), (observer,) = ours.current_voters, ours.observers
        assert (voter.replica_id, voter.log_end_offset) == (1, 2)
        assert (observer.replica_id, observer.log_end_offset) == (9, 2)
        assert observer.replica_directory_id == b"o" * 16
        assert observer.last_caught_up_timestamp > 0
        assert [node.node_id for node in response.nodes] == [1]


@pytest.mark.parametrize(
    "asked",
    [[("other", 0)], [(METADATA_TOPIC, 1)], [(METADATA_TOPIC, 0), ("other", 0)]],
    ids=["another topic", "another partition", "not alone"],
)
async def test_no_other_quorum_is_described(asked: list[tuple[str, int]]) -> None:
    async with RunningQuorum(MemoryFiles()) as q, connected(q) as connection:
        response = await connection.request(described(*asked))
        for topic_answered in response.topics:
            (answer,) = topic_answered.partitions
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (answer.leader_id, bool(answer.error_message)) == (0, True)
        assert response.nodes == []


def with_voters_in_log(files: MemoryFiles) -> RunningQuorum:
    """Format node 1 with kraft.version 1, as the only voter."""
    folder = f"/data/{DIRECTORY_NAME}"
    files.mkdirs(folder)
    parts = snapshot_parts(
        FIRST_SNAPSHOT,
        (),
        last_contained_timestamp_ms=0,
        timestamp_ms=0,
        voters=VoterSet([Voter(ReplicaKey(1, DIRECTORY_ID), ENDPOINTS, 0, 1)]),
        kraft_version=1,
    )
    write_snapshot(files, f"{folder}/{snapshot_name(FIRST_SNAPSHOT)}", parts)
    return RunningQuorum(files, config=make_config("/data", voters=VoterSet()))


def voter_update(host: str = "moved", **more: Any) -> UpdateRaftVoterRequest:
    values: dict[str, Any] = {
        "cluster_id": CLUSTER_ID,
        "current_leader_epoch": 1,
        "voter_id": 1,
        "voter_directory_id": DIRECTORY_ID,
        "listeners": [UpdateRaftVoterRequest.Listener(name="CONTROLLER", host=host, port=1)],
        "kraft_version_feature": UpdateRaftVoterRequest.KRaftVersionFeature(
            min_supported_version=0, max_supported_version=1
        ),
    }
    return UpdateRaftVoterRequest(**{**values, **more})


async def test_an_update_of_a_voter_is_answered_when_it_is_committed() -> None:
    gate = asyncio.Event()
    gate.set()

    class Slow(MemoryFiles):
        async def flush(self, files: Sequence[File]) -> None:
            await gate.wait()
            await super().flush(files)

    async with with_voters_in_log(Slow()) as q, serving(q):
        await q.commit(topic(1))
        gate.clear()
        before = q.node.log_end_offset
        answer = QuorumApis(q.node).update_raft_voter(cast(Any, None), voter_update())
        assert isinstance(answer, asyncio.Future) and not answer.done()
        assert q.node.log_end_offset == before + 1
        gate.set()
        response = await answer
        assert response.error_code == 0
        assert response.current_leader.leader_id == 1 and response.current_leader.leader_epoch == 1
        assert response.current_leader.host == "127.0.0.1"
        entry = q.node.voters.get(1)
        assert entry is not None and entry.endpoints == (("CONTROLLER", VoterEndpoint("moved", 1)),)
        assert q.node.high_watermark == q.node.log.voters_offset + 1


async def test_updates_of_voters_that_are_refused() -> None:
    async with with_voters_in_log(MemoryFiles()) as q, connected(q) as connection:
        await q.commit(topic(1))
        before = q.node.log.voters_offset
        for request, error in (
            (voter_update(cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
            (voter_update(current_leader_epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
            (voter_update(voter_id=2), ErrorCode.VOTER_NOT_FOUND),
            (voter_update(listeners=[]), ErrorCode.INVALID_REQUEST),
        ):
            response = await connection.request(request)
            assert response.error_code == error
            assert response.current_leader.leader_id == 1
        assert q.node.log.voters_offset == before


def described(*asked: tuple[str, int]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequest.TopicData(
                topic_name=name,
                partitions=[DescribeQuorumRequest.PartitionData(partition_index=index)],
            )
            for name, index in asked
        ]
    )


def observer_config(host: str, port: int) -> QuorumConfig:
    return make_config(
        "/observer",
        node=ReplicaKey(9, b"o" * 16),
        voters=VoterSet(),
        addresses=Addresses(bootstrap_servers=(VoterEndpoint(host, port),)),
        timing=Timing(fetch_timeout_ms=2000, retry_backoff_ms=1),
        fetch_wait_ms_max=50,
    )


async def test_our_own_observer_follows_and_survives_a_restart_of_the_leader() -> None:
    files = MemoryFiles()
    async with RunningQuorum(files) as q, serving(q) as (host, port):
        await q.commit(topic(1))
        async with RunningQuorum(MemoryFiles(), config=observer_config(host, port)) as observer:
            offset = await q.commit(topic(2))
            await asyncio.wait_for(observer.commits.wait_for(offset), 10)
            assert observer.loader.image == q.loader.image
            assert observer.node.leader() == (1, 1)
            assert observer.node.leader_endpoint() == (host, port)
            assert not observer.failures


async def test_our_own_observer_begins_with_a_snapshot() -> None:
    async with RunningQuorum(MemoryFiles()) as q, serving(q) as (host, port):
        for n in range(5):
            await q.commit(topic(n))
            await q.node.create_snapshot(q.loader.image)
        q.node.log.config = q.node.log.config._replace(retention_bytes=1)
        assert q.node.log.clean(0)
        assert q.node.log.start_offset > 0
        async with RunningQuorum(MemoryFiles(), config=observer_config(host, port)) as observer:
            offset = await q.commit(NoOpRecord())
            await asyncio.wait_for(observer.commits.wait_for(offset), 10)
            assert observer.loader.image == q.loader.image
            assert observer.node.log.start_offset == q.node.log.start_offset


async def test_the_apis_are_advertised() -> None:
    async with RunningQuorum(MemoryFiles()) as q, connected(q) as connection:
        assert connection.versions[ApiKey.VOTE] == (0, 2)
        assert connection.versions[ApiKey.DESCRIBE_QUORUM] == (0, 2)
        assert connection.versions[ApiKey.FETCH].last == 18


async def test_old_versions_omit_leader_endpoints() -> None:
    """The leader's endpoints have a field from version 1 on, or from version 16 of Fetch."""
    async with RunningQuorum(MemoryFiles()) as q, connected(q) as connection:
        begin = BeginQuorumEpochRequest(
            cluster_id=CLUSTER_ID,
            topics=[
                BeginQuorumEpochRequest.TopicData(
                    topic_name=METADATA_TOPIC,
                    partitions=[BeginQuorumEpochRequest.PartitionData(leader_id=2, leader_epoch=0)],
                )
            ],
        )
        end = EndQuorumEpochRequest(
            cluster_id=CLUSTER_ID,
            topics=[
                EndQuorumEpochRequest.TopicData(
                    topic_name=METADATA_TOPIC,
                    partitions=[EndQuorumEpochRequest.PartitionData(leader_id=2, leader_epoch=0)],
                )
            ],
        )
        fetch_latest = FetchRequest(
            cluster_id=CLUSTER_ID,
            replica_id=9,
            topics=[
                FetchRequest.FetchTopic(
                    topic=METADATA_TOPIC,
                    partitions=[
                        FetchRequest.FetchPartition(current_leader_epoch=1, last_fetched_epoch=0)
                    ],
                )
            ],
        )
        snapshot = fetch_snapshot(5, 1, 0)
        for request, old in ((vote(0), 0), (begin, 0), (end, 0), (snapshot, 0), (fetch_latest, 12)):
            answer = await connection.request(request, version=old)
            assert answer.node_endpoints == []
        assert (await connection.request(vote(0))).node_endpoints != []


async def test_an_answer_that_waits_for_the_disk_and_fails_is_its_own_affair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node continues with the disk's result; a response that cannot be built fails its request
    only."""
    async with RunningQuorum(MemoryFiles()) as q, connected(q) as connection:

        def fail(*_: object) -> None:
            raise KeyError(3)

        monkeypatch.setattr(wire, "vote_response", fail)
        assert (await connection.request(vote(5))).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        monkeypatch.undo()
        # A distant epoch: on a slow machine the node may have elected itself in the meantime.
        assert (await connection.request(vote(60))).topics[0].partitions[0].vote_granted


async def test_a_waiting_fetch_that_fails_is_its_own_affair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An append wakes the fetch, and must not fail with the fetch's error."""
    async with RunningQuorum(MemoryFiles()) as q, connected(q) as connection:
        await q.commit(topic(1))
        request = fetch(2, last_epoch=1, max_wait_ms=60_000)
        request.topics[0].partitions[0].high_watermark = 2
        waiting = connection.send(request, 60_000)
        while not q.node.watchers.log_count:  # noqa: ASYNC110 - the node has no event for it
            await asyncio.sleep(0)

        def fail(*_: object) -> bytes:
            raise KeyError(3)

        monkeypatch.setattr(q.node.log, "read", fail)
        q.node.append(1, [NoOpRecord()])
        assert (await waiting).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert q.node.is_leader
