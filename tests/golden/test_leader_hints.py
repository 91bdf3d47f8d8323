"""KIP-951 as bytes: a refused produce and fetch in every version, compared with kio's encoding.

The expected response is built by hand and encoded by kio, which knows the schema from Kafka's
definitions and shares no code with ours. Without a hint the tagged fields are absent: the tag
sections are single zero bytes.
"""

from __future__ import annotations

import importlib
import io
from typing import Any

import pytest
from kio.serial import entity_writer

from metalog.image.values import ConfigResourceType
from protocol.api_keys import ApiKey
from protocol.batch.records import Record, build_batch
from protocol.errors import ErrorCode
from protocol.headers import response_header_version
from protocol.messages.fetch import FetchResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.schema import Response
from protocol.transport.dispatch import reply_parts
from testkit.memory.broker import OTHER, Harness, fetch_request, topic_id
from testkit.records.kio_messages import kio_classes, to_kio

KIO = {(name, version): path for name, version, path in kio_classes()}
LEADER = b"\x00\x09" + OTHER.to_bytes(4, "big") + (1).to_bytes(4, "big") + b"\x00"
"""A tag, nine bytes: leader id, epoch, and no tags of its own. The tag's number is put before."""
ENDPOINT = b"\x02" + OTHER.to_bytes(4, "big") + b"\x06host2" + (9092).to_bytes(4, "big")
ENDPOINTS = ENDPOINT + b"\x06rack2\x00"
"""An array of one node: id, host, port, rack, no tags."""


def refusing_broker(*, knows: bool) -> Harness:
    """Return a broker whose `t-0` has moved in epoch 1; clients get the new leader if `knows`."""
    h = Harness()
    h.set_config(
        "", "kraftbox.leader.discovery.enable", str(knows).lower(), ConfigResourceType.BROKER
    )
    h.create_topic(replicas=[OTHER], leader=OTHER)
    h.change(leader=OTHER)
    return h


def body_of(h: Harness, message: Any, version: int) -> bytes:
    api = ApiKey(message.API_KEY)
    _, parts = reply_parts(h.call(message, version), h.table.entries[api], version, 1)
    header_bytes = 4 + 4 + (response_header_version(api, version) > 0)
    return b"".join(bytes(part) for part in parts)[header_bytes:]


def by_kio(response: Response, version: int) -> bytes:
    module, _, name = KIO[type(response).__name__, version].partition(":")
    kio_class = getattr(importlib.import_module(module), name)
    buffer = io.BytesIO()
    entity_writer(kio_class)(buffer, to_kio(response, kio_class, version))
    return buffer.getvalue()


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("version", range(3, 14))
async def test_produce(version: int, knows: bool) -> None:
    by_id = version >= 13
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="" if by_id else "t",
                topic_id=topic_id(1),
                partition_data=[
                    ProduceRequest.PartitionProduceData(
                        index=0, records=build_batch([Record(timestamp=1, value=b"a")])
                    )
                ],
            )
        ],
    )
    body = body_of(refusing_broker(knows=knows), request, version)
    result = ProduceResponse.PartitionProduceResponse(
        index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1, log_start_offset=-1
    )
    expected = ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(
                name="" if by_id else "t",
                topic_id=topic_id(1) if by_id else bytes(16),
                partition_responses=[result],
            )
        ]
    )
    if knows and version >= 10:
        result.current_leader = ProduceResponse.LeaderIdAndEpoch(leader_id=OTHER, leader_epoch=1)
        expected.node_endpoints = [
            ProduceResponse.NodeEndpoint(node_id=OTHER, host="host2", port=9092, rack="rack2")
        ]
    assert body == by_kio(expected, version)
    assert (b"\x01" + LEADER in body) is (knows and version >= 10)
    if version >= 9:
        tags = b"\x01\x00" + bytes([len(ENDPOINTS)]) + ENDPOINTS
        assert body.endswith(tags if knows and version >= 10 else b"\x00\x00\x00\x00\x00\x00\x00")


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("version", range(4, 19))
async def test_fetch(version: int, knows: bool) -> None:
    by_id = version >= 13
    request = fetch_request(0, topic="" if by_id else "t")
    request.topics[0].topic_id = topic_id(1) if by_id else bytes(16)
    request.session_id, request.session_epoch = 0, -1
    body = body_of(refusing_broker(knows=knows), request, version)
    data = FetchResponse.PartitionData(
        partition_index=0,
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )
    expected = FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic="" if by_id else "t",
                topic_id=topic_id(1) if by_id else bytes(16),
                partitions=[data],
            )
        ]
    )
    if knows and version >= 16:
        data.current_leader = FetchResponse.LeaderIdAndEpoch(leader_id=OTHER, leader_epoch=1)
        expected.node_endpoints = [
            FetchResponse.NodeEndpoint(node_id=OTHER, host="host2", port=9092, rack="rack2")
        ]
    assert body == by_kio(expected, version)
    assert (b"\x01\x01" + LEADER[1:] in body) is (knows and version >= 16)
    if version >= 12:
        tags = b"\x01\x00" + bytes([len(ENDPOINTS)]) + ENDPOINTS
        assert body.endswith(tags if knows and version >= 16 else b"\x00\x00\x00")
