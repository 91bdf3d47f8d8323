"""A sole voter over the file port: order on disk, group commit, failing disks, restarts."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from metalog.image.snapshot import fit_record
from metalog.image.values import EMPTY_IMAGE, Provenance
from metalog.quorum.batches import build_metadata_batch, read_batches
from metalog.quorum.config import QuorumConfig
from metalog.quorum.core.discovery import Addresses
from metalog.quorum.core.messages import (
    AppendFetched,
    BeginEpochRequested,
    InstallSnapshot,
    OffsetAndEpoch,
    QuorumState,
    RequestFailed,
    RequestKind,
    SendFetch,
    VoteRequested,
)
from metalog.quorum.core.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from metalog.quorum.delivery import CommittedBatch
from metalog.quorum.fetch_size import BATCHES_MAX
from metalog.quorum.log import DIRECTORY_NAME, MetadataLogConfig
from metalog.quorum.node import NotLeader
from metalog.quorum.snapshot_transfer import NotStored
from metalog.quorum.snapshots import SnapshotReader
from metalog.quorum.state_file import read_quorum_state
from protocol.control import LeaderChangeMessage
from protocol.errors import ApiError, EncodeError, ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.metadata import FeatureLevelRecord, NoOpRecord, TopicRecord
from runtime.clock import ManualClock
from runtime.errors import StartupRefused
from storage.files import File, LossyFiles, MemoryFiles
from storage.log.errors import LogFailed
from testkit.memory.quorum_nodes import RunningQuorum, make_config

FOLDER = f"/data/{DIRECTORY_NAME}"


def topic(n: int) -> TopicRecord:
    return TopicRecord(name=f"t{n}", topic_id=n.to_bytes(16, "big"))


class Heard:
    """A listener that records its notifications."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
        self.told.append(("leader", leader_id, epoch))

    def handle_commit(self, batch: CommittedBatch) -> None:
        self.told.append((batch.base_offset, batch.last_offset, len(batch.records)))

    def handle_snapshot(self, snapshot: SnapshotReader) -> None:
        self.told.append(("snapshot", snapshot.id))


async def test_a_sole_voter_leads_when_start_returns_and_the_state_is_on_disk() -> None:
    files = MemoryFiles()
    async with RunningQuorum(files) as q:
        assert q.node.leader() == (1, 1) and q.node.is_leader
        assert read_quorum_state(files, f"{FOLDER}/quorum-state") == QuorumState(1, 1)
        first = next(read_batches(q.node.log.read(0, 4096)))
        assert isinstance(first.control[0], LeaderChangeMessage)
        assert q.node.leader_endpoint() == ("localhost", 9093)


async def test_each_start_is_a_new_epoch_and_nothing_is_lost() -> None:
    files = MemoryFiles()
    for epoch in (1, 2, 3):
        async with RunningQuorum(files) as q:
            assert q.node.leader() == (1, epoch)
            await q.commit(topic(epoch))
            assert len(q.loader.image.topics.by_id) == epoch


async def test_listener_learns_of_leadership_after_earlier_commits() -> None:
    files = MemoryFiles()
    async with RunningQuorum(files) as q:
        await q.commit(topic(1), topic(2))
    q = RunningQuorum(files)
    heard = Heard()
    q.node.register(heard)
    async with q:
        await q.commit(topic(3))
        assert heard.told == [(0, 0, 0), (1, 2, 2), (3, 3, 0), ("leader", 1, 2), (4, 4, 1)]
        late = Heard()
        q.node.register(late)
        await q.commit(topic(4))
        assert late.told == [*heard.told[:3], *heard.told[3:4], *heard.told[4:]] or late.told == [
            e for e in heard.told if e[0] != "leader"
        ]


async def test_appends_of_one_flush_share_the_next() -> None:
    flushes = 0

    class Counting(MemoryFiles):
        async def flush(self, files: Sequence[File]) -> None:
            nonlocal flushes
            flushes += 1
            await asyncio.sleep(0)
            await super().flush(files)

    async with RunningQuorum(Counting()) as q:
        await q.commit(NoOpRecord())
        before = flushes
        offsets = [q.node.append(1, [NoOpRecord()]) for _ in range(50)]
        await q.commits.wait_for(offsets[-1])
        assert flushes - before <= 2
        assert q.node.high_watermark == offsets[-1] + 1


