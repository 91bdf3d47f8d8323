"""Batches: B17 to B29 of the catalogue, with every record validated.

The fast path, which by default does not walk records, has its own tests.
"""

from __future__ import annotations

import gzip
import struct
import time
from functools import cache

import cramjam
import pytest

from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceRequest
from testkit.processes.peer import Target, Topic, produce_request
from testkit.records.lying_batches import batch, field, legacy_message, record, records, zigzag

E = ErrorCode
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
TRANSACTIONAL, CONTROL = 0x10, 0x20


TAKES_IT = E.NONE
FAILS_INSIDE = E.UNKNOWN_SERVER_ERROR


def refused(
    target: Target,
    topic: Topic,
    data: bytes | None,
    code: ErrorCode,
    *,
    kafka: ErrorCode | None = None,
    version: int = 12,
) -> None:
    """Assert that the batch is refused with this code, and that a good one is accepted after it.

    `kafka` is Apache Kafka's answer where it differs; TAKES_IT when it appends.
    """
    expected = kafka if target.is_kafka and kafka is not None else code
    result = target.produce(topic, data, version=version)
    assert E(result.error_code) is expected, result
    if expected is not TAKES_IT:
        assert result.base_offset == -1
    assert target.produce(topic, batch()).error_code == 0


@pytest.fixture(scope="module")
def topic(target: Target) -> Topic:
    return target.topic()


@pytest.fixture(scope="module")
def compacted(target: Target) -> Topic:
    return target.topic(configs={"cleanup.policy": "compact"})


def test_b17_bad_crc_and_the_others_go_on(target: Target) -> None:
    topic = target.topic(partitions=3)
    batches = {
        (topic.name, 0): batch(),
        (topic.name, 1): batch(crc=1),
        (topic.name, 2): batch(),
    }
    with target.connect() as peer:
        (one,) = peer.ask(produce_request(batches), 12).responses
        results = {
            result.index: (E(result.error_code), result.base_offset)
            for result in one.partition_responses
        }
        assert results == {0: (E.NONE, 0), 1: (E.CORRUPT_MESSAGE, -1), 2: (E.NONE, 0)}
    assert target.produce(topic, batch(), partition=1).base_offset == 0


@pytest.mark.parametrize("length", [-1, 0, 13, 48])
def test_b18_batch_length_below_the_header(target: Target, topic: Topic, length: int) -> None:
    refused(target, topic, batch(length=length), E.CORRUPT_MESSAGE)


@pytest.mark.parametrize("more", [1, 100, 2**31 - 200])
def test_b18_batch_length_beyond_the_request(target: Target, topic: Topic, more: int) -> None:
    data = batch()
    lie = batch(length=len(data) - 12 + more)
    refused(target, topic, lie, E.CORRUPT_MESSAGE, kafka=E.INVALID_RECORD)


@pytest.mark.parametrize("cut", [1, 5, 20, 60])
def test_b18_truncated_batch(target: Target, topic: Topic, cut: int) -> None:
    refused(target, topic, batch()[:-cut], E.CORRUPT_MESSAGE, kafka=E.INVALID_RECORD)


def test_b18_truncated_last_batch(target: Target, topic: Topic) -> None:
    # Kafka does not read the second one.
    refused(target, topic, batch() + batch()[:-1], E.INVALID_RECORD, kafka=TAKES_IT)


def test_b18_batch_length_inside_its_content(target: Target, topic: Topic) -> None:
    data = batch(records(3), 3)
    lie = batch(records(3), 3, length=len(data) - 12 - 4)
    refused(target, topic, lie, E.INVALID_RECORD, kafka=E.CORRUPT_MESSAGE)


@pytest.mark.parametrize("data", [None, b""])
def test_b18_no_batch_at_all(target: Target, topic: Topic, data: bytes | None) -> None:
    if target.is_kafka and data is None:
        pytest.skip("Apache Kafka fails inside and never answers")
    refused(target, topic, data, E.INVALID_RECORD)


def test_b19_two_batches(target: Target, topic: Topic) -> None:
    refused(target, topic, batch() + batch(), E.INVALID_RECORD)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("version", [3, 7, 12])
def test_b19_old_messages(target: Target, topic: Topic, magic: int, version: int) -> None:
    refused(target, topic, legacy_message(magic), E.INVALID_RECORD, version=version)


