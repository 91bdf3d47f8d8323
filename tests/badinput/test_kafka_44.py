"""Extreme values of what Kafka 4.4 added: expected codes are those of 4.4.0."""

from __future__ import annotations

import time

import pytest

from protocol.api_keys import ApiKey
from protocol.batch.records import Record, build_batch
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.unregister_controller import UnregisterControllerRequest
from testkit.memory.node import CLUSTER_ID
from testkit.processes.peer import Peer, Target, Topic

E = ErrorCode
OWN_ID = 1
INT_MAX = 2**31 - 1
SET, TOPIC = 0, 2
REBOOTSTRAP = E.REBOOTSTRAP_REQUIRED
APPLIED_S = 10.0
"""Time in which a broker applies a changed topic configuration."""


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        (None, -1, E.NONE),
        (CLUSTER_ID, OWN_ID, E.NONE),
        (CLUSTER_ID, -1, E.INVALID_REQUEST),
        ("", -1, E.INVALID_REQUEST),
        (None, OWN_ID, E.INVALID_REQUEST),
        (None, -2, E.INVALID_REQUEST),
        ("", OWN_ID, REBOOTSTRAP),
        ("x" * 32_767, OWN_ID, REBOOTSTRAP),
        (CLUSTER_ID, -2, REBOOTSTRAP),
        (CLUSTER_ID, -(2**31), REBOOTSTRAP),
        (CLUSTER_ID, INT_MAX, REBOOTSTRAP),
        (CLUSTER_ID.lower(), OWN_ID, REBOOTSTRAP),
    ],
)
def test_api_versions_5_with_ids_of_another_node_has_an_empty_list(
    target: Target, cluster_id: str | None, node_id: int, code: ErrorCode
) -> None:
    """KIP-1242: a refusal has no APIs, and the connection is served on."""
    request = ApiVersionsRequest(
        client_software_name="test",
        client_software_version="1",
        cluster_id=cluster_id,
        node_id=node_id,
    )
    with target.connect() as peer:
        answer = peer.ask(request, 5)
        assert E(answer.error_code) is code
        assert bool(answer.api_keys) is (code is E.NONE)
        peer.works()