async def test_nothing_is_committed_before_it_is_flushed() -> None:
    gate = asyncio.Event()

    class Slow(MemoryFiles):
        async def flush(self, files: Sequence[File]) -> None:
            await gate.wait()
            await super().flush(files)

    async with RunningQuorum(Slow()) as q:
        offset = q.node.append(1, [topic(1)])
        for _ in range(10):
            await asyncio.sleep(0)
        assert q.node.high_watermark is None and not q.loader.image.topics.by_id
        gate.set()
        await q.commits.wait_for(offset)
        assert q.loader.image.topics.by_id


class CountingFiles(MemoryFiles):
    """Files that count flushes, which fail once `broken`."""

    def __init__(self) -> None:
        super().__init__()
        self.flushes = 0
        self.broken = False

    async def flush(self, files: Sequence[File]) -> None:
        self.flushes += 1
        if self.broken:
            raise OSError(5, "Input/output error")
        await super().flush(files)


def fetch(q: RunningQuorum, number: int) -> None:
    """Let the node append a topic, as if a leader had sent it."""
    record = fit_record(topic(number), 0)
    q.node._requests._fetched = build_metadata_batch(
        [(record, 0)], q.node.log.end_offset, epoch=1, timestamp_ms=0
    )
    q.node.driver._queue.append(AppendFetched(1))
    q.node.driver.drain()


async def test_a_broker_does_not_wait_for_its_own_disk() -> None:
    """M8: a broker exposes committed records only, which a majority of the controllers has on
    disk."""
    files = CountingFiles()
    broker = make_config("/data", node=ReplicaKey(4, b"B" * 16), addresses=Addresses())
    async with RunningQuorum(files, config=broker, clock=ManualClock()) as q:
        begun = files.flushes
        fetch(q, 1)
        assert q.node.core._replica.flushed_end == q.node.log.end_offset == 1
        await asyncio.sleep(0)
        assert files.flushes == begun


async def test_a_controller_that_may_become_a_voter_flushes() -> None:
    """KIP-853: as a voter it would count with the records that it fetched before."""
    files = CountingFiles()
    observer = make_config("/data", node=ReplicaKey(4, b"B" * 16))
    async with RunningQuorum(files, config=observer, clock=ManualClock()) as q:
        fetch(q, 1)
        assert q.node.core._replica.flushed_end == 0
        await q.until(lambda: q.node.core._replica.flushed_end == 1)


async def test_a_broker_flushes_what_a_snapshot_covers() -> None:
    """M12: the next start does not read the log below a snapshot."""
    files = CountingFiles()
    broker = make_config("/data", node=ReplicaKey(4, b"B" * 16), addresses=Addresses())
    async with RunningQuorum(files, config=broker, clock=ManualClock()) as q:
        begun = files.flushes
        fetch(q, 1)
        await q.node.create_snapshot(EMPTY_IMAGE.at(Provenance(0, 1, 0)))
        assert files.flushes > begun
        fetch(q, 2)
        files.broken = True
        with pytest.raises(LogFailed):
            await q.node.create_snapshot(EMPTY_IMAGE.at(Provenance(1, 1, 0)))
        assert [name for name, _ in q.failures] == ["flush of the metadata log"]


