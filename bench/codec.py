"""Codec speed: microseconds per call on typical messages.   python -m bench.codec"""

from __future__ import annotations

import timeit
from collections.abc import Callable

from protocol.api_keys import ApiKey
from protocol.codec import decode, encode, encode_parts
from protocol.compiler.decoder import compile_decoder
from protocol.compiler.encoder import compile_encoder
from protocol.compiler.plan import plan_message
from protocol.headers import RequestHeader, decode_request_header, encode_request_header
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.metadata import MetadataResponse
from protocol.messages.produce import ProduceRequest
from protocol.metadata import PartitionRecord, decode_record, encode_record

TOPIC_ID = b"t" * 16
RECORDS = bytes(1000)


def produce_request() -> ProduceRequest:
    partition = ProduceRequest.PartitionProduceData(index=3, records=RECORDS)
    topic = ProduceRequest.TopicProduceData(topic_id=TOPIC_ID, partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def fetch_request() -> FetchRequest:
    partition = FetchRequest.FetchPartition(fetch_offset=100, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic_id=TOPIC_ID, partitions=[partition])
    return FetchRequest(max_wait_ms=500, min_bytes=1, session_id=5, topics=[topic])


def fetch_response() -> FetchResponse:
    partition = FetchResponse.PartitionData(high_watermark=100, records=RECORDS)
    topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])
    return FetchResponse(session_id=4, responses=[topic])


def metadata_response() -> MetadataResponse:
    partitions = [
        MetadataResponse.MetadataResponsePartition(
            partition_index=index, leader_id=1, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
        )
        for index in range(1000)
    ]
    topic = MetadataResponse.MetadataResponseTopic(name="topic", partitions=partitions)
    return MetadataResponse(topics=[topic])


def report(name: str, call: Callable[[], object], number: int = 20_000) -> None:
    best = min(timeit.repeat(call, number=number, repeat=5)) / number
    print(f"{name:<55}{best * 1e6:10.2f} us")


def main() -> None:
    produce, fetch, response = produce_request(), fetch_request(), fetch_response()
    metadata, record = metadata_response(), PartitionRecord(replicas=[1, 2, 3], isr=[1, 2, 3])
    produced, fetched, answered = encode(produce, 13), encode(fetch, 17), encode(response, 17)
    described, recorded = encode(metadata, 12), encode_record(record, 2)
    header = encode_request_header(RequestHeader(ApiKey.FETCH, 17, 5, "consumer-1"))
    plan = plan_message(FetchResponse, 17)
    report("request header, decode", lambda: decode_request_header(header))
    report("Produce v13 request, 1 partition, decode", lambda: decode(ProduceRequest, produced, 13))
    report("Produce v13 request, 1 partition, encode", lambda: encode_parts(produce, 13))
    report("Fetch v17 request, 1 partition, decode", lambda: decode(FetchRequest, fetched, 17))
    report("Fetch v17 request, 1 partition, encode", lambda: encode(fetch, 17))
    report("Fetch v17 response, 1 partition, decode", lambda: decode(FetchResponse, answered, 17))
    report("Fetch v17 response, 1 partition, encode", lambda: encode_parts(response, 17))
    report(
        "Metadata v12 response, 1000 partitions, decode",
        lambda: decode(MetadataResponse, described, 12),
        100,
    )
    report("Metadata v12 response, 1000 partitions, encode", lambda: encode(metadata, 12), 100)
    report("partition record in its frame, decode", lambda: decode_record(recorded))
    report("partition record in its frame, encode", lambda: encode_record(record, 2))
    report("compile the Fetch v17 response decoder", lambda: compile_decoder(plan), 20)
    report("compile the Fetch v17 response encoder", lambda: compile_encoder(plan), 20)


if __name__ == "__main__":
    main()
