import struct

import pytest

from kraftbox.cli.log_files import DamagedFile, dump_file, is_known
from protocol.batch.records import Record, build_batch
from protocol.internal import encode_key, encode_versioned
from protocol.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol.metadata import TopicRecord, encode_record


def batch(*records: Record, base_offset: int = 0, control: bool = False) -> bytes:
    return build_batch(records, base_offset, control=control)


def dump(path, **options):
    return list(dump_file(path, **options))


@pytest.fixture
def segment(tmp_path):
    def write(data: bytes, directory: str = "t-0", name: str = "0" * 20 + ".log"):
        path = tmp_path / directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return path

    return write


def test_data_records(segment):
    path = segment(
        batch(Record(0, 5, b"k", b"v", [("h", b"\xff")]), Record(1, 6, None, b"\xfe"))
        + batch(Record(2, 7, None, None), base_offset=2)
    )
    items = dump(path)
    assert [item["kind"] for item in items] == ["batch", "record", "record", "batch", "record"]
    assert items[0]["count"] == 2 and items[0]["valid"]
    assert items[1]["key"] == "k" and items[1]["headers"] == [["h", "base64:/w=="]]
    assert items[2]["value"] == "base64:/g=="
    assert items[4]["offset"] == 2 and items[4]["value"] is None
    assert [item["kind"] for item in dump(path, records=False)] == ["batch", "batch"]


def test_a_batch_that_is_still_being_written_is_no_damage(segment):
    whole = batch(Record(0, 5, None, b"v"))
    assert len(dump(segment(whole + whole[:40]))) == 2


def test_a_wrong_crc_is_reported_after_what_stands_before(segment):
    whole = batch(Record(0, 5, None, b"v"))
    broken = bytearray(batch(Record(1, 5, None, b"w"), base_offset=1))
    broken[-1] ^= 1
    items = dump_file(segment(whole + bytes(broken)))
    assert [next(items)["kind"] for _ in range(3)] == ["batch", "record", "batch"]
    with pytest.raises(DamagedFile, match="CRC"):
        next(items)


def test_garbage_is_damage_and_preallocated_zeros_are_not(segment):
    whole = batch(Record(0, 5, None, b"v"))
    assert len(dump(segment(whole + bytes(4096)))) == 2
    with pytest.raises(DamagedFile):
        dump(segment(whole + b"\x01" * 100))


def test_metadata_log_and_snapshots_by_name(segment):
    topic = TopicRecord(name="orders", topic_id=bytes(range(16)))
    data = batch(Record(0, 5, None, encode_record(topic, 0)))
    for path in (
        segment(data, "__cluster_metadata-0"),
        segment(data, "__cluster_metadata-0", f"{0:020}-{0:010}.checkpoint"),
        segment(data, "x", "bootstrap.checkpoint"),
    ):
        record = dump(path)[1]
        assert record["type"] == "TopicRecord"
        assert record["value"]["name"] == "orders"


def test_undecodable_record_is_shown_as_bytes(segment):
    record = dump(segment(batch(Record(0, 5, None, b"plain")), "__cluster_metadata-0"))[1]
    assert record["value"] == "plain"
    assert "undecoded" in record


def test_group_records(segment):
    key = encode_key(OffsetCommitKey(group="g", topic="t", partition=1))
    value = encode_versioned(OffsetCommitValue(offset=7, metadata="m", commit_timestamp=1), 3)
    path = segment(batch(Record(0, 5, key, value), Record(1, 5, key, None)), "__consumer_offsets-3")
    commit, tombstone = dump(path)[1:]
    assert commit["type"] == "OffsetCommit"
    assert commit["key"] == {"group": "g", "topic": "t", "partition": 1}
    assert commit["value"]["offset"] == 7
    assert tombstone["tombstone"]


def test_indexes(segment):
    offsets = struct.pack(">iiiiii", 0, 0, 10, 4096, 0, 0)
    items = dump(segment(offsets, name=f"{100:020}.index"))
    assert items == [
        {"kind": "entry", "offset": 100, "position": 0},
        {"kind": "entry", "offset": 110, "position": 4096},
    ]
    times = struct.pack(">qi", 1_700_000_000_000, 3)
    assert dump(segment(times, name=f"{100:020}.timeindex"))[0]["offset"] == 103
    with pytest.raises(DamagedFile):
        dump(segment(times + b"x", name=f"{100:020}.timeindex"))


def test_text_files(segment):
    path = segment(b"version: 0\ntopic_id: x\n", name="partition.metadata")
    assert [item["text"] for item in dump(path)] == ["version: 0", "topic_id: x"]


def test_names(tmp_path):
    known = ["00000000000000000000.log", "00000000000000000000.index.deleted", "quorum-state"]
    assert all(is_known(tmp_path / name) for name in known)
    assert not is_known(tmp_path / "node.log")
