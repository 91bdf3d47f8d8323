"""KIP-951, rule by rule: leader hints in refusals, and the cases without one (P24)."""

from __future__ import annotations

from typing import Any

import pytest

from broker.apis.leader_hints import LeaderHints
from metalog.image.values import ConfigResourceType
from protocol.batch.records import Record, build_batch
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceRequest
from protocol.metadata import FenceBrokerRecord, RegisterBrokerRecord, UnregisterBrokerRecord
from testkit.memory.broker import LISTENER, NODE, OTHER, Harness, fetch_request, topic_id

NOBODY = (-1, -1)
BROKER = ConfigResourceType.BROKER
BATCH = build_batch([Record(timestamp=1, value=b"a")])


def produce(h: Harness, *, index: int = 0, version: int = 13, number: int = 1) -> Any:
    return h.call(
        ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    topic_id=topic_id(number),
                    partition_data=[
                        ProduceRequest.PartitionProduceData(index=index, records=BATCH)
                    ],
                )
            ],
        ),
        version,
    )


def fetch(h: Harness, *, epoch: int = 0, version: int = 18) -> Any:
    """Fetch, by default at epoch 0, as a client that has seen only the topic's first leader.

    Without an epoch a former leader would serve the fetch, as any follower does (KIP-392).
    """
    request = fetch_request(0, topic="", current_leader_epoch=epoch)
    request.topics[0].topic_id = topic_id(1)
    return h.call(request, version)


def told(response: Any) -> tuple[int, tuple[int, int], list[tuple[int, str, int, str | None]]]:
    """Return error, CurrentLeader and NodeEndpoints of a response about one partition."""
    topic = response.responses[0]
    one = (
        topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions
    )[0]
    leader = one.current_leader
    return (
        one.error_code,
        (leader.leader_id, leader.leader_epoch),
        [(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints],
    )


def turned_away(response: Any) -> tuple[tuple[int, int], list[tuple[int, str, int, str | None]]]:
    """Return CurrentLeader and NodeEndpoints, for either error that comes with them."""
    code, leader, nodes = told(response)
    assert code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
    return leader, nodes


MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
THERE = [(OTHER, "host2", 9092, "rack2")]


@pytest.mark.parametrize("ask", [produce, fetch])
async def test_a_former_leader_names_its_successor(ask: Any) -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    h.change(leader=OTHER)
    assert turned_away(ask(h)) == ((OTHER, 1), THERE)


@pytest.mark.parametrize("ask", [produce, fetch])
async def test_a_broker_without_a_replica_knows_it_from_its_metadata(ask: Any) -> None:
    """The replica was reassigned: this broker has no state of it any more."""
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    h.change(leader=OTHER, replicas=[OTHER], isr=[OTHER], directories=[bytes(16)])
    assert h.replicas.get("t", 0) is None
    assert turned_away(ask(h)) == ((OTHER, 1), THERE)


async def test_a_fenced_epoch_names_this_very_broker() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    h.change(leader=OTHER)
    h.change(leader=NODE)
    code, leader, nodes = told(fetch(h, epoch=1))
    assert code == ErrorCode.FENCED_LEADER_EPOCH
    assert (leader, [node[0] for node in nodes]) == ((NODE, 2), [NODE])


async def test_other_errors_contain_no_leader_hint() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER], isr=[NODE], configs={"min.insync.replicas": "2"})
    assert told(produce(h)) == (ErrorCode.NOT_ENOUGH_REPLICAS, NOBODY, [])
    assert told(produce(h, index=9)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOBODY, [])
    assert told(produce(h, number=9)) == (ErrorCode.UNKNOWN_TOPIC_ID, NOBODY, [])
    assert told(fetch(h, epoch=7)) == (ErrorCode.UNKNOWN_LEADER_EPOCH, NOBODY, [])


@pytest.mark.parametrize("ask", [produce, fetch])
async def test_a_fenced_leader_is_not_named(ask: Any) -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    h.change(leader=OTHER)
    h.replay(FenceBrokerRecord(id=OTHER, epoch=100 + OTHER))
    assert turned_away(ask(h)) == (NOBODY, [])


