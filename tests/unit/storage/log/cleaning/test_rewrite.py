"""Remains of a cleaned batch, and removal of transaction markers (T11)."""

from __future__ import annotations

import pytest

from protocol.batch.control import ControlType, build_control_batch, build_end_txn_marker
from protocol.batch.header import (
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    BatchHeader,
    crc_ok,
    parse_header,
    patch,
)
from protocol.batch.records import Producer, Record, build_batch, read_batch, varint
from protocol.compression import Codec
from storage.log.cleaning.key_offsets import ENTRY_BYTES, KEY_BYTES_MAX, KeyOffsets
from storage.log.cleaning.rewrite import LastBatch, Rewriter, collect
from storage.log.cleaning.transactions import Transactions
from storage.log.cleaning.walk import judge, walk
from storage.log.indexes import AbortedTxn

NOW = 50_000
RETENTION_MS = 1_000


def records(*pairs: tuple[bytes | None, bytes | None], time_ms: int = 100) -> list[Record]:
    return [
        Record(timestamp=time_ms + at, key=key, value=value)
        for at, (key, value) in enumerate(pairs)
    ]


def at_offset(batch: bytes, offset: int, epoch: int = 3) -> bytes:
    placed = bytearray(batch)
    patch(placed, offset, epoch)
    return bytes(placed)


def map_of(*batches: bytes) -> KeyOffsets:
    newest = KeyOffsets(1 << 20)
    for batch in batches:
        header = parse_header(batch)
        collect(batch, header, Transactions([]), newest, 0)
        newest.reaches(header.last_offset)
    return newest


def rewriter(newest: KeyOffsets, **options: object) -> Rewriter:
    values: dict[str, object] = {
        "transactions": Transactions([]),
        "active": {},
        "high_watermark": 1_000,
        "now_ms": NOW,
        "delete_retention_ms": RETENTION_MS,
        "leader_epoch": 3,
    }
    return Rewriter(newest=newest, **(values | options))  # type: ignore[arg-type]


def remains(one: Rewriter, batch: bytes) -> bytes | None:
    return one.remains(batch, parse_header(batch))


