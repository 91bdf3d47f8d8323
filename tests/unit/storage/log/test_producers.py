"""Idempotent producers: sequences, epochs, wrap, expiry, snapshots (T1, T2)."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from protocol.batch.header import BatchHeader, parse_header
from protocol.batch.records import Producer
from protocol.codec import decode
from protocol.errors import ApiError, ErrorCode
from protocol.internal.producer_snapshot import ProducerSnapshot
from storage.log.producers import (
    CorruptSnapshot,
    EndMarker,
    Origin,
    ProducerStates,
    decode_snapshot,
)
from testkit.memory.logs import T0, batch

MAX = 2**31 - 1


def header(
    sequence: int, count: int = 1, *, pid: int = 1, epoch: int = 0, txn: bool = False, ts: int = T0
) -> BatchHeader:
    return parse_header(
        batch(count, timestamp=ts, producer=Producer(pid, epoch, sequence, transactional=txn))
    )


class Partition:
    """Producer states with a log end."""

    def __init__(self):
        self.states = ProducerStates(1000)
        self.end = 0

    def send(self, *args, origin=Origin.CLIENT, **options):
        """Return the offset of the first record; for a duplicate, minus that offset minus one."""
        one = header(*args, **options)
        duplicate = self.states.check([one], origin)
        if duplicate is not None:
            return -1 - duplicate.first_offset
        self.states.apply(one, self.end)
        self.end += one.record_count
        return self.end - one.record_count

    def refused(self, *args, **options) -> ErrorCode:
        before = self.states.encode_snapshot()
        with pytest.raises(ApiError) as error:
            self.send(*args, **options)
        assert self.states.encode_snapshot() == before
        return error.value.code

    def end_txn(self, *, pid=1, epoch=0, commit=True):
        marker = parse_header(batch(producer=Producer(pid, epoch, -1, True)))
        marker.attributes |= 0x20
        completed = self.states.apply(marker, self.end, EndMarker(commit, 3))
        self.end += 1
        return completed


@pytest.fixture
def log():
    return Partition()


def test_in_order(log):
    assert [log.send(at * 2, 2) for at in range(8)] == list(range(0, 16, 2))


def test_ahead_is_out_of_order(log):
    log.send(0, 3)
    assert log.refused(4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.refused(2**30) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.send(3) == 3


def test_the_last_five_are_known_and_older_ones_are_duplicates(log):
    for at in range(7):
        log.send(at * 2, 2)
    for at in range(2, 7):
        assert log.send(at * 2, 2) == -1 - at * 2
    for at in (0, 1):
        assert log.refused(at * 2, 2) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert log.send(14) == 14


def test_sequence_before_the_first_known_batch_is_out_of_order(log):
    """A log that lost a producer's batches treats a later one as its first.

    Batches before that one must not be acknowledged as duplicates.
    """
    assert log.send(38, 5) == 0
    assert log.refused(32, 5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.refused(36, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for at in range(6):
        log.send(43 + at)
    assert log.refused(38, 5) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert log.refused(37) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.send(0, epoch=1) == 11
    assert log.send(1, epoch=1) == 12


@pytest.mark.parametrize(
    ("sequence", "count"),
    [(6, 4), (6, 2), (2, 6), (0, 8), (7, 1), (6, 1), (4, 3), (4, 1), (2, 4), (4, 5)],
)
def test_a_batch_that_overlaps_a_known_one_and_is_not_it_is_out_of_order(log, sequence, count):
    """T1: a duplicate of an acknowledged batch has the same first and last sequence.

    Any other batch has other records, and its producer would treat a duplicate's answer as success.
    """
    log.send(0, 4)
    log.send(4, 4)
    assert log.refused(sequence, count) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.send(4, 4) == -5
    assert log.send(8) == 8


def test_a_batch_that_begins_before_the_known_ones_and_ends_in_one_is_out_of_order(log):
    for at in range(7):
        log.send(at * 2, 2)
    assert log.refused(2, 4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.refused(0, 4) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_batch_that_overlaps_a_known_one_across_the_wrap_is_out_of_order(log):
    log.send(MAX - 1, 4)
    assert log.refused(0, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.refused(MAX, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.send(MAX - 1, 4) == -1
    assert log.send(2) == 4


def test_sequences_wrap(log):
    assert log.send(MAX - 1, 2) == 0
    assert log.send(0, 3) == 2
    assert log.send(0, 3) == -3
    assert log.send(MAX - 1, 2) == -1
    assert log.refused(MAX - 3, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.refused(4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for at in range(3, 8):
        log.send(at)
    assert log.refused(MAX - 1, 2) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_batch_may_wrap_inside(log):
    log.send(MAX - 4, 2)
    assert log.send(MAX - 2, 5) == 2
    assert log.states.get(1).last_sequence == 1
    assert log.send(MAX - 2, 5) == -3
    assert log.send(2) == 7


def test_an_unknown_producer_may_begin_anywhere(log):
    assert log.send(500, pid=9) == 0


def test_epochs(log):
    log.send(0)
    assert log.refused(5, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.send(0, epoch=1) == 1
    assert log.refused(1, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.refused(0, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.send(1, epoch=1) == 2
    assert log.send(0, epoch=1) == -2


def test_several_batches_of_one_append_are_judged_together(log):
    fine = [header(0, 2), header(2), header(0, pid=2), header(3)]
    assert log.states.check(fine, Origin.CLIENT) is None
    with pytest.raises(ApiError):
        log.states.check([header(0, 2), header(3)], Origin.CLIENT)
    assert len(log.states) == 0


def test_only_clients_are_held_to_sequences(log):
    log.send(0)
    assert log.send(7, origin=Origin.RAFT_LEADER) == 1
    assert log.send(3, epoch=-1, pid=-1) == 2
    assert len(log.states) == 1


@given(
    st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(1, 4), st.integers(0, 6)), max_size=40)
)
def test_whatever_is_retried_appears_once(sends):
    log = Partition()
    history = {1: [], 2: []}
    for pid, count, back in sends:
        past = history[pid]
        if back and back <= len(past):
            sequence, size, offset = past[-back]
            if back <= 5:
                assert log.send(sequence, size, pid=pid) == -1 - offset
            else:
                assert log.refused(sequence, size, pid=pid) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        else:
            sequence = past[-1][0] + past[-1][1] if past else 0
            past.append((sequence, count, log.send(sequence, count, pid=pid)))
    offsets = sorted((o, n) for past in history.values() for _, n, o in past)
    assert [o for o, _ in offsets] == [
        sum(n for _, n in offsets[:at]) for at in range(len(offsets))
    ]


# Transactions --------------------------------------------------------------------------------


def test_open_and_unreplicated_transactions_are_unstable(log):
    log.send(0, pid=1, txn=True)
    log.send(0, pid=2, txn=True)
    assert log.states.first_unstable_offset == 0
    completed = log.end_txn(pid=1, commit=False)
    assert completed == (1, 0, 2, True)
    assert log.states.last_stable_offset_after(completed) == 1
    assert log.states.first_unstable_offset == 0
    log.states.on_high_watermark(2)
    assert log.states.first_unstable_offset == 0
    log.states.on_high_watermark(3)
    assert log.states.first_unstable_offset == 1
    log.end_txn(pid=2)
    log.states.on_high_watermark(4)
    assert log.states.first_unstable_offset is None


def test_plain_batches_have_no_place_in_an_open_transaction(log):
    log.send(0, txn=True)
    assert log.refused(1) == ErrorCode.INVALID_TXN_STATE
    assert log.send(1, txn=True) == 1
    log.end_txn()
    assert log.send(2) == 3


def test_marker_of_a_new_producer_epoch_restarts_sequences_at_zero(log):
    log.send(0, 3, txn=True)
    log.end_txn(epoch=1)
    assert log.refused(3, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.send(0, epoch=1) == 4
    assert log.states.get(1).coordinator_epoch == 3


def test_a_marker_without_transaction_ends_none(log):
    assert log.end_txn() is None
    assert log.states.first_unstable_offset is None


def test_transactions_below_the_log_start_are_forgotten(log):
    log.send(0, txn=True)
    log.end_txn()
    log.states.on_log_start(1)
    assert log.states.first_unstable_offset == 0
    log.states.on_log_start(2)
    assert log.states.first_unstable_offset is None


# Expiry --------------------------------------------------------------------------------------


def expired(states, now_ms):
    return sum(states.expiry_steps(now_ms))


def test_idle_producers_expire_but_not_in_a_transaction(log):
    log.send(0, pid=1, ts=T0)
    log.send(0, pid=2, ts=T0 + 5)
    log.send(0, pid=3, ts=T0, txn=True)
    assert expired(log.states, T0 + 999) == 0
    assert expired(log.states, T0 + 1000) == 1
    assert log.states.get(1) is None
    assert expired(log.states, T0 + 9999) == 1
    assert [state.producer_id for state in log.states] == [3]
    assert log.send(77, pid=1) == 3


# Snapshots -----------------------------------------------------------------------------------


def busy():
    log = Partition()
    for at in range(4):
        log.send(at * 2, 2, pid=1, ts=T0 + at)
    log.send(9, 1, pid=2, epoch=4, txn=True)
    log.send(0, 1, pid=3, txn=True)
    log.end_txn(pid=3, epoch=2, commit=False)
    return log


def test_a_snapshot_restores_what_it_holds():
    log = busy()
    again = ProducerStates(1000)
    again.load_snapshot(log.states.encode_snapshot(), T0)
    assert again.encode_snapshot() == log.states.encode_snapshot()
    assert again.first_unstable_offset == 8
    last = again.get(1).batches
    assert list(last) == list(log.states.get(1).batches)[-1:]
    assert again.get(3).last_sequence == -1
    with pytest.raises(ApiError) as refused:
        again.check([header(2, 2)], Origin.CLIENT)
    assert refused.value.code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_leave_out_from_drops_later_producers_without_an_earlier_transaction(log):
    log.send(0, pid=1)
    log.send(0, pid=2, txn=True)
    log.send(0, pid=3)
    log.send(1, pid=2, txn=True)
    log.send(0, pid=4, txn=True)
    log.states.leave_out_from(2)
    assert [one.producer_id for one in log.states] == [1, 2]
    assert log.states.first_unstable_offset == 1
    log.end_txn(pid=2)
    log.states.on_high_watermark(log.end)
    assert log.states.first_unstable_offset is None


def test_the_snapshot_is_kafkas_message():
    data = busy().states.encode_snapshot()
    assert data[:2] == b"\x00\x01"
    message, end = decode(ProducerSnapshot, data, 1, 2)
    assert end == len(data)
    assert message.crc == crc32c(data[6:])
    one, two, three = message.producer_entries
    assert (one.producer_id, one.epoch, one.last_sequence, one.last_offset) == (1, 0, 7, 7)
    assert (one.offset_delta, one.timestamp, one.coordinator_epoch) == (1, T0 + 3, -1)
    assert one.current_txn_first_offset == -1
    assert (two.epoch, two.current_txn_first_offset) == (4, 8)
    assert (three.last_sequence, three.last_offset, three.coordinator_epoch) == (-1, -1, 3)


def test_expired_producers_are_not_loaded():
    states = ProducerStates(1000)
    states.load_snapshot(busy().states.encode_snapshot(), T0 + 1001)
    assert sorted(state.producer_id for state in states) == [1, 2]


def test_snapshots_cut_garbled_or_of_another_version_are_refused():
    data = busy().states.encode_snapshot()
    states = busy().states
    broken = [data[:end] for end in range(len(data))]
    broken += [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]
    broken += [data + b"\0"]
    for one in broken:
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(one)
        with pytest.raises(CorruptSnapshot):
            states.load_snapshot(one, T0)
    assert states.encode_snapshot() == data


@given(st.binary(max_size=120))
def test_any_bytes_are_producers_or_corrupt(data):
    try:
        decode_snapshot(data)
    except CorruptSnapshot:
        return
    assert data[:2] == b"\x00\x01"


def test_an_empty_snapshot():
    data = ProducerStates(1).encode_snapshot()
    assert len(data) == 10
    assert decode_snapshot(data) == []
