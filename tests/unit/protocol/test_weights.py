"""The weight of a message, which counts its elements and long strings."""

from __future__ import annotations

from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataResponse
from protocol.messages.produce import ProduceRequest
from protocol.weights import STEP_BYTES, structs, weigh

TOPIC = ListOffsetsRequest.ListOffsetsTopic
PARTITION = ListOffsetsRequest.ListOffsetsPartition


def test_each_element_of_each_list_weighs_one() -> None:
    request = ListOffsetsRequest(topics=[TOPIC(partitions=[PARTITION()] * 3)] * 2)
    assert weigh(request, 1_000) == 1 + 2 + 2 * 3


def test_long_strings_weigh_by_their_length() -> None:
    keys = ["x" * STEP_BYTES * 10] * 3
    assert weigh(FindCoordinatorRequest(coordinator_keys=keys), 1_000) == 1 + 3 + 30


def test_record_sets_weigh_nothing() -> None:
    data = ProduceRequest.PartitionProduceData(records=bytes(1 << 20))
    topic = ProduceRequest.TopicProduceData(partition_data=[data])
    assert weigh(ProduceRequest(topic_data=[topic]), 1_000) == 3


def test_weighing_stops_above_the_limit() -> None:
    request = ListOffsetsRequest(topics=[TOPIC(partitions=[PARTITION()] * 1_000)] * 1_000)
    assert 100 < weigh(request, 100) <= 2_001


def test_structs_counts_elements_of_all_levels_and_nothing_else() -> None:
    topic = MetadataResponse.MetadataResponseTopic(
        partitions=[MetadataResponse.MetadataResponsePartition(replica_nodes=[1, 2, 3])] * 5
    )
    broker = MetadataResponse.MetadataResponseBroker(host="x" * 10_000)
    response = MetadataResponse(brokers=[broker] * 2, topics=[topic] * 3)
    assert structs(response, 100) == 2 + 3 + 3 * 5
    assert structs(MetadataResponse(topics=[topic] * 1_000), 100) == 1_000
