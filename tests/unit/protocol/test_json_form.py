"""Messages as JSON."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import EncodeError, ProtocolError
from protocol.internal.quorum_state_data import QuorumStateData
from protocol.json_form import camel, from_json, to_json
from protocol.messages.produce import ProduceRequest
from protocol.messages.sync_group import SyncGroupResponse
from protocol.metadata import ClientQuotaRecord, PartitionChangeRecord

STATE = QuorumStateData(leader_id=1, leader_epoch=7, voted_id=-1)
STATE_JSON = {
    "leaderId": 1,
    "leaderEpoch": 7,
    "votedId": -1,
    "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA",
}


def test_quorum_state() -> None:
    assert to_json(STATE, 1) == STATE_JSON
    assert from_json(QuorumStateData, STATE_JSON, 1) == STATE


def test_names() -> None:
    assert camel("throttle_time_ms") == "throttleTimeMs"
    assert camel("kraft_version_feature") == "kRaftVersionFeature"


def test_tagged_fields_are_left_out_at_their_default() -> None:
    assert to_json(PartitionChangeRecord(partition_id=3), 0) == {
        "partitionId": 3,
        "topicId": "AAAAAAAAAAAAAAAAAAAAAA",
    }
    assert to_json(PartitionChangeRecord(isr=[1]), 0)["isr"] == [1]


def test_records_show_their_size() -> None:
    partition = ProduceRequest.PartitionProduceData(records=[b"abc", b"de"])
    topic = ProduceRequest.TopicProduceData(partition_data=[partition])
    node = to_json(ProduceRequest(topic_data=[topic]), 13)
    assert node["topicData"][0]["partitionData"][0]["recordsSizeInBytes"] == 5


def test_bytes_are_base64() -> None:
    response = SyncGroupResponse(assignment=b"\0\xff")
    assert to_json(response, 0) == {"errorCode": 0, "assignment": "AP8="}
    assert from_json(SyncGroupResponse, to_json(response, 0), 0) == response


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"leaderId": None}, "QuorumStateData.leaderId"),
        ({"leaderId": "1"}, "QuorumStateData.leaderId"),
        ({"leaderId": True}, "QuorumStateData.leaderId"),
        ({"leaderId": 2**31}, "QuorumStateData.leaderId"),
        ({"votedDirectoryId": "short"}, "QuorumStateData.votedDirectoryId"),
        ({"votedDirectoryId": 5}, "QuorumStateData.votedDirectoryId"),
    ],
)
def test_wrong_values(change: dict[str, Any], what: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        from_json(QuorumStateData, STATE_JSON | change, 1)
    assert caught.value.what == what


def test_missing_fields_and_wrong_shapes() -> None:
    with pytest.raises(ProtocolError, match="the field is missing"):
        from_json(QuorumStateData, {"leaderId": 1}, 1)
    for node in (None, 5, []):
        with pytest.raises(ProtocolError, match="a JSON object"):
            from_json(QuorumStateData, node, 1)
    with pytest.raises(ProtocolError, match="a JSON array"):
        from_json(PartitionChangeRecord, to_json(PartitionChangeRecord(), 0) | {"isr": 5}, 0)
    with pytest.raises(ProtocolError, match="version"):
        from_json(QuorumStateData, STATE_JSON, 9)


def test_values_a_version_lacks() -> None:
    with pytest.raises(EncodeError, match="votedDirectoryId|voted_directory_id"):
        to_json(QuorumStateData(voted_directory_id=b"d" * 16), 0)
    with pytest.raises(EncodeError, match="version"):
        to_json(STATE, 9)
    with pytest.raises(EncodeError, match="null"):
        to_json(QuorumStateData(cluster_id=None), 0)  # type: ignore[arg-type]


def test_numbers_of_kind_float() -> None:
    record = ClientQuotaRecord(key="k", value=1.5)
    assert from_json(ClientQuotaRecord, to_json(record, 0), 0) == record