async def test_a_response_of_many_batches_is_appended_in_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The headers of 15,000 batches would hold the event loop for 45 ms."""
    observer = make_config("/data", node=ReplicaKey(4, b"B" * 16), addresses=Addresses())
    record, count = fit_record(topic(1), 0), BATCHES_MAX + 200
    batches = [
        build_metadata_batch([(record, 0)], offset, epoch=1, timestamp_ms=0)
        for offset in range(count)
    ]
    asked: list[FetchRequest] = []

    async def answer(to: VoterEndpoint, request: FetchRequest, **_: Any) -> FetchResponse:
        asked.append(request)
        partition = FetchResponse.PartitionData(records=b"".join(batches))
        topics = [FetchResponse.FetchableTopicResponse(partitions=[partition])]
        return FetchResponse(responses=topics)

    async with RunningQuorum(MemoryFiles(), config=observer, clock=ManualClock()) as q:
        node = q.node
        monkeypatch.setattr(node.peers, "request", answer)
        monkeypatch.setattr(node.core, "awaits", lambda _: True)
        monkeypatch.setattr(node._requests, "_step", lambda _: None)
        for _ in range(2):
            await node._requests._fetch(SendFetch(1, 1, 1, 0, 0), 1, VoterEndpoint("h", 1))
        assert bytes(node._requests._fetched) == b"".join(batches[:BATCHES_MAX])
        sizes = [request.max_bytes for request in asked]
        assert sizes == [observer.fetch_max_bytes, len(node._requests._fetched)]
        node.driver._queue.append(AppendFetched(1))
        node.driver.drain()
        assert node.log.end_offset == BATCHES_MAX


async def test_a_failed_flush_stops_the_node_and_is_not_tried_again() -> None:
    tries = 0

    class Failing(MemoryFiles):
        broken = False

        async def flush(self, files: Sequence[File]) -> None:
            nonlocal tries
            if self.broken:
                tries += 1
                raise OSError(5, "Input/output error")
            await super().flush(files)

    files = Failing()
    async with RunningQuorum(files) as q:
        await q.commit(topic(1))
        files.broken = True
        offset = q.node.append(1, [topic(2)])
        await q.until(lambda: bool(q.failures))
        assert "Input/output error" in str(q.failures[0][1])
        files.broken = False
        for _ in range(10):
            await asyncio.sleep(0)
        assert tries == 1
        assert q.node.high_watermark is not None and q.node.high_watermark <= offset


async def test_only_the_leader_of_the_epoch_appends() -> None:
    async with RunningQuorum(MemoryFiles()) as q:
        with pytest.raises(NotLeader):
            q.node.append(0, [topic(1)])
        q.node.driver.request(vote_requested, lambda reply: None)
        assert q.node.leader() == (None, 5)
        with pytest.raises(NotLeader):
            q.node.append(1, [topic(1)])


async def test_records_are_written_in_versions_of_the_metadata_level() -> None:
    from protocol.metadata import PartitionRecord

    record = PartitionRecord(
        topic_id=b"t" * 16, replicas=[1], isr=[1], leader=1, directories=[b"d" * 16]
    )
    async with RunningQuorum(MemoryFiles()) as q:
        await q.commit(TopicRecord(name="t", topic_id=b"t" * 16))
        with pytest.raises(EncodeError):
            q.node.append(1, [record], metadata_version=7)
        offset = q.node.append(1, [fit_record(record, 0)], metadata_version=7)
        await q.commits.wait_for(offset)
        (old,) = [b for b in read_batches(q.node.log.read(offset, 4096)) if b.records]
        assert old.records[0].directories == []
        assert record.directories == [b"d" * 16]


async def test_snapshots_are_written_when_due_and_loaded_at_the_start() -> None:
    files, clock = MemoryFiles(), ManualClock()
    limits = MetadataLogConfig(max_bytes_between_snapshots=1000)
    async with RunningQuorum(files, clock=clock, limits=limits) as q:
        for n in range(20):
            await q.commit(topic(n))
        await q.until(lambda: q.node.log.latest_snapshot is not None)
        latest = q.node.log.latest_snapshot
        assert latest is not None and latest.offset < 21
    q = RunningQuorum(files, clock=clock, limits=limits)
    heard = Heard()
    q.node.register(heard)
    async with q:
        await q.commit(NoOpRecord())
        assert heard.told[0] == ("snapshot", latest)
        assert len(q.loader.image.topics.by_id) == 20
        assert heard.told[1][0] == latest.offset


async def test_a_snapshot_by_time_needs_something_new() -> None:
    files, clock = MemoryFiles(), ManualClock()
    limits = MetadataLogConfig(max_snapshot_interval_ms=1000)
    async with RunningQuorum(files, clock=clock, limits=limits) as q:
        await q.commit(topic(1))
        assert not q.node.snapshot_due(q.loader.image)
        clock.advance(1000)
        assert q.node.snapshot_due(q.loader.image)
        assert await q.node.create_snapshot(q.loader.image) == OffsetAndEpoch(2, 1)
        clock.advance(5000)
        assert not q.node.snapshot_due(q.loader.image)
        assert await q.node.create_snapshot(q.loader.image) is None


# --- what leaves the node only when the disk has it ---------------------------------------------


class HeldFiles(MemoryFiles):
    """Files whose work in a worker waits for the gate, then fails if the disk is to be broken."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.broken = False
        self.waiting = 0

    async def run(self, work: Callable[..., Any], *args: Any) -> Any:
        self.waiting += 1
        await self.gate.wait()
        if self.broken:
            raise OSError(5, "Input/output error")
        return work(*args)