def contents(batch: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    header = parse_header(batch)
    assert crc_ok(batch, 0, len(batch)) and header.size_bytes == len(batch)
    return [(r.offset, r.timestamp, r.key, r.value) for r in read_batch(batch, 0, header)]


@pytest.mark.parametrize("producer", [Producer(), Producer(9, 0, 0, transactional=True)])
def test_a_frame_stays_where_an_epoch_begins(producer):
    """P18: an empty batch keeps the start of an epoch, by which followers know it (seed 2961).

    The batch contains no producer or transaction.
    """
    batches = [
        at_offset(build_batch(records((b"a", b"%d" % at)), 0, producer=producer), at, epoch)
        for at, epoch in enumerate((0, 0, 2, 2, 5, 5))
    ]
    newest = map_of(*batches)
    for _ in range(2):
        one = rewriter(newest, leader_epoch=0)
        left = [remains(one, batch) for batch in batches]
        batches = [batch for batch in left if batch is not None]
        told = [(parse_header(b).base_offset, parse_header(b).leader_epoch) for b in batches]
        assert told == [(2, 2), (4, 5), (5, 5)]
        assert [parse_header(batch).record_count for batch in batches] == [0, 0, 1]
        frame = parse_header(batches[0])
        assert not frame.has_producer_id and not frame.is_transactional


# Walking -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 300, 9000])
def test_a_walk_finds_what_the_reader_finds(size):
    key = b"k" * size
    batch = build_batch(
        [
            Record(timestamp=5 + 10**at, key=key[at:], value=b"v" * size, headers=[("h", None)])
            for at in range(12)
        ]
        + [Record(timestamp=0, key=None, value=None)] * 130
    )
    header = parse_header(batch)
    walked = walk(batch[HEADER_BYTES:], header)
    assert walked.offsets == list(range(142))
    expected = [record.key for record in read_batch(batch, 0, header)]
    assert [type(key) for key in walked.keys] == [
        int if key is not None and len(key) > KEY_BYTES_MAX else type(key) for key in expected
    ]
    shorts = [(a, b) for a, b in zip(walked.keys, expected, strict=True) if isinstance(a, bytes)]
    assert all(a == b for a, b in shorts)
    assert len(set(walked.keys)) == len(set(expected))


def test_bytes_that_are_no_records_are_refused_wherever_they_are_cut():
    batch = build_batch(records((b"key", b"value"), (None, b"x"), (b"k" * 99, None)))
    payload, header = batch[HEADER_BYTES:], parse_header(batch)
    for size in range(len(payload)):
        with pytest.raises(ValueError):
            walk(payload[:size], header)
    with pytest.raises(ValueError):
        walk(payload + b"\0", header)


@pytest.mark.parametrize(
    "body",
    [
        b"\0\0\0" + varint(50) + b"key",
        b"\0\0\0" + varint(-2) + b"value",
        b"\0" + b"\xff" * 11 + b"\0",
        b"",
        b"\0\0\0\0",
    ],
)
def test_lengths_that_lie_are_refused(body):
    header = parse_header(build_batch(records((b"k", b"v"))))
    with pytest.raises(ValueError):
        walk(varint(len(body)) + body, header)


def test_a_negative_record_length_is_refused():
    header = parse_header(build_batch(records((b"k", b"v"))))
    with pytest.raises(ValueError):
        walk(varint(-5) + b"\0\0\0\0\0\0\0\0", header)


def test_a_tombstone_may_spell_its_length_in_more_bytes():
    body = b"\0\0\0" + varint(1) + b"k" + b"\x81\x00" + b"\0"
    header = parse_header(build_batch(records((b"k", None))))
    newest = KeyOffsets(1 << 20)
    newest.update([(b"k", 0)])
    newest.reaches(0)
    assert judge(varint(len(body)) + body, header, newest, keep_tombstones=True).tombstones


# The map -------------------------------------------------------------------------------------


def test_the_map_is_full_at_its_budget():
    newest = KeyOffsets(10 * ENTRY_BYTES, load_factor=0.5)
    newest.update((b"%d" % at, at) for at in range(4))
    assert not newest.is_full and newest.utilization == 0.8
    newest.update([(b"4", 4), (None, 5)])
    assert newest.is_full and len(newest) == 5


def test_records_before_the_dirty_part_are_not_mapped():
    batch = at_offset(build_batch(records((b"a", b"1"), (b"b", b"2"), (b"c", b"3"))), 10)
    newest = KeyOffsets(1 << 20)
    collect(batch, parse_header(batch), Transactions([]), newest, 11)
    assert {key: at for key, at in newest.offsets.items() if key} == {b"b": 11, b"c": 12}


# Records -------------------------------------------------------------------------------------


def test_a_batch_that_keeps_everything_keeps_its_bytes():
    batch = build_batch(records((b"a", b"1"), (b"b", b"2")))
    assert remains(rewriter(map_of(batch)), batch) is batch


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_loses_records_keeps_its_frame(codec):
    old = at_offset(
        build_batch(
            records((b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (None, b"keyless")),
            producer=Producer(7, 2, 40, True),
            compression=codec,
        ),
        100,
    )
    new = at_offset(build_batch(records((b"a", b"4"))), 104)
    kept = remains(rewriter(map_of(old, new)), old)
    assert kept is not None
    assert contents(kept) == [(101, 101, b"b", b"2"), (102, 102, b"c", b"3")]
    before, after = parse_header(old), parse_header(kept)
    for name in BatchHeader.__slots__:
        if name not in ("batch_length", "crc", "record_count", "max_timestamp"):
            assert getattr(after, name) == getattr(before, name), name
    assert (after.record_count, after.max_timestamp) == (2, 102)


def test_the_brokers_time_stays_with_what_is_left():
    old = build_batch(records((b"a", b"1"), (b"b", b"2")), log_append_time_ms=777)
    new = at_offset(build_batch(records((b"b", b"3"))), 2)
    kept = remains(rewriter(map_of(old, new)), old)
    assert kept is not None and contents(kept) == [(0, 777, b"a", b"1")]


def test_records_behind_the_map_stay_as_they_are():
    old = build_batch(records((b"a", b"1"), (b"a", b"2")))
    newest = KeyOffsets(1 << 20)
    newest.update([(b"a", 0)])
    newest.reaches(0)
    assert remains(rewriter(newest), old) is old


def test_a_batch_without_a_record_left_goes():
    old = build_batch(records((b"a", b"1")))
    new = at_offset(build_batch(records((b"a", b"2"))), 1)
    one = rewriter(map_of(old, new))
    assert remains(one, old) is None
    assert (one.stats.records_read, one.stats.records_kept) == (1, 0)


@pytest.mark.parametrize(
    ("options", "stays"),
    [
        ({"active": {7: LastBatch(0, 2)}}, True),
        ({"active": {7: LastBatch(5, 2)}}, False),
        ({"active": {7: LastBatch(None, 2)}}, False),
        ({"active": {8: LastBatch(0, 2)}}, False),
        ({"high_watermark": 1}, True),
        ({"high_watermark": 2}, False),
    ],
)
def test_emptied_batch_stays_for_its_producer_and_below_the_high_watermark(options, stays):
    """Kafka 4.4: of other batches, only one that ends at the high watermark stays."""
    old = build_batch(records((b"a", b"1")), producer=Producer(7, 2, 40))
    new = at_offset(build_batch(records((b"a", b"2"))), 1)
    kept = remains(rewriter(map_of(old, new), **options), old)
    assert (kept is not None) == stays
    if kept is not None:
        header = parse_header(kept)
        assert contents(kept) == [] and header.record_count == 0
        assert (header.last_sequence, header.producer_epoch, header.last_offset) == (40, 2, 0)
        assert header.max_timestamp == 100


# Tombstones ----------------------------------------------------------------------------------


def test_a_tombstone_gets_its_horizon_and_goes_when_that_is_over():
    batch = build_batch(records((b"a", None), (b"b", b"2")))
    first = remains(rewriter(map_of(batch)), batch)
    assert first is not None
    header = parse_header(first)
    assert header.has_delete_horizon and header.base_timestamp == NOW + RETENTION_MS
    assert contents(first) == [(0, 100, b"a", None), (1, 101, b"b", b"2")]

    later = rewriter(map_of(batch), now_ms=NOW + RETENTION_MS - 1)
    assert remains(later, first) is first, "the horizon is set once"
    ripe = remains(rewriter(map_of(batch), now_ms=NOW + RETENTION_MS), first)
    assert ripe is not None and contents(ripe) == [(1, 101, b"b", b"2")]
    assert parse_header(ripe).base_timestamp == NOW + RETENTION_MS


def test_a_tombstone_that_was_superseded_sets_no_horizon():
    old = build_batch(records((b"a", None), (b"b", b"2")))
    new = at_offset(build_batch(records((b"a", b"3"))), 2)
    kept = remains(rewriter(map_of(old, new)), old)
    assert kept is not None and not parse_header(kept).has_delete_horizon


# Transactions --------------------------------------------------------------------------------


def transactional(offset: int, key: bytes = b"a", producer_id: int = 9) -> bytes:
    producer = Producer(producer_id, 0, offset, True)
    return at_offset(build_batch(records((key, b"%d" % offset)), producer=producer), offset)


def marker(offset: int, *, commit: bool, producer_id: int = 9) -> bytes:
    batch = build_end_txn_marker(
        producer_id, 0, commit=commit, coordinator_epoch=1, timestamp_ms=100
    )
    return at_offset(batch, offset)


def walk_through(one: Rewriter, *batches: bytes) -> list[bytes]:
    return [kept for kept in (remains(one, batch) for batch in batches) if kept is not None]


def with_horizon(batch: bytes) -> bool:
    return bool(parse_header(batch).attributes & DELETE_HORIZON_BIT)


def test_a_commit_marker_stays_while_a_record_of_it_is_left():
    log = [transactional(0), marker(1, commit=True)]
    for now_ms in (NOW, NOW + RETENTION_MS, NOW + 9 * RETENTION_MS):
        log = walk_through(rewriter(map_of(log[0]), now_ms=now_ms), *log)
        assert len(log) == 2 and not with_horizon(log[1])

    newer = at_offset(build_batch(records((b"a", b"new"))), 2)
    log = walk_through(rewriter(map_of(log[0], newer)), *log, newer)
    assert [parse_header(batch).base_offset for batch in log] == [1, 2]
    assert not with_horizon(log[0]), "this round still met a record"
    log = walk_through(rewriter(map_of(newer)), *log)
    assert len(log) == 2 and with_horizon(log[0])
    log = walk_through(rewriter(map_of(newer), now_ms=NOW + RETENTION_MS - 1), *log)
    assert len(log) == 2
    log = walk_through(rewriter(map_of(newer), now_ms=NOW + RETENTION_MS), *log)
    assert len(log) == 1


def test_aborted_records_go_at_once_and_their_marker_later():
    aborted = AbortedTxn(9, 0, 1, 2)
    log = [transactional(0), marker(1, commit=False)]
    one = rewriter(KeyOffsets(1 << 20), transactions=Transactions([aborted]))
    log = walk_through(one, *log)
    assert [parse_header(batch).base_offset for batch in log] == [1]
    assert not with_horizon(log[0]) and one.transactions.kept_entries == [aborted]

    one = rewriter(KeyOffsets(1 << 20), transactions=Transactions([aborted]))
    log = walk_through(one, *log)
    assert len(log) == 1 and with_horizon(log[0]) and one.transactions.kept_entries == []
    assert walk_through(rewriter(KeyOffsets(1 << 20), now_ms=NOW + RETENTION_MS), *log) == []


def test_an_emptied_batch_keeps_the_marker_of_its_transaction():
    aborted = AbortedTxn(9, 0, 1, 2)
    log = [transactional(0), marker(1, commit=False)]
    for _ in range(3):
        one = rewriter(
            KeyOffsets(1 << 20),
            transactions=Transactions([aborted]),
            active={9: LastBatch(0, 0)},
        )
        log = walk_through(one, *log)
        assert [parse_header(batch).record_count for batch in log] == [0, 1]
        assert not with_horizon(log[1])


def test_aborted_records_oust_nothing():
    kept = build_batch(records((b"a", b"committed")))
    aborted = transactional(1)
    newest = KeyOffsets(1 << 20)
    transactions = Transactions([AbortedTxn(9, 1, 2, 3)])
    for batch in (kept, aborted, marker(2, commit=False)):
        collect(batch, parse_header(batch), transactions, newest, 0)
    newest.reaches(2)
    assert newest.offsets[b"a"] == 0


def test_a_marker_has_no_key_that_a_record_could_oust():
    """KAFKA-14055: a marker's key is version and type, and a record's key may have the same
    bytes."""
    the_marker = marker(1, commit=True)
    same_key = next(read_batch(the_marker, 0, parse_header(the_marker))).key
    data = at_offset(build_batch(records((same_key, b"x"))), 2)
    log = walk_through(
        rewriter(map_of(transactional(0), the_marker, data)), transactional(0), the_marker, data
    )
    assert [parse_header(batch).base_offset for batch in log] == [0, 1, 2]


def test_transactions_of_one_producer_are_aborted_or_committed_separately():
    entries = [AbortedTxn(9, 0, 1, 2), AbortedTxn(9, 4, 5, 6)]
    one = Transactions(entries)
    aborted = [transactional(0), transactional(2), transactional(4)]
    markers = [marker(1, commit=False), marker(3, commit=True), marker(5, commit=False)]
    found = []
    for batch, end in zip(aborted, markers, strict=True):
        found.append(one.records_are_aborted(parse_header(batch)))
        commit = end is markers[1]
        assert not one.marker_is_idle(parse_header(end), commit)
    assert found == [True, False, True]
    assert one.kept_entries == entries


def test_other_control_batches_stay():
    batch = build_control_batch(
        [(ControlType.LEADER_CHANGE, b"who")], 0, leader_epoch=1, timestamp_ms=5
    )
    one = rewriter(KeyOffsets(1 << 20), now_ms=NOW * 99)
    assert remains(one, batch) is batch


def test_a_marker_is_kept_as_a_frame_for_a_producer_of_which_nothing_else_is_known():
    end = marker(1, commit=True)
    one = rewriter(KeyOffsets(1 << 20), active={9: LastBatch(None, 0)})
    first = remains(one, end)
    assert first is not None and with_horizon(first)
    ripe = rewriter(KeyOffsets(1 << 20), active={9: LastBatch(None, 0)}, now_ms=NOW + RETENTION_MS)
    frame = remains(ripe, first)
    assert frame is not None and contents(frame) == []
    assert remains(ripe, frame) == frame
    assert remains(rewriter(KeyOffsets(1 << 20)), frame) is None
