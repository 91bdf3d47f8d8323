"""Refused requests of administrators: configurations, log levels, features, groups.

In addition to the catalogue: each was a difference between our answer and Apache Kafka's.
"""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.update_features import UpdateFeaturesRequest
from testkit.processes.peer import Target

E = ErrorCode
SET = 0
SAFE_DOWNGRADE = 2


@pytest.mark.parametrize(
    ("resource", "key", "value"),
    [((2, ""), "retention.ms", "1"), ((8, "1"), "root", None), ((4, "x"), "num.io.threads", "1")],
)
def test_alter_configs_with_invalid_resource_or_value_is_refused(
    target: Target, resource: tuple[int, str], key: str, value: str | None
) -> None:
    change = IncrementalAlterConfigsRequest.AlterableConfig(
        name=key, config_operation=SET, value=value
    )
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=resource[0], resource_name=resource[1], configs=[change]
            )
        ]
    )
    with target.connect() as peer:
        (one,) = peer.ask(request, 1).responses
        assert E(one.error_code) is E.INVALID_REQUEST


@pytest.mark.parametrize("version", [1, 2])
def test_a_feature_that_does_not_exist_cannot_be_turned_off(target: Target, version: int) -> None:
    request = UpdateFeaturesRequest(
        feature_updates=[
            UpdateFeaturesRequest.FeatureUpdateKey(
                feature="no.such.feature", max_version_level=0, upgrade_type=SAFE_DOWNGRADE
            )
        ],
        timeout_ms=10_000,
    )
    with target.connect() as peer:
        answer = peer.ask(request, version)
        assert (E(answer.error_code), answer.results) == (E.INVALID_UPDATE_VERSION, [])


def test_a_leader_epoch_below_none_is_an_old_one(target: Target) -> None:
    wanted = ListOffsetsRequest.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=-2, timestamp=-1
    )
    topic = ListOffsetsRequest.ListOffsetsTopic(name=target.topic().name, partitions=[wanted])
    with target.connect() as peer:
        (one,) = peer.ask(ListOffsetsRequest(topics=[topic]), 7).topics
        assert E(one.partitions[0].error_code) is E.FENCED_LEADER_EPOCH


def test_a_group_named_twice_is_deleted_once(target: Target) -> None:
    name = target.new_name("group")
    with target.connect() as peer:
        results = peer.ask(DeleteGroupsRequest(groups_names=[name, name]), 2).results
        assert [result.group_id for result in results] == [name]


def test_a_full_page_ends_before_a_topic_that_does_not_exist(target: Target) -> None:
    topic = target.topic(partitions=2)
    missing = f"{topic.name}-not"
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=n) for n in (topic.name, missing)],
        response_partition_limit=2,
    )
    with target.connect() as peer:
        page = peer.ask(request, 0)
        assert [one.name for one in page.topics] == [topic.name]
        assert page.next_cursor is not None and page.next_cursor.topic_name == missing
        request.cursor = DescribeTopicPartitionsRequest.Cursor(topic_name=missing)
        (one,) = peer.ask(request, 0).topics
        assert E(one.error_code) is E.UNKNOWN_TOPIC_OR_PARTITION
        assert one.topic_authorized_operations > 0