@pytest.mark.parametrize("magic", [3, 127, -1])
def test_b19_magic_of_the_future(target: Target, topic: Topic, magic: int) -> None:
    refused(target, topic, batch(magic=magic), E.CORRUPT_MESSAGE)


@pytest.mark.parametrize(
    ("count", "last_offset_delta"), [(1, 1), (2, 0), (3, -1), (-1, 0), (-1, -2), (0, 0), (0, -1)]
)
def test_b20_count_and_last_offset(
    target: Target, topic: Topic, count: int, last_offset_delta: int
) -> None:
    data = batch(records(max(count, 0)), count, last_offset_delta=last_offset_delta)
    refused(target, topic, data, E.INVALID_RECORD)


@pytest.mark.parametrize("count", [2, 2**31 - 1])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_b20_more_records_than_there_are(
    target: Target, topic: Topic, count: int, codec: int
) -> None:
    payload = records(1) if not codec else gzip.compress(records(1))
    refused(target, topic, batch(payload, count, attributes=codec), E.INVALID_RECORD)


@pytest.mark.parametrize("codec", [0, GZIP])
def test_b20_fewer_records_than_there_are(target: Target, topic: Topic, codec: int) -> None:
    payload = records(3) if not codec else gzip.compress(records(3))
    refused(target, topic, batch(payload, 2, attributes=codec), E.INVALID_RECORD)


@pytest.mark.parametrize("deltas", [(0, 2), (0, 0), (1, 0), (1, 2), (-1, 0)])
def test_b20_offsets_that_are_not_dense(
    target: Target, topic: Topic, deltas: tuple[int, int]
) -> None:
    payload = b"".join(record(offset_delta=delta) for delta in deltas)
    refused(target, topic, batch(payload, 2), E.INVALID_RECORD, kafka=TAKES_IT)
    lie = batch(gzip.compress(payload), 2, attributes=GZIP)
    refused(target, topic, lie, E.INVALID_RECORD, kafka=FAILS_INSIDE)


def test_b20_base_offset_other_than_zero(target: Target, topic: Topic) -> None:
    refused(target, topic, batch(base_offset=1), E.INVALID_RECORD)


def test_b21_control_batch(target: Target, topic: Topic) -> None:
    refused(target, topic, batch(attributes=CONTROL), E.INVALID_RECORD)
    data = batch(
        attributes=CONTROL | TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0
    )
    refused(
        target,
        topic,
        data,
        E.INVALID_RECORD,
        kafka=E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )


def test_b21_transactional_batch_without_transactional_id(target: Target, topic: Topic) -> None:
    data = batch(attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0)
    refused(target, topic, data, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


@pytest.mark.parametrize("sequence", [-1, -2])
def test_b21_producer_id_without_sequence(target: Target, topic: Topic, sequence: int) -> None:
    data = batch(producer_id=7, producer_epoch=0, base_sequence=sequence)
    refused(target, topic, data, E.INVALID_RECORD)


def test_b22_record_size_lies(target: Target, topic: Topic) -> None:
    good = record()
    for size in (0, 1, len(good) - 2, len(good), 10_000, 2**31 - 1, -1, -(2**31)):
        refused(target, topic, batch(record(size=size)), E.INVALID_RECORD)


@pytest.mark.parametrize(
    "headers",
    [
        zigzag(-1),
        zigzag(1),
        zigzag(1000),
        zigzag(2**31 - 1),
        zigzag(1) + field(None) + field(b"value"),
        zigzag(1) + zigzag(-2) + field(b"value"),
        zigzag(1) + zigzag(50) + b"k",
    ],
)
def test_b22_headers_that_lie(target: Target, topic: Topic, headers: bytes) -> None:
    refused(target, topic, batch(record(headers=headers)), E.INVALID_RECORD)


@pytest.mark.parametrize("codec", [0, GZIP])
def test_b22_no_key_on_a_compacted_topic(target: Target, compacted: Topic, codec: int) -> None:
    payload = record(key=b"k") + record(offset_delta=1) + record(key=b"k", offset_delta=2)
    payload += record(offset_delta=3)
    data = batch(gzip.compress(payload) if codec else payload, 4, attributes=codec)
    with target.connect() as peer:
        (one,) = peer.ask(produce_request({(compacted.name, 0): data}), 12).responses
        (result,) = one.partition_responses
    assert result.error_code == E.INVALID_RECORD
    assert [error.batch_index for error in result.record_errors] == [1, 3]
    assert target.produce(compacted, batch(record(key=b"k"))).error_code == 0


def test_b23_timestamps_out_of_range(target: Target) -> None:
    hour_ms = 3_600_000
    topic = target.topic(
        configs={
            "message.timestamp.before.max.ms": str(hour_ms),
            "message.timestamp.after.max.ms": str(hour_ms),
        }
    )
    now_ms = int(time.time() * 1000)
    for off_ms in (2 * hour_ms, -2 * hour_ms):
        payload = record() + record(offset_delta=1, timestamp_delta=off_ms)
        data = batch(payload, 2, base_timestamp=now_ms, max_timestamp=max(now_ms, now_ms + off_ms))
        result = target.produce(topic, data)
        assert E(result.error_code) is E.INVALID_TIMESTAMP
        assert [error.batch_index for error in result.record_errors] == [1]
    assert target.produce(topic, batch()).error_code == 0


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_b24_unknown_codec(target: Target, topic: Topic, codec: int) -> None:
    refused(
        target,
        topic,
        batch(attributes=codec),
        E.UNSUPPORTED_COMPRESSION_TYPE,
        kafka=FAILS_INSIDE,
    )


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_b24_garbage_instead_of_compressed_records(
    target: Target, topic: Topic, codec: int
) -> None:
    for garbage in (b"garbage" * 10, b"\xff" * 50, b"\x00" * 50):
        data = batch(garbage, attributes=codec)
        refused(target, topic, data, E.CORRUPT_MESSAGE, kafka=FAILS_INSIDE)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_b24_cut_compressed_records(target: Target, topic: Topic, codec: int) -> None:
    whole = compressed(codec, records(100, value=bytes(range(100))))
    for cut in (1, 10, len(whole) // 2):
        data = batch(whole[:-cut], 100, attributes=codec)
        refused(target, topic, data, E.CORRUPT_MESSAGE, kafka=FAILS_INSIDE)


def test_b24_xerial_framing_cut(target: Target, topic: Topic) -> None:
    block = bytes(cramjam.snappy.compress_raw(records(10)))
    head = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    good = head + struct.pack(">i", len(block)) + block
    assert target.produce(topic, batch(good, 10, attributes=SNAPPY)).error_code == 0
    for bad in (
        good[:-1],
        head + struct.pack(">i", -1) + block,
        head + struct.pack(">i", len(block) + 1) + block,
        head + struct.pack(">i", 2**31 - 1) + block,
    ):
        data = batch(bad, 10, attributes=SNAPPY)
        refused(target, topic, data, E.CORRUPT_MESSAGE, kafka=FAILS_INSIDE)
    cut = batch(head + b"\x00\x00", 10, attributes=SNAPPY)
    refused(target, topic, cut, E.CORRUPT_MESSAGE, kafka=E.INVALID_RECORD)
    refused(target, topic, batch(head, 10, attributes=SNAPPY), E.INVALID_RECORD)


def test_b24_zstd_before_it_was_there(target: Target, topic: Topic) -> None:
    data = batch(compressed(ZSTD, records(1)), attributes=ZSTD)
    refused(target, topic, data, E.UNSUPPORTED_COMPRESSION_TYPE, version=6)


@pytest.mark.parametrize("codec", [GZIP, ZSTD, LZ4])
def test_b25_bomb_in_one_record(target: Target, topic: Topic, codec: int) -> None:
    """300 MB of zeros in one record.

    Kafka skips them during validation and accepts the batch; our node stops at
    kraftbox.produce.decompressed.max.bytes.
    """
    data = batch(bomb(codec), attributes=codec)
    assert len(data) < 2_000_000
    refused(
        target,
        target.topic(configs={"max.message.bytes": "2000000"}),
        data,
        E.MESSAGE_TOO_LARGE,
        kafka=TAKES_IT,
    )


def test_b25_bomb_of_many_records(target: Target, topic: Topic) -> None:
    payload = gzip.compress(record(b"") * 2_000_000)
    data = batch(payload, 2_000_000, attributes=GZIP)
    began = time.monotonic()
    refused(target, topic, data, E.INVALID_RECORD, kafka=FAILS_INSIDE)
    assert time.monotonic() - began < 20.0


@pytest.mark.parametrize("magic", [0, 1])
def test_b26_nested_wrapper(target: Target, topic: Topic, magic: int) -> None:
    inner = gzip.compress(legacy_message(magic))
    for _ in range(3):
        inner = gzip.compress(legacy_message(magic, inner, attributes=GZIP))
    refused(target, topic, legacy_message(magic, inner, attributes=GZIP), E.INVALID_RECORD)


def test_b27_batch_over_the_limit(target: Target) -> None:
    topic = target.topic(configs={"max.message.bytes": "1000"})
    data = batch(record(bytes(1000)))
    assert E(target.produce(topic, data).error_code) is E.MESSAGE_TOO_LARGE
    assert target.produce(topic, batch()).error_code == 0


def test_b27_batch_over_a_segment(target: Target) -> None:
    topic = target.topic(configs={"segment.bytes": "1048576", "max.message.bytes": "3000000"})
    data = batch(record(bytes(2_000_000)))
    assert E(target.produce(topic, data).error_code) is E.RECORD_LIST_TOO_LARGE
    assert target.produce(topic, batch()).error_code == 0


@pytest.mark.parametrize("acks", [2, -2, 32767, -32768])
def test_b28_acks_that_do_not_exist(target: Target, topic: Topic, acks: int) -> None:
    result = target.produce(topic, batch(), acks=acks)
    assert E(result.error_code) is E.INVALID_REQUIRED_ACKS
    assert result.base_offset == -1


def test_b28_an_error_without_acks_closes(target: Target, topic: Topic) -> None:
    for bad in (
        produce_request({(topic.name, 0): batch(crc=1)}, acks=0),
        produce_request({("no-such-topic", 0): batch()}, acks=0),
        produce_request({(topic.name, 99): batch()}, acks=0),
    ):
        with target.connect() as peer:
            peer.ask_later(bad, 12)
            assert peer.is_closed()
    with target.connect() as peer:
        peer.ask_later(produce_request({(topic.name, 0): batch()}, acks=0), 12)
        peer.works()


@pytest.mark.parametrize("partition", [-1, 1, 2**31 - 1, -(2**31)])
def test_b29_partition_that_does_not_exist(target: Target, topic: Topic, partition: int) -> None:
    result = target.produce(topic, batch(), partition=partition)
    assert E(result.error_code) is E.UNKNOWN_TOPIC_OR_PARTITION


def test_b29_a_partition_named_twice(target: Target) -> None:
    topic = target.topic()
    data = [
        ProduceRequest.PartitionProduceData(index=0, records=batch(records(n), n)) for n in (1, 2)
    ]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic.name, partition_data=data)],
    )
    with target.connect() as peer:
        (one,) = peer.ask(request, 12).responses
        assert [(r.index, r.error_code, r.base_offset) for r in one.partition_responses] == [
            (0, 0, 0)
        ]
    assert target.produce(topic, batch()).base_offset in (1, 2)


