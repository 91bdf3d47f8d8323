"""Metadata: the response on each listener, in every version, from cached bytes."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

import pytest

from broker.apis import metadata
from broker.metadata import topic_view as topic_view_module
from broker.metadata.lost_brokers import HOLD_MAX_MS, LISTED_MS
from broker.metadata.topic_view import Reachable, encode_topic, split_response, topic_view
from protocol.api_keys import ApiKey
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.headers import decode_request_header, decode_response_header, response_header_bytes
from protocol.ids import ZERO_UUID
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from protocol.messages.envelope import EnvelopeResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.metadata.fence_broker_record import FenceBrokerRecord
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.metadata.register_broker_record import RegisterBrokerRecord
from protocol.metadata.unfence_broker_record import UnfenceBrokerRecord
from protocol.transport.dispatch import reply_parts
from runtime.config import keys_quorum
from runtime.slices import SLICE_MS
from serving.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from testkit.loop_holds import ToilClock, loop_holds
from testkit.memory.broker import LISTENER, NODE, OTHER, Harness, settle, topic_id

VERSIONS = range(14)
Topic = MetadataRequest.MetadataRequestTopic


def ask(*names: str, **fields: Any) -> MetadataRequest:
    return MetadataRequest(topics=[Topic(name=name) for name in names], **fields)


def everything(version: int) -> MetadataRequest:
    return MetadataRequest(topics=[] if version == 0 else None)


def fence(h: Harness, broker_id: int) -> None:
    h.replay(FenceBrokerRecord(id=broker_id, epoch=100 + broker_id))


@pytest.mark.parametrize("version", VERSIONS)
async def test_metadata_has_brokers_topics_and_partitions_in_every_version(version: int) -> None:
    h = Harness()
    h.create_topic("a", number=1, partitions=2)
    h.create_topic("b", number=2, replicas=[OTHER, NODE], leader=OTHER)
    response = h.body(everything(version), version)
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == [
        (NODE, "host1", 9091),
        (OTHER, "host2", 9092),
    ]
    assert [t.name for t in response.topics] == ["a", "b"]
    assert [p.partition_index for p in response.topics[0].partitions] == [0, 1]
    partition = response.topics[1].partitions[0]
    assert (partition.error_code, partition.leader_id) == (0, OTHER)
    assert (partition.replica_nodes, partition.isr_nodes) == ([OTHER, NODE], [OTHER, NODE])
    if version >= 1:
        assert response.controller_id in (NODE, OTHER)
    if version >= 2:
        assert response.cluster_id == "cluster"
    if version >= 7:
        assert partition.leader_epoch == 0
    if version >= 10:
        assert response.topics[1].topic_id == topic_id(2)


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_assembled_bytes_are_those_of_the_codec(version: int) -> None:
    h = Harness()
    h.create_topic("a", number=1, partitions=3, replicas=[NODE, OTHER])
    h.create_topic("__consumer_offsets", number=2)
    h.replay(RegisterBrokerRecord(broker_id=9, broker_epoch=109, incarnation_id=bytes(16)))
    reachable = Reachable(h.metadata, LISTENER)
    topics = [
        topic_view(h.metadata.image.topics.by_name[name], reachable, version, operations=True)
        for name in h.metadata.topic_names()
    ]
    response = MetadataResponse(topics=topics, cluster_id="x", controller_id=3)
    whole = encode(response, version)
    response.topics = []
    head, tail = split_response(response, version)
    count = b"\x03" if version >= 9 else (2).to_bytes(4, "big")
    assert head + count + b"".join(encode_topic(t, version) for t in topics) + tail == whole


async def test_null_means_all_and_an_empty_list_none() -> None:
    h = Harness()
    h.create_topic("a")
    assert len(h.body(MetadataRequest(topics=None), 1).topics) == 1
    assert h.body(MetadataRequest(topics=[]), 1).topics == []
    assert len(h.body(MetadataRequest(topics=[]), 0).topics) == 1


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("../../etc/x", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a\0b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("%2e%2e", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
async def test_unknown_and_illegal_names(name: str, code: ErrorCode) -> None:
    h = Harness()
    for version in VERSIONS:
        topic = h.body(ask(name), version).topics[0]
        assert (topic.error_code, topic.name) == (code, name)
    await settle()
    await h.supervisor.close()


async def test_topics_by_id() -> None:
    h = Harness()
    h.create_topic("a")
    by_id = MetadataRequest(
        topics=[Topic(name=None, topic_id=topic_id(1)), Topic(name=None, topic_id=topic_id(5))]
    )
    known, unknown = h.body(by_id, 12).topics
    assert (known.name, known.error_code) == ("a", 0)
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (
        None,
        topic_id(5),
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
    refused = h.body(by_id, 11).topics[0]
    assert refused.error_code == ErrorCode.INVALID_REQUEST


async def test_metadata_returns_duplicate_name_once() -> None:
    h = Harness()
    h.create_topic("a")
    assert len(h.body(ask("a", "a"), 12).topics) == 1


async def test_metadata_has_authorized_operations_on_request_only() -> None:
    h = Harness()
    h.create_topic("a")
    asked = h.body(
        ask(
            "a",
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        ),
        8,
    )
    assert asked.topics[0].topic_authorized_operations == TOPIC_OPERATIONS == 3576
    assert asked.cluster_authorized_operations == CLUSTER_OPERATIONS == 8096
    unknown = h.body(ask("b", "a b", include_topic_authorized_operations=True), 8)
    assert {one.topic_authorized_operations for one in unknown.topics} == {TOPIC_OPERATIONS}
    plain = h.body(ask("a"), 8)
    assert plain.topics[0].topic_authorized_operations == NOT_ASKED
    assert plain.cluster_authorized_operations == NOT_ASKED


async def test_a_fenced_broker_is_no_broker_no_leader_and_an_offline_replica() -> None:
    h = Harness()
    h.create_topic("a", replicas=[OTHER, NODE], leader=OTHER)
    before = h.body(ask("a"), 12).topics[0].partitions[0]
    assert (before.leader_id, before.offline_replicas) == (OTHER, [])
    fence(h, OTHER)
    response = h.body(ask("a"), 12)
    partition = response.topics[0].partitions[0]
    assert [b.node_id for b in response.brokers] == [NODE]
    assert (partition.error_code, partition.leader_id, partition.offline_replicas) == (
        ErrorCode.LEADER_NOT_AVAILABLE,
        -1,
        [OTHER],
    )
    h.replay(UnfenceBrokerRecord(id=OTHER, epoch=102))
    again = h.body(ask("a"), 12).topics[0].partitions[0]
    assert (again.leader_id, again.offline_replicas) == (OTHER, [])


async def test_version_0_leaves_out_replicas_that_cannot_be_reached() -> None:
    h = Harness()
    h.create_topic("a", replicas=[NODE, OTHER])
    fence(h, OTHER)
    partition = h.body(ask("a"), 0).topics[0].partitions[0]
    assert (partition.error_code, partition.replica_nodes, partition.isr_nodes) == (
        ErrorCode.REPLICA_NOT_AVAILABLE,
        [NODE],
        [NODE],
    )


async def test_a_leader_on_another_listener_only() -> None:
    h = Harness()
    h.replay(
        RegisterBrokerRecord(
            broker_id=3,
            broker_epoch=103,
            incarnation_id=bytes(16),
            end_points=[
                RegisterBrokerRecord.BrokerEndpoint(name="INTERNAL", host="secret", port=1)
            ],
        ),
        UnfenceBrokerRecord(id=3, epoch=103),
    )
    h.create_topic("a", replicas=[3], leader=3)
    response = h.body(ask("a"), 12)
    assert "secret" not in [b.host for b in response.brokers]
    assert response.topics[0].partitions[0].error_code == ErrorCode.LISTENER_NOT_FOUND
    older = h.body(ask("a"), 5).topics[0].partitions[0]
    assert older.error_code == ErrorCode.LEADER_NOT_AVAILABLE


async def test_a_changed_partition_is_seen_through_the_cache() -> None:
    h = Harness()
    h.create_topic("a", replicas=[NODE, OTHER])
    assert h.body(ask("a"), 12).topics[0].partitions[0].leader_id == NODE
    h.change(leader=OTHER)
    changed = h.body(ask("a"), 12).topics[0].partitions[0]
    assert (changed.leader_id, changed.leader_epoch) == (OTHER, 1)


# --- a leader that has just died ------------------------------------------------------------------


def moved_away_from_a_dead_leader() -> Harness:
    """Return a cluster whose leader of `a` is lost and refuses connections; the leader of `b`
    lives."""
    h = Harness()
    h.create_topic("a", number=1, replicas=[OTHER, NODE], leader=OTHER)
    h.create_topic("b", number=2)
    h.lost.lost(OTHER, h.clock.monotonic_ms())
    h.lost.unreachable(OTHER)
    return h


def told(h: Harness, body: Any, version: int = 12) -> tuple[list[int], ErrorCode, int]:
    """Return the brokers, and error and leader of the first partition."""
    entry = h.table.entries[ApiKey.METADATA]
    _, parts = reply_parts(body, entry, version, 1)
    frame = b"".join(bytes(part) for part in parts)[4:]
    _, offset = decode_response_header(frame, ApiKey.METADATA, version)
    response = decode(MetadataResponse, frame, version, offset)[0]
    partition = response.topics[0].partitions[0]
    return [b.node_id for b in response.brokers], partition.error_code, partition.leader_id


@pytest.mark.parametrize("request_", [ask("a"), ask("b", "a"), everything(12)])
async def test_metadata_request_for_dead_leader_waits_for_next_one(
    request_: MetadataRequest,
) -> None:
    h = moved_away_from_a_dead_leader()
    answer = h.call(request_, 12)
    await settle()
    assert not answer.done()
    h.replay(
        FenceBrokerRecord(id=OTHER, epoch=100 + OTHER),
        PartitionChangeRecord(topic_id=topic_id(1), partition_id=0, leader=NODE, isr=[NODE]),
    )
    brokers, error, leader = told(h, await answer)
    assert (error, leader) == (ErrorCode.NONE, NODE)
    assert brokers == [NODE, OTHER], "librdkafka must not lose the old leader in the same answer"
    h.clock.advance(LISTED_MS)
    assert told(h, h.call(ask("a"), 12))[0] == [NODE]


async def test_metadata_request_for_other_topics_does_not_wait() -> None:
    h = moved_away_from_a_dead_leader()
    assert told(h, h.call(ask("b"), 12)) == ([NODE, OTHER], ErrorCode.NONE, NODE)


async def test_the_wait_has_an_end_and_then_there_is_no_leader_for_a_session() -> None:
    h = moved_away_from_a_dead_leader()
    h.clock.advance(HOLD_MAX_MS - 0.01)
    answer = h.call(ask("a"), 12)
    await settle()
    assert not answer.done()
    h.clock.advance(0.01)
    no_leader = ([NODE, OTHER], ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert told(h, await answer) == no_leader
    session_ms = h.config[keys_quorum.BROKER_SESSION_TIMEOUT_MS]
    h.clock.advance(session_ms - HOLD_MAX_MS - 1)
    assert told(h, h.call(ask("a"), 12)) == no_leader
    h.clock.advance(1)
    assert told(h, h.call(ask("a"), 12)) == ([NODE, OTHER], ErrorCode.NONE, OTHER)


async def test_metadata_request_ends_its_wait_when_leader_was_reached() -> None:
    h = moved_away_from_a_dead_leader()
    answer = h.call(ask("a"), 12)
    h.lost.reached(OTHER)
    assert told(h, await answer) == ([NODE, OTHER], ErrorCode.NONE, OTHER)
    assert told(h, h.call(ask("a"), 12)) == ([NODE, OTHER], ErrorCode.NONE, OTHER)


# --- topics that a request creates ----------------------------------------------------------------


async def test_an_unknown_topic_is_created_in_the_background_once() -> None:
    h = Harness()
    answer = response_header_bytes(ApiKey.CREATE_TOPICS, 7, 1) + encode(CreateTopicsResponse(), 7)
    h.controller.answer = lambda _: EnvelopeResponse(response_data=answer)
    for _ in range(3):
        topic = h.body(ask("fresh"), 12).topics[0]
        assert (topic.error_code, topic.topic_id) == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ZERO_UUID,
        )
    await settle()
    (envelope,) = h.controller.requests
    assert b"ANONYMOUS" in envelope.request_principal
    header, offset = decode_request_header(envelope.request_data)
    assert (header.api_version, header.client_id) == (7, "test")
    request, _ = decode(CreateTopicsRequest, envelope.request_data, 7, offset)
    (wish,) = request.topics
    assert (wish.name, wish.num_partitions, wish.replication_factor) == ("fresh", 1, 1)


async def test_metadata_request_does_not_create_invalid_topics() -> None:
    h = Harness()
    h.body(ask("fresh", allow_auto_topic_creation=False), 12)
    h.body(ask("__share_group_state"), 12)
    h.body(ask("a/b"), 12)
    off = Harness(auto_create_topics_enable="false")
    off.body(ask("fresh"), 12)
    await settle()
    assert h.controller.requests == []
    assert off.controller.requests == []


async def test_the_offsets_topic_gets_what_its_coordinator_needs() -> None:
    h = Harness(offsets_topic_num_partitions="7", offsets_topic_replication_factor="1")
    h.controller.answer = lambda _: CreateTopicsResponse()
    await h.creator.ensure("__consumer_offsets")
    (wish,) = h.controller.requests[0].topics
    assert (wish.num_partitions, wish.replication_factor) == (7, 1)
    assert {c.name: c.value for c in wish.configs} == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    h.create_topic("__consumer_offsets")
    await h.creator.ensure("__consumer_offsets")
    assert len(h.controller.requests) == 1


async def test_metadata_request_creates_transaction_log_with_its_own_settings() -> None:
    """An unclean election or compression of that log would break transactions."""
    h = Harness(
        transaction_state_log_num_partitions="7",
        transaction_state_log_replication_factor="1",
        transaction_state_log_min_isr="3",
        transaction_state_log_segment_bytes="2097152",
    )
    answer = response_header_bytes(ApiKey.CREATE_TOPICS, 7, 1) + encode(CreateTopicsResponse(), 7)
    h.controller.answer = lambda _: EnvelopeResponse(response_data=answer)
    h.body(ask("__transaction_state"), 12)
    await settle()
    (envelope,) = h.controller.requests
    _, offset = decode_request_header(envelope.request_data)
    request, _ = decode(CreateTopicsRequest, envelope.request_data, 7, offset)
    (wish,) = request.topics
    assert (wish.num_partitions, wish.replication_factor) == (7, 1)
    assert {c.name: c.value for c in wish.configs} == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "3",
        "segment.bytes": "2097152",
        "unclean.leader.election.enable": "false",
    }


# --- DescribeTopicPartitions ---------------------------------------------------------------------

Cursor = DescribeTopicPartitionsRequest.Cursor


def describe(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    return DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def page(h: Harness, request: Any) -> tuple[list[tuple[str, list[int]]], tuple[str, int] | None]:
    response = h.body(request)
    topics = [(t.name, [p.partition_index for p in t.partitions]) for t in response.topics]
    following = response.next_cursor
    return topics, None if following is None else (following.topic_name, following.partition_index)


async def test_pages_follow_one_another_without_gap_or_overlap() -> None:
    h = Harness()
    h.create_topic("a", number=1, partitions=3)
    h.create_topic("b", number=2, partitions=2)
    h.create_topic("c", number=3, partitions=1)
    assert page(h, describe()) == ([("a", [0, 1, 2]), ("b", [0, 1]), ("c", [0])], None)
    assert page(h, describe(limit=2)) == ([("a", [0, 1])], ("a", 2))
    assert page(h, describe(limit=2, cursor=("a", 2))) == ([("a", [2]), ("b", [0])], ("b", 1))
    assert page(h, describe(limit=2, cursor=("b", 1))) == ([("b", [1]), ("c", [0])], None)
    assert page(h, describe(limit=3)) == ([("a", [0, 1, 2])], ("b", 0))
    assert page(h, describe(limit=-1)) == ([("a", [0])], ("a", 1))


async def test_the_broker_has_a_limit_of_its_own_for_a_page() -> None:
    h = Harness(max_request_partition_size_limit="2")
    h.create_topic("a", partitions=3)
    assert page(h, describe(limit=2**31 - 1)) == ([("a", [0, 1])], ("a", 2))
    assert page(h, describe(limit=1)) == ([("a", [0])], ("a", 1))


async def test_a_page_shows_who_can_be_elected_and_who_was_last_known() -> None:
    """KIP-966: the ELR and last known leader, which Metadata does not contain."""
    h = Harness()
    h.create_topic("a", replicas=[NODE, OTHER])
    h.change(leader=-1, isr=[], eligible_leader_replicas=[OTHER], last_known_elr=[NODE])
    ((one,),) = (topic.partitions for topic in h.body(describe("a")).topics)
    assert (one.error_code, one.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (one.isr_nodes, one.eligible_leader_replicas, one.last_known_elr) == (
        [],
        [OTHER],
        [NODE],
    )
    assert (one.replica_nodes, one.leader_epoch) == ([NODE, OTHER], 1)


async def test_a_cursor_on_a_deleted_topic_goes_on_with_the_next_one() -> None:
    h = Harness()
    h.create_topic("a", number=1)
    h.create_topic("c", number=3)
    assert page(h, describe(cursor=("b", 5))) == ([("c", [0])], None)


@pytest.mark.parametrize("cursor", [("a", -1), ("b", 0)])
async def test_a_cursor_that_cannot_be_is_an_error_of_every_topic(cursor: tuple[str, int]) -> None:
    h = Harness()
    h.create_topic("a")
    response = h.body(describe("a", "z", cursor=cursor))
    assert [(t.name, t.error_code, t.partitions) for t in response.topics] == [
        ("a", ErrorCode.INVALID_REQUEST, []),
        ("z", ErrorCode.INVALID_REQUEST, []),
    ]
    assert response.next_cursor is None


async def test_named_topics_come_in_order_with_errors_for_those_unknown() -> None:
    h = Harness()
    h.create_topic("b")
    response = h.body(describe("z", "b", "a/b"))
    assert [(t.name, t.error_code) for t in response.topics] == [
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("b", 0),
        ("z", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("named", [False, True])
async def test_metadata_of_a_thousand_uncached_topics_is_encoded_in_slices(
    named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ToilClock()
    h = Harness(clock=clock)
    names = [f"t{number:04}" for number in range(1_000)]
    for number, name in enumerate(names):
        h.create_topic(name, number=number, replicas=[OTHER], leader=OTHER)

    def encode_slowly(*args: Any) -> bytes:
        clock.toil(0.1)
        return encode_topic(*args)

    monkeypatch.setattr(topic_view_module, "encode_topic", encode_slowly)
    async with loop_holds(clock) as holds:
        reply = asyncio.ensure_future(h.call(ask(*names) if named else everything(12), 12))
        await settle()
        # A change during the request is not in the answer.
        h.delete_topic(999)
        body = await reply
    assert holds.longest_ms < SLICE_MS + 1
    entry = h.table.entries[ApiKey.METADATA]
    frame = b"".join(bytes(part) for part in reply_parts(body, entry, 12, 1)[1])[4:]
    _, offset = decode_response_header(frame, ApiKey.METADATA, 12)
    response, end = decode(entry.response, frame, 12, offset)
    assert end == len(frame)
    assert [(t.name, t.error_code) for t in response.topics] == [(name, 0) for name in names]


async def test_unknown_names_use_up_the_limit_of_a_page() -> None:
    """Otherwise a page would have no bound: a client could name a million topics that do not
    exist."""
    h = Harness()
    h.create_topic("n2", number=1, partitions=3)
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=f"n{i}") for i in range(5)],
        response_partition_limit=4,
    )
    response = h.body(request, 0)
    assert [topic.name for topic in response.topics] == ["n0", "n1", "n2"]
    assert [p.partition_index for p in response.topics[2].partitions] == [0, 1]
    assert (response.next_cursor.topic_name, response.next_cursor.partition_index) == ("n2", 2)


async def test_pages_of_many_names_follow_one_another() -> None:
    h = Harness()
    h.create_topic("n7", number=1, partitions=300)
    names = [f"n{i:x}" for i in range(3_000)]
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
        response_partition_limit=2_000,
    )
    found: list[str] = []
    while True:
        response = await asyncio.wait_for(h.call(request, 0), 10)
        if not isinstance(response, DescribeTopicPartitionsResponse):
            data = b"".join(response.parts)
            response, _ = decode(DescribeTopicPartitionsResponse, data, 0)
        found += [topic.name for topic in response.topics]
        if response.next_cursor is None:
            break
        request.cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=response.next_cursor.topic_name,
            partition_index=response.next_cursor.partition_index,
        )
    assert list(dict.fromkeys(found)) == sorted(names)


async def test_many_names_are_found_as_few_are() -> None:
    h = Harness()
    h.create_topic("n3", number=1)
    names = [f"n{i}" for i in range(1_000)]
    many = await h.call(ask(*names, "n5", "bad name"), 12)
    response, _ = decode(MetadataResponse, b"".join(many.parts), 12)
    codes = {topic.name: topic.error_code for topic in response.topics}
    assert len(response.topics) == 1_001
    assert codes["n3"] == ErrorCode.NONE
    assert codes["n5"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes["bad name"] == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_encoded_topics_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client chooses the versions, and each version has cache entries of its own."""
    monkeypatch.setattr(topic_view_module, "CACHED_BYTES_MAX", 1_000)
    h = Harness()
    for number in range(20):
        h.create_topic(f"t{number}", number=number + 1)
    h.create_topic("wide", number=99, partitions=50)
    blobs = topic_view_module.TopicBlobs(h.metadata)
    reachable = blobs.reachable(LISTENER)
    for version in (9, 12):
        for topic in h.metadata.image.topics.by_name.values():
            blobs.get(topic, reachable, LISTENER, version, False)
            kept = sum(len(blob) for *_, blob in blobs._blobs.values())
            assert kept == blobs._blob_bytes <= 1_000


def test_taken_frees_each_item_in_order() -> None:
    """The topics of a long answer are freed one by one: 100,000 at once hold the loop for 20 ms."""

    class Topic:
        pass

    items = [Topic() for _ in range(3)]
    alive = [weakref.ref(item) for item in items]
    seen = []
    for item in metadata._taken(items):
        seen.append([one() is not None for one in alive])
        del item
    assert seen == [[True, True, True], [False, True, True], [False, False, True]]
