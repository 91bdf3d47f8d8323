"""Changes that the audit shares between partitions, without the fields that differ."""

from __future__ import annotations

import json

import pytest

from audit.decoding.records import JsonCache, PartitionChangeCache, without_local_logs
from protocol.metadata import PartitionChangeRecord, encode_record

TOPIC = bytes(range(16))
Entry = PartitionChangeRecord.ReplicaLocalLog


def change(size_bytes: int | None, **fields: object) -> bytes:
    local_logs = None
    if size_bytes is not None:
        local_logs = [Entry(broker_id=1, broker_epoch=2, size_bytes=size_bytes)]
    record = PartitionChangeRecord(
        partition_id=3, topic_id=TOPIC, isr=[1, 2], local_logs=local_logs, **fields
    )
    return encode_record(record, 2)


def test_reports_of_local_logs_share_one_change() -> None:
    cache = PartitionChangeCache()
    shared = cache.get(change(None))
    assert all(cache.get(change(size)) is shared for size in range(50))
    assert shared.isr == (1, 2)
    assert cache.get(change(1, leader=2)) is not shared


@pytest.mark.parametrize("tags", [None, {9_999: b"ab", 20_000: b"c"}])
def test_only_that_field_goes(tags: dict[int, bytes] | None) -> None:
    whole = change(7, unknown_tags=tags, election_cause="isr-change")
    plain = change(None, unknown_tags=tags, election_cause="isr-change")
    assert without_local_logs(whole) == plain
    assert without_local_logs(plain) is plain
    assert without_local_logs(whole[:-1] + b"") != plain  # damage is kept


def test_bytes_that_only_look_like_the_field_stay() -> None:
    looks = change(None, election_cause="\x92N")
    assert b"\x92\x4e" in looks or "\x92N".encode() in looks
    assert without_local_logs(looks) is looks


def test_a_row_shows_them_all_the_same() -> None:
    cache = JsonCache()
    for size in (5, 6, 5):
        fields = json.loads(cache.decode(change(size)).fields)
        assert [one["sizeBytes"] for one in fields["localLogs"]] == [size]
    assert "localLogs" not in json.loads(cache.decode(change(None)).fields)
    assert len(cache._known) == 1