def test_b29_a_topic_named_twice(target: Target) -> None:
    topic = target.topic()
    part = ProduceRequest.PartitionProduceData(index=0, records=batch())
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            ProduceRequest.TopicProduceData(name=topic.name, partition_data=[part])
            for _ in range(2)
        ],
    )
    with target.connect() as peer:
        answer = peer.ask(request, 12)
        results = [r for one in answer.responses for r in one.partition_responses]
        assert {r.error_code for r in results} == {0}
    assert target.produce(topic, batch()).base_offset == 1


def test_b29_a_hundred_thousand_partitions(target: Target, topic: Topic) -> None:
    data = batch()
    parts = [ProduceRequest.PartitionProduceData(index=n, records=data) for n in range(1, 100_001)]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic.name, partition_data=parts)],
    )
    with target.connect(60.0) as peer:
        (one,) = peer.ask(request, 12).responses
        assert len(one.partition_responses) == 100_000
        assert {r.error_code for r in one.partition_responses} == {E.UNKNOWN_TOPIC_OR_PARTITION}
        peer.works()


def compressed(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return gzip.compress(data)
    if codec == SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(data))
        return b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block)) + block
    if codec == LZ4:
        from protocol.compression import Codec, compress

        return compress(Codec.LZ4, data)
    return bytes(cramjam.zstd.compress(data))


@cache
def bomb(codec: int) -> bytes:
    return compressed(codec, record(bytes(300_000_000)))
