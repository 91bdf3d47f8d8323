"""GetReplicaLogInfo: log ends of this broker's replicas, as the controller requests them."""

from __future__ import annotations

from collections import Counter

import pytest

from broker.apis import get_replica_log_info
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.get_replica_log_info import (
    PARTITIONS_PER_REQUEST_MAX,
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
)
from protocol.transport.dispatch import CloseConnection, HandlerTable, own_peers
from protocol.transport.own_names import (
    BROKER_SOFTWARE_NAME,
    CONTROLLER_SOFTWARE_NAME,
    TOOL_SOFTWARE_NAME,
)
from testkit.memory.broker import LISTENER, NODE, OTHER, Harness, Peer, batch, topic_id

BROKER_EPOCH = 77


def ask(
    h: Harness, *indexes: int, topic: bytes = topic_id(1), broker: int = NODE
) -> list[GetReplicaLogInfoResponse.PartitionLogInfo]:
    if ApiKey.GET_REPLICA_LOG_INFO not in h.table.entries:
        get_replica_log_info.register(h.table, h.context, lambda: BROKER_EPOCH)
    request = GetReplicaLogInfoRequest(
        broker_id=broker,
        topic_partitions=[
            GetReplicaLogInfoRequest.TopicPartitions(topic_id=topic, partitions=list(indexes))
        ],
    )
    response = h.body(request, 0)
    assert response.broker_epoch == BROKER_EPOCH
    (answered,) = response.topic_partition_log_info_list
    assert answered.topic_id == topic
    infos: list[GetReplicaLogInfoResponse.PartitionLogInfo] = answered.partition_log_info
    assert [info.partition for info in infos] == list(indexes)
    return infos


async def test_the_epoch_is_that_of_the_last_batch() -> None:
    h = Harness()
    h.create_topic()
    h.change(leader=NODE)
    assert ask(h, 0)[0].last_written_leader_epoch == -1
    h.produce(batch(b"a", b"b"))
    h.change(leader=NODE)
    assert h.partition().log.latest_epoch == 2
    (info,) = ask(h, 0)
    assert (info.error_code, info.error_message) == (ErrorCode.NONE, None)
    assert (info.last_written_leader_epoch, info.log_end_offset) == (1, 2)
    assert info.current_leader_epoch == 2
    h.produce(batch(b"c"))
    assert ask(h, 0)[0].last_written_leader_epoch == 2


async def test_a_log_whose_batches_are_all_gone_keeps_their_epoch() -> None:
    h = Harness()
    h.create_topic()
    h.change(leader=NODE)
    h.produce(batch(b"a", b"b"))
    log = h.partition().log
    log.update_high_watermark(2)
    log.advance_log_start(2)
    for leader in (NODE, OTHER, NODE):
        h.change(leader=leader)
        (info,) = ask(h, 0)
        assert (info.last_written_leader_epoch, info.log_end_offset) == (1, 2)


async def test_replica_log_info_of_missing_or_failed_replica_is_an_error() -> None:
    h = Harness()
    h.create_topic()
    assert ask(h, 7)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(h, 0, topic=topic_id(9))[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert ask(h, 0, broker=OTHER)[0].error_code == ErrorCode.INVALID_REQUEST
    h.replicas.storage_failed(h.partition(), OSError("disk"))
    assert ask(h, 0)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_failed_log_under_a_partition_that_does_not_know_yet() -> None:
    h = Harness()
    h.create_topic()
    h.partition().log.guard.fail(OSError("disk"))
    assert ask(h, 0)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_log_that_is_about_to_begin_behind_the_tier_is_no_answer() -> None:
    """S5: a crash would leave nothing of such a log."""
    h = Harness()
    h.create_topic()
    h.partition().log.bounds.bootstrapping = True
    assert ask(h, 0)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_beyond_the_limit() -> None:
    h = Harness()
    h.create_topic()
    infos = ask(h, *[0] * (PARTITIONS_PER_REQUEST_MAX + 2))
    codes = [info.error_code for info in infos]
    assert codes[:PARTITIONS_PER_REQUEST_MAX] == [ErrorCode.NONE] * PARTITIONS_PER_REQUEST_MAX
    assert codes[PARTITIONS_PER_REQUEST_MAX:] == [ErrorCode.REQUEST_LIMIT_REACHED] * 2


async def test_requests_of_extreme_sizes() -> None:
    """Null, empty lists, a partition twice, unknown partitions, ten thousand entries: each entry is
    answered in its place, in one response."""
    h = Harness()
    h.create_topic()
    assert ask(h) == []
    for nothing in (None, []):
        request = GetReplicaLogInfoRequest(broker_id=NODE, topic_partitions=nothing)
        assert h.body(request, 0).topic_partition_log_info_list == []
    twice, again, low, high = ask(h, 0, 0, -(2**31), 2**31 - 1)
    assert twice == again
    assert (twice.error_code, twice.log_end_offset) == (ErrorCode.NONE, 0)
    assert low.error_code == high.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(h, 0, topic=bytes(16))[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    codes = Counter(info.error_code for info in ask(h, *range(10_000), topic=topic_id(9)))
    assert codes == {
        ErrorCode.UNKNOWN_TOPIC_ID: PARTITIONS_PER_REQUEST_MAX,
        ErrorCode.REQUEST_LIMIT_REACHED: 10_000 - PARTITIONS_PER_REQUEST_MAX,
    }


@pytest.mark.parametrize("unstable", [False, True])
async def test_get_replica_log_info_is_offered_to_our_own_nodes_only(unstable: bool) -> None:
    h = Harness()
    table = HandlerTable(unstable=unstable, own_kind=own_peers(LISTENER))
    get_replica_log_info.register(table, h.context, lambda: BROKER_EPOCH)
    table.serve_api_versions()
    key = ApiKey.GET_REPLICA_LOG_INFO
    peer = Peer()
    for name in ("", "apache-kafka-java"):
        peer.software_name = name
        own = table.own_kind(peer)
        assert key not in {
            each.api_key for each in table.api_versions_response(4, own=own).api_keys
        }
        with pytest.raises(CloseConnection):
            table.find(key, 0, peer)
    for name in (TOOL_SOFTWARE_NAME, BROKER_SOFTWARE_NAME, CONTROLLER_SOFTWARE_NAME):
        peer.software_name = name
        assert table.find(key, 0, peer) is table.entries[key]
        own = table.own_kind(peer)
        assert key in {each.api_key for each in table.api_versions_response(4, own=own).api_keys}
    peer.listener = "OTHER"
    with pytest.raises(CloseConnection):
        table.find(key, 0, peer)
