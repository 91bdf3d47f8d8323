"""Parsed Fetch responses of the metadata topic's leader."""

from __future__ import annotations

from broker.tiering import topic_link
from broker.tiering.topic_link import MetadataRead
from protocol.batch.header import patch
from protocol.batch.records import Record, build_batch
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse
from storage.log.epochs import EpochEntry


def read_of(**fields: object) -> MetadataRead:
    data = FetchResponse.PartitionData(partition_index=0, high_watermark=9, **fields)  # type: ignore[arg-type]
    return topic_link._read_of(data, 6)


def records(base_offset: int, epoch: int, count: int = 2) -> bytes:
    """Return a batch in its stored form."""
    data = bytearray(build_batch([Record(at, 0, None, b"v") for at in range(count)]))
    patch(data, base_offset, epoch)
    return bytes(data)


def test_read_contains_the_leader_epochs_of_its_batches() -> None:
    """S6: epochs reveal a lost end; the first batch may begin before the requested offset."""
    found = read_of(records=records(5, 1) + records(7, 1) + records(9, 4))
    assert [offset for offset, _ in found.records] == [6, 7, 8, 9, 10]
    assert found.epochs == [EpochEntry(1, 6), EpochEntry(4, 9)]
    assert found.next_offset == 11
    assert not found.diverges


def test_read_of_a_leader_without_what_was_read_before_diverges() -> None:
    """S6, KIP-595: the leader's diverging epoch makes the read diverge, without records."""
    diverging = FetchResponse.EpochEndOffset(epoch=0, end_offset=3)
    found = read_of(diverging_epoch=diverging, records=records(6, 1))
    assert found == MetadataRead(0, 6, [], 6, diverges=True)


def test_refusal_is_no_divergence() -> None:
    found = read_of(error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert found == MetadataRead(0, 6, [], 6, ErrorCode.OFFSET_OUT_OF_RANGE)
