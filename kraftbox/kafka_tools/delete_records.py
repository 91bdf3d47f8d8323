"""kafka-delete-records.sh: delete the records below given offsets."""

from __future__ import annotations

from collections.abc import Sequence

from client.cluster_client import ClusterClient
from client.leaders import TopicPartition
from kraftbox.cli.connect import run
from kraftbox.cli.output import CommandFailed, say, say_cells
from kraftbox.kafka_tools.json_file import number_of, read_entries, topic_of
from kraftbox.kafka_tools.options import add_bootstrap, bootstrap_of, parser
from protocol.errors import ApiError, ErrorCode
from protocol.messages.delete_records import DeleteRecordsRequest

TIMEOUT_MS = 30_000


def main(name: str, arguments: Sequence[str]) -> int:
    options = parser(name, __doc__ or "")
    add_bootstrap(options)
    options.add_argument("--offset-json-file", required=True, metavar="FILE")
    given = options.parse_args(arguments)
    wanted = read_offsets(given.offset_json_file)
    run(bootstrap_of(given), lambda client: _delete(client, wanted))
    return 0


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """Return the offsets of a file, -1 for the high watermark. Raises CommandFailed."""
    found: dict[TopicPartition, int] = {}
    for entry in read_entries(path, "partitions"):
        key = topic_of(path, entry), number_of(path, entry, "partition")
        if key in found:
            raise CommandFailed(f"{path}: duplicate partition {key[0]}-{key[1]}")
        found[key] = number_of(path, entry, "offset", -1)
    return found


async def _delete(client: ClusterClient, wanted: dict[TopicPartition, int]) -> None:
    say("Executing records delete operation")
    await client.metadata(sorted({topic for topic, _ in wanted}))
    say("Records delete operation completed:")
    for (topic, index), offset in sorted(wanted.items()):
        outcome = await _delete_one(client, topic, index, offset)
        say_cells(f"partition: {topic}-{index}", outcome)


async def _delete_one(client: ClusterClient, topic: str, index: int, offset: int) -> str:
    leader = client.cache.leaders.get((topic, index))
    if leader is None:
        return "error: the partition does not exist, or has no leader"
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)
    of_topic = DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[partition])
    request = DeleteRecordsRequest(topics=[of_topic], timeout_ms=TIMEOUT_MS)
    try:
        reply = await client.request_broker(leader.node_id, request)
    except ApiError as error:
        return f"error: {error}"
    result = reply.topics[0].partitions[0]
    if result.error_code != ErrorCode.NONE:
        return f"error: {ErrorCode(result.error_code).name}"
    return f"low_watermark: {result.low_watermark}"
