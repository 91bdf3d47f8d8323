"""The catalogue of all segments in the metadata topic, for readers of the whole topic."""

from __future__ import annotations

from protocol.ids import TopicId
from storage.tiered.catalogue import Catalogue
from storage.tiered.records import encode_record
from storage.tiered.states import SegmentState
from testkit.records.tier import PARTITION, segment, update

OTHER = PARTITION._replace(topic_id=TopicId(bytes(16)), topic="another")


def test_segments_of_all_partitions_by_name_and_offset() -> None:
    catalogue = Catalogue()
    catalogue.apply("m-0", 0, encode_record(segment(2, 10, 19)))
    catalogue.apply("m-0", 1, encode_record(segment(1, 0, 9)))
    catalogue.apply("m-1", 0, encode_record(segment(3, 0, 9, partition=OTHER)))
    catalogue.apply("m-0", 2, encode_record(update(1, SegmentState.COPY_FINISHED)))
    found = [(one.partition, one.start_offset, one.state) for one in catalogue.segments()]
    assert found == [
        (OTHER, 0, SegmentState.COPY_STARTED),
        (PARTITION, 0, SegmentState.COPY_FINISHED),
        (PARTITION, 10, SegmentState.COPY_STARTED),
    ]
    assert [one.partition for one in catalogue.segments("another")] == [OTHER]
    assert list(catalogue.segments("nowhere")) == []
    assert catalogue.refused == []


def test_catalogue_lists_unusable_records_and_ignores_them() -> None:
    catalogue = Catalogue()
    catalogue.apply("m-0", 0, None)
    catalogue.apply("m-0", 1, b"\x01\xff\x00")
    catalogue.apply("m-0", 2, encode_record(update(1, SegmentState.COPY_FINISHED)))
    assert list(catalogue.segments()) == []
    assert [one.split(":")[0] for one in catalogue.refused] == ["m-0 at 0", "m-0 at 1", "m-0 at 2"]