@pytest.mark.parametrize(
    ("controller", "code"),
    [
        (-(2**31), E.CONTROLLER_ID_NOT_REGISTERED),
        (-1, E.CONTROLLER_ID_NOT_REGISTERED),
        (0, E.CONTROLLER_ID_NOT_REGISTERED),
        (INT_MAX, E.CONTROLLER_ID_NOT_REGISTERED),
        (OWN_ID, E.INVALID_REQUEST),
    ],
)
def test_unregister_controller_answers_each_pipelined_request(
    target: Target, controller: int, code: ErrorCode
) -> None:
    """KIP-1312: three requests without a wait in between get three answers, in order."""
    request = UnregisterControllerRequest(controller_id=controller)
    with target.connect() as peer:
        sent = [peer.ask_later(request, 0) for _ in range(3)]
        answers = [peer.answer(ApiKey.UNREGISTER_CONTROLLER, 0) for _ in sent]
        assert [correlation_id for correlation_id, _ in answers] == sent
        assert {E(answer.error_code) for _, answer in answers} == {code}
        assert all(answer.error_message for _, answer in answers)
        peer.works()


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("remote.copy.lag.ms", "-2", E.INVALID_CONFIG),
        ("remote.copy.lag.ms", str(-(2**63)), E.INVALID_CONFIG),
        ("remote.copy.lag.ms", str(2**63), E.INVALID_CONFIG),
        ("remote.copy.lag.ms", "soon", E.INVALID_CONFIG),
        ("remote.copy.lag.ms", "-1", E.NONE),
        ("remote.copy.lag.ms", "0", E.NONE),
        ("remote.copy.lag.ms", str(2**63 - 1), E.NONE),
        ("remote.copy.lag.bytes", "-2", E.INVALID_CONFIG),
        ("remote.copy.lag.bytes", "-1", E.NONE),
        ("remote.copy.lag.bytes", str(2**63 - 1), E.NONE),
        ("max.decompressed.message.bytes", "-1", E.INVALID_CONFIG),
        ("max.decompressed.message.bytes", "0", E.INVALID_CONFIG),
        ("max.decompressed.message.bytes", "1", E.NONE),
        ("max.decompressed.message.bytes", "2147483639", E.NONE),
        ("max.decompressed.message.bytes", "2147483640", E.INVALID_CONFIG),
        ("max.decompressed.message.bytes", "2147483648", E.INVALID_CONFIG),
    ],
)
def test_topic_key_of_4_4_outside_its_range_is_refused(
    target: Target, key: str, value: str, code: ErrorCode
) -> None:
    """KIP-1241: without remote storage a lag above the local retention is accepted."""
    change = IncrementalAlterConfigsRequest.AlterableConfig(
        name=key, config_operation=SET, value=value
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC, resource_name=target.topic().name, configs=[change]
    )
    with target.connect() as peer:
        (one,) = peer.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert E(one.error_code) is code


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@pytest.mark.parametrize(
    ("limit", "refused"), [(1, True), (2_000, True), (200_000, False), (2147483639, False)]
)
def test_compressed_batch_with_a_record_above_the_limit_is_refused(
    target: Target, limit: int, refused: bool, codec: Codec
) -> None:
    """The batch expands a thousand times. Records of uncompressed batches have no such limit."""
    topic = target.topic(configs={"max.decompressed.message.bytes": str(limit)})
    batch = build_batch(
        [Record(timestamp=1, key=None, value=bytes(100_000)) for _ in range(2)], compression=codec
    )
    answer = target.produce(topic, batch)
    expected = E.INVALID_RECORD if refused and codec is not Codec.NONE else E.NONE
    assert E(answer.error_code) is expected
    small = build_batch([Record(timestamp=1, key=None, value=b"x")])
    assert target.produce(topic, small).error_code == 0


def offset_by_time(peer: Peer, topic: Topic, timestamp_ms: int) -> tuple[ErrorCode, int]:
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp_ms)
    asked = ListOffsetsRequest.ListOffsetsTopic(name=topic.name, partitions=[wanted])
    (one,) = peer.ask(ListOffsetsRequest(topics=[asked]), 11).topics[0].partitions
    return E(one.error_code), one.offset


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_lookup_by_time_fails_at_a_compressed_record_above_the_limit(
    target: Target, codec: Codec
) -> None:
    """A lookup that ends in front of the record succeeds. -3 searches the highest timestamp."""
    topic = target.topic()
    records = [Record(timestamp=at, value=bytes(size)) for at, size in enumerate((9, 9_000, 9), 1)]
    assert target.produce(topic, build_batch(records, compression=codec)).error_code == 0
    change = IncrementalAlterConfigsRequest.AlterableConfig(
        name="max.decompressed.message.bytes", config_operation=SET, value="2000"
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC, resource_name=topic.name, configs=[change]
    )
    failed = (E.INVALID_RECORD, -1)
    with target.connect() as peer:
        assert offset_by_time(peer, topic, 2) == (E.NONE, 1)
        (one,) = peer.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert one.error_code == 0
        if codec is Codec.NONE:
            assert [offset_by_time(peer, topic, at)[1] for at in (1, 2, 3, -3)] == [0, 1, 2, 2]
            return
        until = time.monotonic() + APPLIED_S
        while (found := offset_by_time(peer, topic, 2)) != failed and time.monotonic() < until:
            pass
        assert found == failed
        assert offset_by_time(peer, topic, 1) == (E.NONE, 0)
        assert [offset_by_time(peer, topic, at) for at in (3, -3)] == [failed] * 2
        peer.works()
