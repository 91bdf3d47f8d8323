"""Copying, reading, deleting and surveying segments in a store that fails (S1, S3, F33)."""

from __future__ import annotations

import random
import sys
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

import pytest
from crc32c import crc32c

from protocol.batch import build_batch
from protocol.batch.header import CRC_POSITION, HEADER_BYTES
from storage.files import File, MemoryFiles
from storage.log.checkpoints import decode_epochs
from storage.log.epochs import EpochEntry
from storage.log.indexes import OFFSET_ENTRY, TIME_ENTRY
from storage.objects import (
    FaultyObjects,
    FileRange,
    MemoryObjects,
    ObjectError,
    ObjectNotFound,
    Objects,
    Weather,
)
from storage.objects.port import listed
from storage.tiered.batches import CorruptSegment, LogCheck, WrongTimes
from storage.tiered.layout import Kind, keys_to_delete, object_key, parse_key
from storage.tiered.manifest import (
    Manifest,
    ManifestBroken,
    ObjectSum,
    decode_manifest,
    encode_manifest,
)
from storage.tiered.segment_store import SegmentSources, SegmentStore
from storage.tiered.states import SegmentState
from storage.tiered.survey import rebuild, verify
from storage.tiered.values import RemoteSegment, SegmentUpdate
from storage.tiered.verify import Fault
from testkit.records.batches import some_records
from testkit.records.tier import segment, update

LOG = b"".join(
    build_batch(some_records(3), base, leader_epoch=1 if base < 6 else 4)
    for base in range(0, 12, 3)
)
EPOCHS = (EpochEntry(1, 0), EpochEntry(4, 6))
HIGHEST_MS = some_records(3)[-1].timestamp


def described(number: int = 1, *, txn: bool = False) -> RemoteSegment:
    made = segment(number, 0, 11, dict(EPOCHS), size_bytes=len(LOG), max_timestamp_ms=HIGHEST_MS)
    return replace(made, txn_index_empty=not txn)


def sources(
    *, txn: bool = False, log: bytes = LOG, files: MemoryFiles | None = None
) -> SegmentSources:
    files = files or MemoryFiles()
    file = files.open("/log", create=True)
    file.append(log)
    return SegmentSources(
        log=FileRange(files, file, 0, len(log)),
        index_interval_bytes=100,
        txn_index=b"aborted" if txn else None,
        producer_snapshot=b"producers",
        epochs=EPOCHS,
    )


def as_finished(one: RemoteSegment) -> RemoteSegment:
    return one.updated(update(1, SegmentState.COPY_FINISHED))


@pytest.mark.parametrize("txn", [True, False])
async def test_a_segment_comes_back_as_it_was(objects: Objects, txn: bool) -> None:
    """This holds for every kind of store."""
    store = SegmentStore(objects)
    one = described(txn=txn)
    copied = await store.copy(one, sources(txn=txn))
    manifest = await store.manifest(as_finished(one))
    assert manifest == copied
    data, checked = await store.read_log(one, 0, 1 << 20)
    assert (data, checked.whole_bytes, checked.next_offset) == (LOG, len(LOG), 12)
    offsets = await store.read_whole(manifest, Kind.OFFSET_INDEX)
    size = len(LOG) // 4
    assert list(OFFSET_ENTRY.iter_unpack(offsets)) == [(5, size), (8, 2 * size), (11, 3 * size)]
    times = await store.read_whole(manifest, Kind.TIME_INDEX)
    assert list(TIME_ENTRY.iter_unpack(times)) == [(HIGHEST_MS, 2)]
    assert await store.read_whole(manifest, Kind.PRODUCER_SNAPSHOT) == b"producers"
    assert decode_epochs(await store.read_whole(manifest, Kind.LEADER_EPOCHS)) == list(EPOCHS)
    assert (Kind.TXN_INDEX in manifest.objects) == txn
    assert await verify(objects, [as_finished(one)], contents=True) == []
    await store.delete(one)
    assert await listed(objects, "") == []
    with pytest.raises(ObjectNotFound):
        await store.manifest(one)
    with pytest.raises(ObjectNotFound):
        await store.read_log(one, 0, 100)


@pytest.mark.parametrize("said_ms", [-1, HIGHEST_MS - 1, HIGHEST_MS + 1])
async def test_s8_copy_refuses_a_max_timestamp_other_than_its_batches_have(said_ms: int) -> None:
    """Otherwise no search would find the records above that time while the copy lives (seed
    4386)."""
    bucket = MemoryObjects()
    one = replace(described(), max_timestamp_ms=said_ms)
    with pytest.raises(WrongTimes, match=f"its highest time is {HIGHEST_MS}, not {said_ms}"):
        await SegmentStore(bucket).copy(one, sources())
    with pytest.raises(ObjectNotFound):
        await SegmentStore(bucket).manifest(one)


