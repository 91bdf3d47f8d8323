"""Descriptions of topics, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from client.admin import Admin
from client.cluster_client import ClusterClient
from client.errors import Refused
from client.topic_pages import NAMES_MAX, DescribedPartition, DescribedTopic, TopicPages
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from protocol.messages.metadata import MetadataResponse
from testkit.memory.node import running_node


def page(*topics: tuple[str, range], following: tuple[str, int] | None = None) -> Any:
    cursor = None
    if following is not None:
        cursor = DescribeTopicPartitionsResponse.Cursor(
            topic_name=following[0], partition_index=following[1]
        )
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribedTopic(
                name=name,
                partitions=[DescribedPartition(partition_index=index) for index in indexes],
            )
            for name, indexes in topics
        ],
        next_cursor=cursor,
    )


def asked(request: DescribeTopicPartitionsRequest | None) -> Any:
    assert request is not None
    cursor = request.cursor
    where = None if cursor is None else (cursor.topic_name, cursor.partition_index)
    return [topic.name for topic in request.topics], where


def test_a_topic_over_two_pages_is_put_together_and_names_before_the_cursor_are_left_out():
    pages = TopicPages(["c", "a", "b", "a"])
    assert asked(pages.request) == (["a", "b", "c"], None)
    pages.take(page(("a", range(2)), ("b", range(1)), following=("b", 1)))
    assert asked(pages.request) == (["b", "c"], ("b", 1))
    pages.take(page(("b", range(1, 3)), ("c", range(1))))
    assert pages.request is None
    found = [(one.name, [p.partition_index for p in one.partitions]) for one in pages.found]
    assert found == [("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]


def test_long_lists_of_names_are_split_and_the_second_begins_without_a_cursor():
    names = [f"t{at:05}" for at in range(NAMES_MAX + 1)]
    pages = TopicPages(names)
    assert asked(pages.request) == (names[:NAMES_MAX], None)
    pages.take(page((names[0], range(1)), following=(names[1], 0)))
    pages.take(page((names[1], range(1))))
    assert asked(pages.request) == (names[NAMES_MAX:], None)
    pages.take(page((names[-1], range(1))))
    assert pages.request is None
    assert TopicPages([]).request is None


@pytest.mark.parametrize("again", [("b", 1), ("b", 0), ("a", 9)])
def test_a_cursor_that_does_not_move_on_is_an_error_and_not_a_circle(again):
    pages = TopicPages(None)
    pages.take(page(("b", range(1)), following=("b", 1)))
    assert asked(pages.request) == ([], ("b", 1))
    with pytest.raises(ProtocolError, match="begins at"):
        pages.take(page(following=again))


async def test_a_node_is_read_in_pages():
    settings = {"max.request.partition.size.limit": "2"}
    async with (
        running_node(settings=settings) as node,
        await ClusterClient.connect(node.client_addresses()[0]) as client,
    ):
        admin = Admin(client)
        await admin.create_topic("b", 5)
        await admin.create_topic("a", 1)
        for found in (await admin.describe_topics(), await admin.describe_topics(["b", "a"])):
            assert [(one.name, len(one.partitions)) for one in found] == [("a", 1), ("b", 5)]
            assert found[0].partitions[0].eligible_leader_replicas == []
        assert [one.name for one in await admin.describe_topics(["b"])] == ["b"]
        assert await admin.describe_topics([]) == []
        with pytest.raises(Refused, match="gone: UNKNOWN_TOPIC_OR_PARTITION"):
            await admin.describe_topics(["a", "gone"])


class OldBrokers:
    """A stand-in for a client of brokers without DescribeTopicPartitions."""

    async def request_any(self, request: Any, _: float) -> Any:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, type(request).__name__)

    async def metadata(self, names: Any, _: float) -> Any:
        partitions = [
            MetadataResponse.MetadataResponsePartition(
                partition_index=index, leader_id=1, replica_nodes=[1, 2], isr_nodes=[1]
            )
            for index in (1, 0)
        ]
        topic = MetadataResponse.MetadataResponseTopic
        return MetadataResponse(
            topics=[topic(name="b"), topic(name=names[0], partitions=partitions)]
        )


async def test_describe_topics_without_api_falls_back_to_metadata():
    found = await Admin(OldBrokers()).describe_topics(["a"])  # type: ignore[arg-type]
    assert [one.name for one in found] == ["a", "b"]
    assert [one.partition_index for one in found[0].partitions] == [0, 1]
    first = found[0].partitions[0]
    assert (first.leader_id, first.replica_nodes, first.isr_nodes) == (1, [1, 2], [1])
    assert (first.eligible_leader_replicas, first.last_known_elr) == (None, None)
