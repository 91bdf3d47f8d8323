"""Clients above their quota, on both nodes: throttle times.

Expected times follow from the rate over ten seconds, including a burst at the beginning. Both nodes
must be near them, and so near each other. The time between two requests of a test counts as waited,
so it is measured: a busy machine must not decide.
"""

from __future__ import annotations

import select
import time

from protocol.api_keys import ApiKey
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from protocol.messages.fetch import FetchResponse
from protocol.messages.metadata import MetadataRequest
from testkit.processes.peer import Peer, Target, Topic, fetch_request, produce_request
from testkit.records.lying_batches import batch, record

SLACK_MS = 150
PRODUCED, FETCHED, WORK = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
Parts = list[tuple[str, str | None]]


def alter(target: Target, parts: Parts, key: str, value: float | None) -> None:
    """Set a quota and wait until the broker applies it.

    Kafka shows a change before it applies it to its quotas, one change after the other: when it
    shows the second one, the first is in force.
    """
    if value is not None:
        _alter(target, parts, key, value + 1.0)
    _alter(target, parts, key, value)


def _alter(target: Target, parts: Parts, key: str, value: float | None) -> None:
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequest.EntryData(
                entity=[
                    AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in parts
                ],
                ops=[
                    AlterClientQuotasRequest.OpData(
                        key=key, value=value or 0.0, remove=value is None
                    )
                ],
            )
        ]
    )
    describe = DescribeClientQuotasRequest(
        components=[
            DescribeClientQuotasRequest.ComponentData(
                entity_type=kind, match_type=1 if name is None else 0, match=name
            )
            for kind, name in parts
        ],
        strict=True,
    )
    with target.connect() as peer:
        (entry,) = peer.ask(request, 1).entries
        assert entry.error_code == 0, entry
        deadline = time.monotonic() + 10.0
        while True:
            found = peer.ask(describe, 1).entries or []
            values = {one.key: one.value for entry in found for one in entry.values}
            if values.get(key) == value:
                return
            assert time.monotonic() < deadline


def produce(peer: Peer, topic: Topic, size: int, client_id: str, acks: int = 1) -> int:
    request = produce_request({(topic.name, 0): batch(record(bytes(size)))}, acks=acks)
    answer = peer.ask(request, 9, client_id=client_id)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return answer.throttle_time_ms