async def test_read_log_reports_the_cut_and_ends_at_the_last_offset() -> None:
    store = SegmentStore(MemoryObjects())
    one = described()
    await store.copy(one, sources())
    size = len(LOG) // 4
    data, checked = await store.read_log(one, size, size + 70)
    assert (checked.whole_bytes, checked.next_offset, checked.cut_bytes) == (size, 6, size)
    data, checked = await store.read_log(one, 0, len(LOG), last_offset=7)
    assert (checked.whole_bytes, checked.next_offset) == (2 * size, 6)
    with pytest.raises(CorruptSegment):
        await store.read_log(one, len(LOG), 1)


def flipped(data: bytes, at: int) -> bytes:
    broken = bytearray(data)
    broken[at] ^= 0x20
    return bytes(broken)


async def test_every_flipped_bit_of_an_object_is_noticed_by_who_reads_it_whole() -> None:
    bucket = MemoryObjects()
    store = SegmentStore(bucket)
    one = described(txn=True)
    await store.copy(one, sources(txn=True))
    manifest = await store.manifest(one)
    for kind in (Kind.OFFSET_INDEX, Kind.TXN_INDEX, Kind.PRODUCER_SNAPSHOT, Kind.LEADER_EPOCHS):
        key = object_key(one, kind)
        good = await bucket.get(key, 0, manifest.objects[kind].size_bytes)
        for at in range(len(good)):
            bucket.replace(key, flipped(good, at))
            with pytest.raises(CorruptSegment):
                await store.read_whole(manifest, kind)
        bucket.replace(key, good)
    key = object_key(one, Kind.MANIFEST)
    good = await bucket.get(key, 0, (await bucket.head(key)).size_bytes)
    for at in range(len(good)):
        bucket.replace(key, flipped(good, at))
        with pytest.raises(CorruptSegment):
            await store.manifest(one)


async def test_flipped_bits_of_a_log_are_noticed() -> None:
    """A flip is found in all bytes that a batch's CRC covers, in length, magic and epoch, and in an
    offset that becomes out of order."""
    bucket = MemoryObjects()
    store = SegmentStore(bucket)
    one = described()
    await store.copy(one, sources())
    key = object_key(one, Kind.LOG)
    unnoticed = []
    for at in range(len(LOG)):
        bucket.replace(key, flipped(LOG, at))
        try:
            await store.read_log(one, 0, len(LOG))
            unnoticed.append(at)
        except CorruptSegment:
            continue
    assert unnoticed == []


async def test_a_manifest_of_another_segment_is_refused() -> None:
    bucket = MemoryObjects()
    store = SegmentStore(bucket)
    await store.copy(described(1), sources())
    key = object_key(described(1), Kind.MANIFEST)
    data = await bucket.get(key, 0, (await bucket.head(key)).size_bytes)
    bucket.replace(object_key(described(2), Kind.MANIFEST), data)
    with pytest.raises(CorruptSegment, match="expected"):
        await store.manifest(described(2))
    moved = replace(described(1), end_offset=12)
    with pytest.raises(CorruptSegment, match="expected"):
        await store.manifest(moved)


def test_manifests_hold_what_a_segment_needs() -> None:
    whole = {kind: (1, 2) for kind in Kind if kind not in (Kind.MANIFEST, Kind.TXN_INDEX)}
    whole[Kind.LOG] = (len(LOG), 0)
    objects = {kind: ObjectSum(*two) for kind, two in whole.items()}
    manifest = Manifest(described(), objects)
    assert decode_manifest(encode_manifest(manifest)) == manifest
    with pytest.raises(ManifestBroken, match="timeindex"):
        Manifest(described(), {k: v for k, v in objects.items() if k is not Kind.TIME_INDEX})
    with pytest.raises(ManifestBroken, match="txnindex"):
        Manifest(described(txn=True), objects)
    with pytest.raises(ManifestBroken, match="log object of"):
        Manifest(described(), {**objects, Kind.LOG: ObjectSum(1, 0)})


def test_keys() -> None:
    one = described()
    for kind in Kind:
        place = parse_key(object_key(one, kind))
        assert place == (one.partition.topic_id, 0, one.segment_id, kind)
    assert keys_to_delete(one)[0] == object_key(one, Kind.MANIFEST)
    assert len(set(keys_to_delete(one))) == len(Kind)
    for key in ("", "a/b/c.log", "a/0/c", object_key(one, Kind.LOG) + "x", "x/" * 3):
        assert parse_key(key) is None


