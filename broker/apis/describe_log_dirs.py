"""DescribeLogDirs (key 35), versions 1-5.

Behaviour: the one log directory with the size of its replicas: those of all topics for null,
otherwise those of the named topics. `offset_lag` is how far a replica is behind the high watermark,
0 for a leader. Version 3 adds a top-level error, 4 the size of the volume (KIP-827), 5 a flag for
cordoned directories (never set here).
"""

from __future__ import annotations

from typing import Final

from broker.context import BrokerContext
from broker.replication.partition.partition import Partition
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION: Final = 1
MAX_VERSION: Final = 5

UNKNOWN_BYTES: Final = -1


def register(table: HandlerTable, broker: BrokerContext) -> None:
    def handle(_context: RequestContext, request: DescribeLogDirsRequest) -> Reply:
        return describe(broker, request)

    table.register(
        ApiKey.DESCRIBE_LOG_DIRS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )


def describe(broker: BrokerContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Return the log directory with the requested replicas."""
    directory = broker.config.log_dir
    result = DescribeLogDirsResponse.DescribeLogDirsResult(log_dir=directory)
    try:
        result.total_bytes, result.usable_bytes = broker.files.disk_usage(directory)
    except OSError:
        result.total_bytes = result.usable_bytes = UNKNOWN_BYTES
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    by_topic: dict[str, list[Partition]] = {}
    for partition in _wanted(broker, request):
        by_topic.setdefault(partition.topic, []).append(partition)
    for topic, partitions in sorted(by_topic.items()):
        result.topics.append(
            DescribeLogDirsResponse.DescribeLogDirsTopic(
                name=topic,
                partitions=[
                    DescribeLogDirsResponse.DescribeLogDirsPartition(
                        partition_index=partition.index,
                        partition_size=partition.log.size_bytes,
                        offset_lag=max(
                            0, partition.log.high_watermark - partition.log.log_end_offset
                        ),
                    )
                    for partition in sorted(partitions, key=lambda each: each.index)
                ],
            )
        )
    return DescribeLogDirsResponse(results=[result])


def _wanted(broker: BrokerContext, request: DescribeLogDirsRequest) -> list[Partition]:
    if request.topics is None:
        return list(broker.replicas)
    keys = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    found = (broker.replicas.get(topic, index) for topic, index in sorted(keys))
    return [partition for partition in found if partition is not None]