class Waited:
    """A comparison of throttle times with the time that was due when the test began."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def near(self, told_ms: int, due_ms: int) -> bool:
        """Return whether a time is near; the sample being filled counts up to its length, a
        second."""
        passed_ms = min((time.monotonic() - self._began) * 1000.0, 1_000.0)
        return due_ms - passed_ms - SLACK_MS <= told_ms <= due_ms + SLACK_MS


def size_of(answer: FetchResponse) -> int:
    return sum(len(one.records or b"") for topic in answer.responses for one in topic.partitions)


def test_a_producer_over_its_quota(target: Target) -> None:
    topic, client = target.topic(), target.new_name("client")
    alter(target, [("client-id", client)], PRODUCED, 10_000.0)
    waited = Waited()
    with target.connect() as peer:
        assert produce(peer, topic, 50_000, client) == 0
    with target.connect() as peer:
        told_ms = produce(peer, topic, 70_000, client)
        assert waited.near(told_ms, 2_000), told_ms
    with target.connect() as peer:
        assert produce(peer, topic, 50_000, target.new_name("client")) == 0
    alter(target, [("client-id", client)], PRODUCED, None)
    with target.connect() as peer:
        assert produce(peer, topic, 50_000, client) == 0


def test_the_connection_is_not_served_while_its_client_has_to_wait(target: Target) -> None:
    topic, client = target.topic(), target.new_name("client")
    alter(target, [("client-id", client)], PRODUCED, 50_000.0)
    with target.connect() as peer:
        waited = Waited()
        wait_ms = produce(peer, topic, 550_000, client)
        assert waited.near(wait_ms, 1_000), wait_ms
        began = time.monotonic()
        with target.connect() as other:
            peer.ask_later(MetadataRequest(topics=[]), 12, client_id="another")
            other.works()
        served, _, _ = select.select([peer.socket], [], [], 0)
        in_time = time.monotonic() - began < wait_ms / 1000.0 - 0.2
        assert not served or not in_time, "not before the other one"
        peer.answer(ApiKey.METADATA, 12)
        assert time.monotonic() - began > wait_ms / 1000.0 - 0.2


def test_a_producer_without_acks_is_not_read(target: Target) -> None:
    topic, client = target.topic(), target.new_name("client")
    alter(target, [("client-id", client)], PRODUCED, 50_000.0)
    with target.connect() as peer:
        request = produce_request({(topic.name, 0): batch(record(bytes(550_000)))}, acks=0)
        began = time.monotonic()
        peer.ask_later(request, 9, client_id=client)
        peer.works()
        assert time.monotonic() - began > 0.7


def test_a_consumer_over_its_quota_gets_nothing_and_a_time(target: Target) -> None:
    topic, client = target.topic(), target.new_name("client")
    with target.connect() as peer:
        for _ in range(3):
            produce(peer, topic, 40_000, "x")
    alter(target, [("client-id", client)], FETCHED, 10_000.0)
    waited = Waited()

    def once(epoch: int, session_id: int = 0) -> FetchResponse:
        with target.connect() as peer:
            request = fetch_request(
                topic, session_epoch=epoch, session_id=session_id, max_bytes=85_000
            )
            return peer.ask(request, 12, client_id=client)

    first = once(0)
    assert 80_000 < size_of(first) < 90_000 and first.throttle_time_ms == 0
    second = once(-1)
    # Ten seconds' worth are free; the refused request counts with the accepted ones.
    assert waited.near(second.throttle_time_ms, 7_000), second.throttle_time_ms
    assert second.responses == []
    again = once(1, first.session_id)
    assert again.throttle_time_ms > 4_000
    assert (again.session_id, again.responses) == (first.session_id, [])
    with target.connect() as peer:
        assert size_of(peer.ask(fetch_request(topic), 12, client_id="x")) > 120_000


def test_a_client_over_its_share_of_the_processor(target: Target) -> None:
    client = target.new_name("client")
    alter(target, [("client-id", client)], WORK, 0.001)
    with target.connect() as peer:
        request = MetadataRequest(topics=None)
        told = [peer.ask(request, 12, client_id=client).throttle_time_ms for _ in range(2)]
        assert told == [1_000, 1_000]
        # A response that another node makes and this one forwards contains the time, too.
        peer.ask_later(AlterClientQuotasRequest(), 1, client_id=client)
        _, answer = peer.answer(ApiKey.ALTER_CLIENT_QUOTAS, 1)
        assert answer.throttle_time_ms == 1_000


def test_a_quota_of_the_user_is_shared_by_its_clients(target: Target) -> None:
    topic = target.topic()
    alter(target, [("user", "ANONYMOUS")], PRODUCED, 100_000.0)
    try:
        waited = Waited()
        with target.connect() as peer:
            assert produce(peer, topic, 600_000, target.new_name("client")) == 0
        with target.connect() as peer:
            wait_ms = produce(peer, topic, 600_000, target.new_name("client"))
            assert waited.near(wait_ms, 2_000), wait_ms
    finally:
        alter(target, [("user", "ANONYMOUS")], PRODUCED, None)


def test_an_address_that_connects_too_often_is_delayed_and_closed(target: Target) -> None:
    alter(target, [("ip", "127.0.0.1")], "connection_creation_rate", 1.0)
    try:
        closed = 0
        for _ in range(15):
            with target.connect() as peer:
                began = time.monotonic()
                peer.send_frame(b"\x00\x03\x00\x01\x00\x00\x00\x09\xff\xff" + bytes(4))
                try:
                    peer.answer(ApiKey.METADATA, 1)
                except ConnectionError:
                    closed += 1
                    assert time.monotonic() - began > 0.02
        assert 3 <= closed < 15
    finally:
        deadline = time.monotonic() + 20.0
        while True:
            try:
                alter(target, [("ip", "127.0.0.1")], "connection_creation_rate", None)
                break
            except ConnectionError:
                assert time.monotonic() < deadline