def one_of_three() -> QuorumConfig:
    """Return node 1 of three static voters, with no process at the others' addresses."""
    others = VoterSet(
        Voter(ReplicaKey(node_id), (("CONTROLLER", VoterEndpoint("127.0.0.1", 1)),))
        for node_id in (1, 2, 3)
    )
    return make_config("/data", voters=others)


CANDIDATE = ReplicaKey(2)


def vote_requested(token: int, epoch: int = 5) -> VoteRequested:
    return VoteRequested(token, CANDIDATE, epoch, OffsetAndEpoch(0, 0))


async def test_a_vote_leaves_the_node_only_when_quorum_state_is_on_disk() -> None:
    """M3: and no later decision overtakes it."""
    files = HeldFiles()
    path = f"{FOLDER}/quorum-state"
    answers: list[tuple[Any, QuorumState | None]] = []
    async with RunningQuorum(files, config=one_of_three(), clock=ManualClock()) as q:

        def answered(reply: Any) -> None:
            answers.append((reply, read_quorum_state(files, path)))

        q.node.driver.request(vote_requested, answered)
        q.node.driver.request(
            lambda token: vote_requested(token)._replace(candidate=ReplicaKey(3)), answered
        )
        await q.until(lambda: files.waiting > 0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not answers
        assert read_quorum_state(files, path) != QuorumState(5, None, CANDIDATE)
        files.gate.set()
        await q.until(lambda: len(answers) == 2)
    voted = QuorumState(5, None, CANDIDATE)
    assert [(reply.granted, state) for reply, state in answers] == [(True, voted), (False, voted)]


async def test_a_new_epoch_leaves_the_node_only_when_quorum_state_is_on_disk() -> None:
    """M2, M3: after a restart a node may not be below an epoch that it has announced."""
    files = HeldFiles()
    answers: list[Any] = []
    async with RunningQuorum(files, config=one_of_three(), clock=ManualClock()) as q:
        q.node.driver.request(
            lambda token: BeginEpochRequested(token, 3, 7, voter=ReplicaKey(1)), answers.append
        )
        await q.until(lambda: files.waiting > 0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not answers
        files.gate.set()
        await q.until(lambda: bool(answers))
        assert read_quorum_state(files, f"{FOLDER}/quorum-state") == QuorumState(7, 3, None)


async def test_a_vote_that_the_disk_refuses_never_leaves_the_node() -> None:
    """M3, F19: the refusal of the disk stops the node."""
    files = HeldFiles()
    files.broken = True
    answers: list[Any] = []
    async with RunningQuorum(files, config=one_of_three(), clock=ManualClock()) as q:
        q.node.driver.request(vote_requested, answers.append)
        files.gate.set()
        await q.until(lambda: bool(q.failures))
        q.node.driver.request(lambda token: vote_requested(token, 6), answers.append)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not answers
        assert [name for name, _ in q.failures] == ["persist quorum-state"]


async def test_a_disk_that_refuses_fetched_records_is_no_error_of_the_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If it fetched again instead, the follower would never append another record."""
    files = HeldFiles()
    files.gate.set()
    async with RunningQuorum(files, config=one_of_three(), clock=ManualClock()) as q:
        node = q.node

        def refuse(data: bytes) -> bool:
            raise LogFailed("/data", OSError(28, "No space left on device"))

        async def answered() -> None:
            node.driver._queue.append(AppendFetched(2))
            node.driver.drain()

        monkeypatch.setattr(node.log, "append_fetched", refuse)
        node._requests._request(RequestKind.FETCH, 2, answered, 7)
        await q.until(lambda: bool(q.failures))
        assert [name for name, _ in q.failures] == ["append to the metadata log"]


async def test_a_disk_that_refuses_does_not_keep_the_node_from_stopping() -> None:
    refusing: list[bool] = []

    def refuse(kind: str, path: str) -> None:
        if refusing:
            raise OSError(28, "No space left on device")

    async with RunningQuorum(LossyFiles(MemoryFiles(), on_op=refuse)) as q:
        await q.commit(topic(1))
        refusing.append(True)
        await q.node.stop()
        refusing.clear()


async def test_a_corrupt_quorum_state_refuses_the_start() -> None:
    files = MemoryFiles()
    async with RunningQuorum(files):
        pass
    files.write_atomic(f"{FOLDER}/quorum-state", b"{")
    with pytest.raises(StartupRefused):
        await RunningQuorum(files).node.start()


async def run_until_crash(files: LossyFiles, acknowledged: list[int]) -> None:
    """Commit topics until the files refuse to work; `acknowledged` contains the committed ones."""
    q = RunningQuorum(files, limits=MetadataLogConfig(max_bytes_between_snapshots=400))
    try:
        await q.node.start()
        for n in range(12):
            if q.failures:
                break
            offset = q.node.append(q.node.core.epoch, [topic(n)])
            if not await q.replayed_or_failed(offset):
                break
            acknowledged.append(n)
    except Exception as error:  # noqa: BLE001 - whatever the crash point makes of it
        q.failures.append(("run", error))
    with contextlib.suppress(Exception):
        await q.node.stop()
    await q.supervisor.close()


async def test_committed_records_survive_crash_at_any_file_operation() -> None:
    at = 0
    while True:
        acknowledged: list[int] = []
        left = at

        def crash_there(kind: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(5, f"crash at {kind} {path}")

        backing = MemoryFiles()
        files = LossyFiles(backing)
        files.on_op = crash_there
        await run_until_crash(files, acknowledged)
        crashed = left < 0
        files.on_op = lambda kind, path: None
        files.crash()
        async with RunningQuorum(backing) as q:
            await q.commit(NoOpRecord(), FeatureLevelRecord(name="x.version", feature_level=1))
            names = set(q.loader.image.topics.by_name)
            assert {f"t{n}" for n in acknowledged} <= names, f"crash point {at}"
        if not crashed:
            break
        at += 1
    assert at > 50


async def test_core_learns_whether_disk_refused_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with RunningQuorum(MemoryFiles()) as q:
        told: list[Any] = []
        error: Exception = NotStored(errno.ENOSPC, "no space left on device")

        async def fetch(*args: Any) -> None:
            raise error

        monkeypatch.setattr(q.node._requests._snapshots, "fetch", fetch)
        monkeypatch.setattr(q.node._requests, "_step", told.append)
        effect = InstallSnapshot(7, 1, 1, OffsetAndEpoch(9, 1))
        await q.node._requests._fetch_snapshot(effect)
        error = ConnectionError("gone")
        await q.node._requests._fetch_snapshot(effect)
        failed = RequestFailed(1, RequestKind.FETCH_SNAPSHOT, 7)
        assert told == [failed._replace(not_stored=True), failed]
        monkeypatch.undo()


async def test_leader_with_damaged_batch_sends_error_and_stops() -> None:
    """M5, F20: another voter has the batch. The fetch gets a storage error."""
    files = MemoryFiles()
    async with RunningQuorum(files) as q:
        for number in range(3):
            await q.commit(topic(number))
        path = f"{FOLDER}/{0:020}.log"
        data = files.read(path)
        files.open(path).pwrite(b"X", len(data) - 10)
        with pytest.raises(ApiError, match="wrong CRC") as refused:
            q.node.read_log(0, len(data))
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        (name, error), *others = q.failures
        assert name == "read the metadata log" and path in str(error) and not others