@pytest.mark.parametrize("ask", [produce, fetch])
async def test_an_unregistered_leader_is_not_named(ask: Any) -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    h.change(leader=OTHER)
    h.replay(UnregisterBrokerRecord(broker_id=OTHER, broker_epoch=100 + OTHER))
    assert turned_away(ask(h)) == (NOBODY, [])


@pytest.mark.parametrize("ask", [produce, fetch])
async def test_no_leader_is_no_news(ask: Any) -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    h.change(leader=-1)
    assert turned_away(ask(h)) == (NOBODY, [])


@pytest.mark.parametrize("ask", [produce, fetch])
async def test_addresses_are_those_of_the_clients_listener(ask: Any) -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    h.change(leader=OTHER)

    def register(*endpoints: tuple[str, str, int]) -> None:
        h.replay(
            RegisterBrokerRecord(
                broker_id=OTHER,
                broker_epoch=100 + OTHER,
                fenced=False,
                rack="rack2",
                end_points=[
                    RegisterBrokerRecord.BrokerEndpoint(name=name, host=host, port=port)
                    for name, host, port in endpoints
                ],
            )
        )

    register(("INTERNAL", "inside", 1), (LISTENER, "outside", 2))
    assert turned_away(ask(h)) == ((OTHER, 1), [(OTHER, "outside", 2, "rack2")])
    register(("INTERNAL", "inside", 1))
    assert turned_away(ask(h)) == (NOBODY, [])


@pytest.mark.parametrize(
    ("epoch", "named"), [(-1, True), (0, True), (1, True), (2, False), (2**31 - 1, False)]
)
async def test_a_fetch_is_never_sent_back_to_an_older_epoch(epoch: int, named: bool) -> None:
    h = Harness()
    h.create_topic(replicas=[OTHER], leader=OTHER)
    h.change(leader=OTHER)
    assert told(fetch(h, epoch=epoch)) == (
        MOVED,
        (OTHER, 1) if named else NOBODY,
        THERE if named else [],
    )


async def test_a_node_is_listed_once() -> None:
    h = Harness()
    h.create_topic(replicas=[OTHER], leader=OTHER, partitions=3)
    response = h.call(
        ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    topic_id=topic_id(1),
                    partition_data=[
                        ProduceRequest.PartitionProduceData(index=i, records=BATCH)
                        for i in range(3)
                    ],
                )
            ],
        )
    )
    results = response.responses[0].partition_responses
    assert [r.current_leader.leader_id for r in results] == [OTHER] * 3
    assert len(response.node_endpoints) == 1


@pytest.mark.parametrize(("ask", "version"), [(produce, 9), (fetch, 15)])
async def test_older_versions_contain_no_leader_hint(ask: Any, version: int) -> None:
    h = Harness()
    h.create_topic(replicas=[OTHER], leader=OTHER)
    if ask is produce:
        hints = LeaderHints(h.metadata, h.settings)
        assert hints.find(LISTENER, "t", topic_id(1), 0) is not None
    response = ask(h, version=version)
    assert response.node_endpoints == []


@pytest.mark.parametrize("ask", [produce, fetch])
async def test_leader_hints_are_off_with_setting_false(ask: Any) -> None:
    h = Harness(kraftbox_leader_discovery_enable="false")
    h.create_topic(replicas=[OTHER], leader=OTHER)
    assert turned_away(ask(h)) == (NOBODY, [])


@pytest.mark.parametrize("ask", [produce, fetch])
async def test_leader_hints_setting_changes_at_runtime(ask: Any) -> None:
    h = Harness()
    h.create_topic(replicas=[OTHER], leader=OTHER)
    there = ((OTHER, 0), THERE)

    def after_setting(broker: str, value: str | None) -> Any:
        h.set_config(broker, "kraftbox.leader.discovery.enable", value, BROKER)
        return turned_away(ask(h))

    assert turned_away(ask(h)) == there
    assert after_setting("", "false") == (NOBODY, [])
    # state that only this broker has takes precedence
    assert after_setting(str(NODE), "true") == there
    assert after_setting(str(NODE), None) == (NOBODY, [])
    assert after_setting(str(OTHER), "true") == (NOBODY, [])
    assert after_setting("", None) == there
