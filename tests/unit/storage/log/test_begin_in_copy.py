"""Followers' logs that begin inside a copied segment, with transactions around that offset (T2,
T5)."""

from __future__ import annotations

import pytest

from protocol.batch.control import build_end_txn_marker
from protocol.batch.records import Producer
from storage.log.bootstrap import Beginning
from storage.log.epochs import EpochEntry
from storage.log.indexes import AbortedTxn
from storage.log.log import Log
from storage.log.producers import Origin
from testkit.memory.logs import T0, append, batch, make_log

COPY_END = 11
"""End of the copied segment, and offset of its producer snapshot."""


def write(log: Log, producer_id: int, sequence: int) -> None:
    append(log, batch(producer=Producer(producer_id, 0, sequence, transactional=True)))


def end_txn(log: Log, producer_id: int, *, commit: bool) -> None:
    data = build_end_txn_marker(producer_id, 0, commit=commit, coordinator_epoch=1, timestamp_ms=T0)
    append(log, data, origin=Origin.COORDINATOR)


def leaders_log() -> Log:
    """Producers 1 and 4 abort, 2 and 3 commit; the segments are [0, 11) and [11, 13)."""
    log = make_log()
    append(log, batch())  # 0
    write(log, 1, 0)  # 1
    write(log, 2, 0)  # 2
    write(log, 3, 0)  # 3
    end_txn(log, 3, commit=True)  # 4
    write(log, 2, 1)  # 5
    write(log, 4, 0)  # 6
    end_txn(log, 1, commit=False)  # 7
    end_txn(log, 2, commit=True)  # 8
    write(log, 4, 1)  # 9
    end_txn(log, 4, commit=False)  # 10
    log.roll()
    append(log, batch())
    append(log, batch())
    log.update_high_watermark(log.log_end_offset)
    return log


async def begun(leader: Log, at: int, *, follower: Log) -> None:
    async def saved() -> None:
        return

    beginning = Beginning(
        log_start_offset=0,
        local_start_offset=at,
        epochs=(EpochEntry(0, 0),),
        producers=leader.files.read(leader.snapshots.path(COPY_END)),
        producers_offset=COPY_END,
        aborted=leader.segments[0].txn_index.entries(),
    )
    assert await follower.begin_at(beginning, saved)


def replicate(leader: Log, follower: Log, end: int) -> None:
    while follower.log_end_offset < end:
        data = leader.read(follower.log_end_offset, 1 << 20, max_offset=end)
        follower.append_as_follower(data)
    follower.update_high_watermark(end)


def at_offset(offset: int) -> Log:
    """Return a replica of the leader's log that ends at `offset`."""
    part = make_log()
    replicate(leaders_log(), part, offset)
    return part


@pytest.mark.parametrize("local", range(1, COPY_END + 1))
async def test_follower_begun_inside_copy_is_never_more_stable_than_the_leader(local: int) -> None:
    """T5: transactions that end in the copy behind the local start are unstable until then."""
    leader = leaders_log()
    follower = make_log(remote_storage_enable=True)
    await begun(leader, local, follower=follower)
    for end in range(local, leader.log_end_offset + 1):
        replicate(leader, follower, end)
        expected = at_offset(end).last_stable_offset
        assert follower.last_stable_offset <= expected
        if end >= COPY_END:
            assert follower.last_stable_offset == expected


@pytest.mark.parametrize("local", range(1, COPY_END + 1))
async def test_follower_begun_inside_copy_has_the_open_aborted_transactions(local: int) -> None:
    """T2: otherwise its transaction index would miss them, also after a restart."""
    leader = leaders_log()
    follower = make_log(remote_storage_enable=True)
    await begun(leader, local, follower=follower)
    follower.close(clean=False)
    follower = make_log(follower.files, remote_storage_enable=True)
    assert follower.log_end_offset == local
    of_aborts = {txn.first_offset for txn in leader.segments[0].txn_index.entries()}
    there = {state.txn_first_offset for state in at_offset(local).producers} & of_aborts
    assert {state.txn_first_offset for state in follower.producers} & of_aborts == there
    replicate(leader, follower, leader.log_end_offset)
    entries = follower.reader.aborted_transactions(local, leader.log_end_offset)
    expected = leader.reader.aborted_transactions(local, leader.log_end_offset)
    assert [txn[:3] for txn in entries] == [txn[:3] for txn in expected]


async def test_follower_begun_at_the_end_of_a_copy_is_stable_at_once() -> None:
    leader = leaders_log()
    follower = make_log(remote_storage_enable=True)
    await begun(leader, COPY_END, follower=follower)
    assert follower.last_stable_offset == COPY_END


async def test_reopened_transaction_of_an_expired_producer_ends_with_its_marker() -> None:
    """The snapshot of the copy may not contain the producer any more."""
    leader = leaders_log()
    follower = make_log(remote_storage_enable=True)
    leader.producers.expiration_ms = follower.producers.expiration_ms = 0
    await begun(leader, 7, follower=follower)
    assert follower.producers.unstable.first_open_offset == 1
    replicate(leader, follower, 9)
    assert follower.reader.aborted_transactions(0, 99) == [AbortedTxn(1, 1, 7, 6)]