@pytest.mark.parametrize(
    "weather",
    [
        Weather(error=0.2),
        Weather(error_after_success=0.2),
        Weather(lost=0.2),
        Weather(error=0.05, error_after_success=0.05, lost=0.05, short=0.1, flipped=0.1),
    ],
    ids=["errors", "errors after success", "lost objects", "all"],
)
async def test_a_copy_that_came_back_is_whole_and_a_read_is_right_or_an_error(
    weather: Weather,
) -> None:
    """F33: no wrong byte is returned as data, whatever the store does.

    After enough attempts the store holds finished segments and nothing else.
    """
    for seed in range(12):
        bucket = MemoryObjects()
        objects = FaultyObjects(bucket, random.Random(seed), weather)
        store = SegmentStore(objects)
        finished, failed = None, []
        for number in range(1, 200):
            one = described(number, txn=True)
            try:
                await store.copy(one, sources(txn=True))
            except (ObjectError, CorruptSegment):
                failed.append(one)
                continue
            finished = one
            break
        assert finished is not None
        for one in failed:
            while True:
                try:
                    await store.delete(one)
                    break
                except ObjectError:
                    continue
        assert await verify(bucket, [as_finished(finished)], contents=True) == []
        right = 0
        for _ in range(40):
            try:
                data, checked = await store.read_log(finished, 0, len(LOG))
                assert data == LOG
                right += 1
                manifest = await store.manifest(finished)
                assert await store.read_whole(manifest, Kind.TXN_INDEX) == b"aborted"
            except (ObjectError, CorruptSegment):
                continue
        assert right


async def test_a_log_that_changed_its_size_is_not_copied() -> None:
    bucket = MemoryObjects()
    with pytest.raises(CorruptSegment, match="its last batch is cut"):
        await SegmentStore(bucket).copy(described(), sources(log=LOG + b"x"))
    assert bucket.keys == [object_key(described(), Kind.LOG)], "no manifest makes it whole"


# Findings of `tier verify` -----------------------------------------------------------------------

WRONG: dict[str, tuple[Callable[[MemoryObjects, RemoteSegment], None], set[Fault]]] = {
    "no log": (lambda bucket, one: drop(bucket, one, Kind.LOG), {Fault.MISSING}),
    "no index": (lambda bucket, one: drop(bucket, one, Kind.OFFSET_INDEX), {Fault.MISSING}),
    "no manifest": (lambda bucket, one: drop(bucket, one, Kind.MANIFEST), {Fault.MISSING}),
    "cut log": (
        lambda bucket, one: bucket.replace(object_key(one, Kind.LOG), LOG[:-1]),
        {Fault.WRONG_SIZE},
    ),
    "flipped log": (
        lambda bucket, one: bucket.replace(object_key(one, Kind.LOG), flipped(LOG, 70)),
        {Fault.WRONG_CONTENT},
    ),
    "broken manifest": (
        lambda bucket, one: bucket.replace(object_key(one, Kind.MANIFEST), b"KBXTx"),
        {Fault.NO_MANIFEST},
    ),
    "a stranger": (lambda bucket, one: bucket.replace("a/b", b""), {Fault.FOREIGN}),
    "an object too many": (
        lambda bucket, one: bucket.replace(object_key(one, Kind.TXN_INDEX), b"x"),
        {Fault.DANGLING},
    ),
    "a segment too many": (
        lambda bucket, one: bucket.replace(object_key(described(9), Kind.LOG), b"x"),
        {Fault.DANGLING},
    ),
    "nothing": (lambda bucket, one: None, set()),
}


def drop(bucket: MemoryObjects, one: RemoteSegment, kind: Kind) -> None:
    bucket._objects.pop(object_key(one, kind))


@pytest.mark.parametrize("case", WRONG)
async def test_verify_names_what_is_wrong(case: str) -> None:
    bucket = MemoryObjects()
    one = described()
    await SegmentStore(bucket).copy(one, sources())
    break_it, expected = WRONG[case]
    break_it(bucket, one)
    found = await verify(bucket, [as_finished(one)], contents=True)
    assert {finding.fault for finding in found} == expected


