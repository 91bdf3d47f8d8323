"""Producer snapshots that are encoded in steps after a roll (T2)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.batch.control import build_end_txn_marker
from protocol.batch.records import Producer
from runtime.slices import SLICE_MS
from storage.files import MemoryFiles
from storage.log import producer_history, snapshot_capture
from storage.log.log import Log
from storage.log.producers import Origin, ProducerState
from testkit.loop_holds import ToilClock, loop_holds
from testkit.memory.logs import DIRECTORY, T0, append, batch, make_log


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_history, "AT_ONCE_MAX", 3)
    monkeypatch.setattr(snapshot_capture, "STEP", 2)


def written(log: Log, offset: int) -> bytes:
    return log.files.read(f"{DIRECTORY}/{offset:020d}.snapshot")


def write(log: Log, producer_id: int, sequence: int, *, txn: bool = False) -> None:
    append(log, batch(producer=Producer(producer_id, 0, sequence, transactional=txn)))


def with_producers(count: int = 6) -> Log:
    log = make_log()
    for producer_id in range(count):
        write(log, producer_id, 0, txn=producer_id % 2 == 1)
    return log


async def test_snapshot_of_many_producers_is_written_by_the_flush_after_a_roll() -> None:
    log = with_producers()
    expected = log.producers.encode_snapshot()
    log.roll()
    assert log.snapshots.offsets == []
    write(log, 0, 1)
    write(log, 99, 0)
    await log.flush()
    assert log.snapshots.offsets == [6]
    assert written(log, 6) == expected
    assert not log.producer_history.is_encoding
    assert log.recovery_point == 8


def test_snapshot_of_few_producers_is_written_by_the_roll() -> None:
    log = with_producers(3)
    expected = log.producers.encode_snapshot()
    log.roll()
    assert written(log, 3) == expected


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["write", "end", "step", "expire"]), st.integers(0, 8))))
def test_captured_snapshot_is_that_of_the_roll_whatever_happens_during_the_steps(
    events: list[tuple[str, int]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer_history, "AT_ONCE_MAX", 3)
        patch.setattr(snapshot_capture, "STEP", 2)
        log = with_producers()
        expected = log.producers.encode_snapshot()
        log.roll()
        sequences = dict.fromkeys(range(6), 1)
        steps = log.producer_history.snapshot_steps()
        for event, number in events:
            if event == "write":
                sequence = sequences.get(number, 0)
                write(log, number, sequence, txn=number % 2 == 1)
                sequences[number] = sequence + 1
            elif event == "end":
                marker = build_end_txn_marker(
                    number, 0, commit=True, coordinator_epoch=1, timestamp_ms=T0
                )
                append(log, marker, origin=Origin.COORDINATOR)
            elif event == "step":
                next(steps, None)
            else:
                sum(log.producers.expiry_steps(T0 + 86_400_000 * 2))
                sequences = {at: last for at, last in sequences.items() if log.producers.get(at)}
        for _ in steps:
            pass
        assert written(log, 6) == expected


async def test_snapshot_above_a_truncation_is_dropped() -> None:
    log = with_producers()
    log.roll()
    log.truncate_to(5)
    assert not log.producer_history.is_encoding
    await log.flush()
    assert log.snapshots.offsets == []


async def test_snapshot_below_a_truncation_is_finished() -> None:
    log = with_producers()
    expected = log.producers.encode_snapshot()
    log.roll()
    write(log, 0, 1)
    log.truncate_to(6)
    await log.flush()
    assert written(log, 6) == expected


async def test_emptied_log_writes_no_snapshot_of_its_former_producers() -> None:
    log = with_producers()
    log.roll()
    log.truncate_fully_and_start_at(40)
    await log.flush()
    assert log.snapshots.offsets == []


def test_close_writes_a_snapshot_at_the_log_end() -> None:
    log = with_producers()
    log.roll()
    write(log, 0, 1)
    expected = log.producers.encode_snapshot()
    log.close()
    assert written(log, 7) == expected
    again = make_log(log.files, clean=True)
    assert again.producers.encode_snapshot() == expected


async def test_second_roll_begins_no_snapshot_before_the_first_is_finished() -> None:
    log = with_producers()
    log.roll()
    write(log, 0, 1)
    log.roll()
    await log.flush()
    assert log.snapshots.offsets == [6]
    write(log, 0, 2)
    log.roll()
    await log.flush()
    assert log.snapshots.offsets == [6, 8]


def test_crash_before_the_snapshot_is_finished_costs_a_replay_only() -> None:
    files = MemoryFiles()
    log = make_log(files)
    for producer_id in range(6):
        write(log, producer_id, 0)
    log.roll()
    expected = log.producers.encode_snapshot()
    log.close(clean=False)
    assert make_log(files).producers.encode_snapshot() == expected


class ToilingState(ProducerState):
    """A producer's state whose encoding counts as work."""

    clock: ToilClock

    @property
    def txn_first_offset(self) -> None:
        self.clock.toil(0.002)

    @txn_first_offset.setter
    def txn_first_offset(self, value: int | None) -> None:
        return


async def test_snapshot_of_very_many_producers_holds_the_loop_for_a_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """100,000 producers would block it for 100 ms."""
    monkeypatch.undo()
    clock = ToilClock()
    ToilingState.clock = clock
    log = make_log(clock=clock)
    append(log, batch())
    log.producers._producers.update((at, ToilingState(at)) for at in range(9_000))
    async with loop_holds(clock) as holds:
        log.roll()
        append(log, batch())
        await log.flush()
    assert log.snapshots.offsets == [1]
    assert len(written(log, 1)) > 9_000 * 46
    assert holds.longest_ms < 2 * SLICE_MS