async def test_verify_reports_copies_in_progress_as_harmless_and_deleted_ones_as_dangling() -> None:
    bucket = MemoryObjects()
    one = described()
    await SegmentStore(bucket).copy(one, sources())
    begun = await verify(bucket, [one])
    assert {finding.fault for finding in begun} == {Fault.UNDER_WAY}
    assert all(finding.harmless for finding in begun)
    assert {finding.fault for finding in await verify(bucket, [])} == {Fault.DANGLING}


async def test_the_metadata_come_back_from_the_manifests() -> None:
    bucket = MemoryObjects()
    store = SegmentStore(bucket)
    for number in (3, 1, 2):
        await store.copy(described(number), sources())
    drop(bucket, described(2), Kind.LOG)
    drop(bucket, described(3), Kind.MANIFEST)
    records = await rebuild(bucket, broker_id=7, now_ms=5)
    assert records == [
        described(1),
        SegmentUpdate(
            partition=described(1).partition,
            segment_id=described(1).segment_id,
            broker_id=7,
            event_timestamp_ms=5,
            state=SegmentState.COPY_FINISHED,
        ),
    ]


class MisreadDisk(MemoryFiles):
    """A disk that misreads a file in one bit at `wrong_at`, from the read `begins` on."""

    def __init__(self, wrong_at: int, begins: int = 0) -> None:
        super().__init__()
        self.wrong_at, self.begins, self.reads = wrong_at, begins, 0

    async def pread(self, file: File, size_bytes: int, position: int) -> bytes:
        data = await super().pread(file, size_bytes, position)
        self.reads += 1
        at = self.wrong_at - position
        return flipped(data, at) if self.reads > self.begins and 0 <= at < len(data) else data


CHECKED = [at for at in range(len(LOG)) if at % (len(LOG) // 4) >= CRC_POSITION]


@pytest.mark.parametrize("at", CHECKED[::7])
async def test_a_log_that_is_read_wrongly_is_not_copied(at: int) -> None:
    """S1, F20: once the disks remove the segment, no correct copy would be left."""
    bucket = MemoryObjects()
    one = described()
    with pytest.raises(CorruptSegment, match="wrong CRC in the batch"):
        await SegmentStore(bucket).copy(one, sources(files=MisreadDisk(at)))
    assert bucket.keys == [object_key(one, Kind.LOG)], "no manifest makes it whole"
    assert (await bucket.head(bucket.keys[0])).size_bytes < len(LOG), "what is broken is not sent"


async def test_copy_of_a_corrupt_log_closes_its_readers_at_once() -> None:
    left: list[AsyncGenerator[object, object]] = []
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(finalizer=left.append)
    try:
        with pytest.raises(CorruptSegment):
            await SegmentStore(MemoryObjects()).copy(
                described(), sources(files=MisreadDisk(CHECKED[0]))
            )
    finally:
        sys.set_asyncgen_hooks(*hooks)
    assert not left


async def test_nor_is_one_whose_transactions_are_read_wrongly_as_they_are_put() -> None:
    """Their checksum was computed from a correct read."""
    bucket = MemoryObjects()
    disk = MisreadDisk(3, begins=1)
    file = disk.open("/aborted", create=True)
    file.append(b"aborted!")
    aborted = FileRange(disk, file, 0, 8)
    with pytest.raises(CorruptSegment, match="read otherwise"):
        await SegmentStore(bucket).copy(described(txn=True), replace(sources(), txn_index=aborted))
    assert object_key(described(), Kind.MANIFEST) not in bucket.keys


async def test_a_log_with_a_cut_batch_is_not_copied() -> None:
    one = replace(described(), size_bytes=len(LOG) - 1)
    with pytest.raises(CorruptSegment, match="a batch of 109 of 108 bytes"):
        await SegmentStore(MemoryObjects()).copy(one, sources(log=LOG[:-1]))


@pytest.mark.parametrize("part_bytes", [1, 7, 60, 61, 109, 200, 1 << 20])
def test_a_log_is_checked_in_parts_of_any_size(part_bytes: int) -> None:
    check = LogCheck(described(), 4096)
    for at in range(0, len(LOG), part_bytes):
        check.add(LOG[at : at + part_bytes])
    check.end()
    assert (check.size_bytes, check.crc32c) == (len(LOG), crc32c(LOG))


def test_a_length_that_leads_out_of_the_segment_is_noticed_at_once() -> None:
    """The buffer for an incomplete batch must not grow with a length read from the disk."""
    long = bytearray(LOG[:HEADER_BYTES])
    long[8:12] = (len(LOG) + 1).to_bytes(4, "big")
    with pytest.raises(CorruptSegment, match="a batch of"):
        LogCheck(described(), 4096).add(bytes(long))
