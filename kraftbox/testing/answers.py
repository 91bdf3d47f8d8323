"""Request handlers of the helper that need Kafka: topics, records, reset.

A test may next use another broker than the one that answered. So a handler that creates or deletes
something waits until every running broker (`nodes`) has learned of it.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from client.admin import Admin
from client.cluster_client import (
    EARLIEST,
    LATEST,
    REQUEST_TIMEOUT_MS,
    ClusterClient,
    Produced,
)
from client.consumer import Consumer
from client.errors import check
from client.leaders import TopicPartition
from client.offsets import led_partitions, offsets_at, partitions_of
from client.partitioner import partition_of
from client.producer import IdempotentProducer, NotProduced
from client.retries import Deadline
from client.visible_records import Received
from kraftbox.cli.output import CommandFailed, say_error
from kraftbox.cli.waiting import NOTICE_S, noticed, waiting_text
from kraftbox.testing import operations
from kraftbox.testing.cluster import no_partition
from protocol.batch.records import Record
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.metadata import MetadataRequest, MetadataResponse

Question = Mapping[str, Any]
Topics = Mapping[str, MetadataResponse.MetadataResponseTopic]

TIMEOUT_MS = 30_000.0
POLL_S = 0.002
PAGE_BYTES = 512 << 10
"""Maximum bytes of records in one answer, which must fit into a frame."""
PAGE_RECORDS = 5_000
POLLS_PER_PAGE = 3
GROUPS_MAX = 1_000
"""All groups are deleted in parallel; more than this are a bug in a test."""


async def create_topic(client: ClusterClient, question: Question) -> None:
    admin = Admin(client)
    name = question["name"]
    await admin.create_topic(
        name, question["partitions"], question["replication_factor"], question["configs"]
    )
    await _everywhere(client, question["nodes"], lambda topics: _is_led(topics.get(name)))


async def delete_topic(client: ClusterClient, question: Question) -> None:
    name = question["name"]
    await Admin(client).delete_topic(name)
    await _everywhere(client, question["nodes"], lambda topics: name not in topics)


async def topics(client: ClusterClient, question: Question) -> dict[str, list[dict[str, Any]]]:
    """Return partitions by topic; internal topics only if requested."""
    reply = await client.metadata()
    return {
        topic.name or "": [
            {
                "index": partition.partition_index,
                "leader": partition.leader_id,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replica_nodes),
                "isr": list(partition.isr_nodes),
            }
            for partition in sorted(topic.partitions, key=lambda p: p.partition_index)
        ]
        for topic in reply.topics
        if question["internal"] or not topic.is_internal
    }


# --- records ----------------------------------------------------------------------------------


async def produce(client: ClusterClient, question: Question) -> list[list[Any]]:
    """Write records exactly once with acks=all; return rows as in `consume`, in the given order.

    `turn` counts the earlier records without a key or partition. They go to the partitions that
    have a leader; only the partitions of the records need one. Raises CommandFailed with the
    partition if a batch is not acknowledged within `timeout_ms`.
    """
    name = question["topic"]
    deadline = Deadline(question["timeout_ms"])
    topic = await client.topic(name, deadline.left_ms, create=True)
    count = len(topic.partitions)
    by_partition: dict[int, list[tuple[int, Record]]] = defaultdict(list)
    now_ms = time.time_ns() // 1_000_000
    led = [index for index in range(count) if client.cache.is_led((name, index))] or range(count)
    for place, (key, value, headers, chosen, at_ms) in enumerate(question["records"]):
        if chosen is None:
            turn = question["turn"] + place
            chosen = led[turn % len(led)] if key is None else partition_of(key, count)
        elif not 0 <= chosen < count:
            raise CommandFailed(no_partition(name, chosen, count))
        stamp = now_ms if at_ms is None else at_ms
        pairs = [(header, each) for header, each in headers]
        by_partition[chosen].append((place, Record(0, stamp, key, value, pairs)))
    rows: dict[int, list[Any]] = {}
    producer = IdempotentProducer(
        client,
        delivery_timeout_ms=deadline.left_ms,
        request_timeout_ms=min(REQUEST_TIMEOUT_MS, deadline.left_ms),
    )
    async with producer:
        sent: dict[int, asyncio.Future[Produced]] = {
            index: producer.send(name, index, [record for _, record in entries])
            for index, entries in by_partition.items()
        }
        notice = asyncio.get_running_loop().call_later(NOTICE_S, _say_waiting, client, name, sent)
        for index, future in sent.items():
            try:
                produced = await future
            except NotProduced as error:
                notice.cancel()
                raise CommandFailed(f"{name}-{index}: {error}") from None
            for delta, (place, one) in enumerate(by_partition[index]):
                stamp = one.timestamp if produced.log_append_time_ms < 0 else 0
                at_ms = stamp or produced.log_append_time_ms
                offset = produced.base_offset + delta
                rows[place] = [one.key, one.value, one.headers, index, offset, at_ms]
        notice.cancel()
    return [rows[place] for place in sorted(rows)]


def _say_waiting(
    client: ClusterClient, topic: str, sent: Mapping[int, asyncio.Future[Produced]]
) -> None:
    """Print for which leaders the batches wait that have no acknowledgement yet."""
    for index, future in sent.items():
        if not future.done():
            say_error(waiting_text(client.cache, (topic, index)))


async def begin_reading(client: ClusterClient, question: Question) -> dict[str, Any]:
    """Return where reading a topic begins and ends, and the partitions without a leader.

    `partition` None means all. With `to_end`, positions and ends are offsets of the partitions that
    have a leader within `timeout_ms`. Otherwise positions are EARLIEST, and there are no ends.
    """
    name, chosen = question["topic"], question["partition"]
    deadline = Deadline(question["timeout_ms"])
    partitions = await partitions_of(client, [name])
    if chosen is not None:
        if (name, chosen) not in partitions:
            raise CommandFailed(no_partition(name, chosen, len(partitions)))
        partitions = [(name, chosen)]
    wait_ms = deadline.left_ms if question["to_end"] else 0.0
    async with noticed(f"waiting for leaders of {name}"):
        led = await led_partitions(client, partitions, wait_ms)
    leaderless = [index for _, index in partitions if (name, index) not in led]
    if not question["to_end"]:
        positions = [[index, EARLIEST] for _, index in partitions]
        return {"positions": positions, "ends": [], "leaderless": leaderless}
    # Both requests of a partition whose leader is silent have the rest of the time.
    first = await offsets_at(client, led, EARLIEST, timeout_ms=deadline.left_ms)
    last = await offsets_at(client, led, LATEST, timeout_ms=deadline.left_ms)
    return {
        "positions": [[index, first[name, index]] for _, index in led],
        "ends": [[index, last[name, index]] for _, index in led],
        "leaderless": leaderless,
    }


async def consume(client: ClusterClient, question: Question) -> dict[str, Any]:
    """Return a page of records from `positions` on, and the positions after it.

    Waits at most `wait_ms` for the first record. A silent leader delays the others of a page by a
    part of that time.
    """
    name = question["topic"]
    consumer = Consumer(client, read_committed=True)
    consumer.assign({(name, index): offset for index, offset in question["positions"]})
    deadline = Deadline(question["wait_ms"])
    poll_ms = question["wait_ms"] / POLLS_PER_PAGE
    found: list[Received] = []
    while not found and deadline.left_ms > 1.0:
        try:
            found = await consumer.poll(PAGE_RECORDS, min(poll_ms, deadline.left_ms))
        except OSError:
            # No broker answered within this poll; the page may have time for another one.
            continue
    positions = dict(consumer.positions)
    rows: list[list[Any]] = []
    size = 0
    for record in found:
        size += 64 + len(record.key or b"") + len(record.value or b"")
        size += sum(16 + len(header) + len(each or b"") for header, each in record.headers)
        if rows and size > PAGE_BYTES:
            positions |= _first_of(found[len(rows) :])
            break
        pairs = [[header, each] for header, each in record.headers]
        row = [record.key, record.value, pairs, record.partition]
        rows.append([*row, record.offset, record.timestamp_ms])
    return {
        "records": rows,
        "positions": [[index, offset] for (_, index), offset in positions.items()],
    }


def _first_of(records: Iterable[Received]) -> dict[TopicPartition, int]:
    """Return the lowest offset of each partition."""
    found: dict[TopicPartition, int] = {}
    for record in records:
        found.setdefault((record.topic, record.partition), record.offset)
    return found


# --- reset ------------------------------------------------------------------------------------


async def reset(client: ClusterClient, question: Question) -> None:
    """Delete every group and every topic that is not internal."""
    metadata, groups = await asyncio.gather(client.metadata(), Admin(client).list_groups())
    await _delete_groups(client, [group.group_id for group in groups])
    names = [topic.name or "" for topic in metadata.topics if not topic.is_internal]
    if not names:
        return
    request = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in names],
        timeout_ms=int(TIMEOUT_MS),
    )
    for result in (await client.request_any(request, TIMEOUT_MS)).responses:
        if result.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            check(result.error_code, result.name or "", result.error_message)
    gone = set(names)
    await _everywhere(client, question["nodes"], lambda topics: gone.isdisjoint(topics))


async def _delete_groups(client: ClusterClient, groups: Sequence[str]) -> None:
    if len(groups) > GROUPS_MAX:
        raise CommandFailed(f"reset deletes at most {GROUPS_MAX} groups, not {len(groups)}")
    await asyncio.gather(*(_delete_group(client, group) for group in groups))


async def _delete_group(client: ClusterClient, group: str) -> None:
    """Delete a group; remove its members first.

    A test that failed before it closed its consumers leaves members behind.
    """
    request = DeleteGroupsRequest(groups_names=[group])
    admin = Admin(client)
    while True:
        reply = await client.request_coordinator(group, request, TIMEOUT_MS)
        code = reply.results[0].error_code
        if code != ErrorCode.NON_EMPTY_GROUP:
            break
        members = (await admin.describe_group(group)).members
        leaving = LeaveGroupRequest(
            group_id=group,
            members=[
                LeaveGroupRequest.MemberIdentity(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    reason="the cluster is reset",
                )
                for member in members
            ],
        )
        left = await client.request_coordinator(group, leaving, TIMEOUT_MS)
        check(left.error_code, f"group {group}")
    if code != ErrorCode.GROUP_ID_NOT_FOUND:
        check(code, f"group {group}")


# --- all brokers ------------------------------------------------------------------------------


def _is_led(topic: MetadataResponse.MetadataResponseTopic | None) -> bool:
    return topic is not None and all(one.leader_id >= 0 for one in topic.partitions)


async def _everywhere(
    client: ClusterClient, nodes: Sequence[int], holds: Callable[[Topics], bool]
) -> None:
    """Wait until `holds` is true in the metadata of each broker. Raises CommandFailed, OSError."""
    deadline = asyncio.get_running_loop().time() + TIMEOUT_MS / 1000.0

    async def on(node_id: int) -> None:
        while True:
            reply = await client.request_broker(node_id, MetadataRequest(topics=None), TIMEOUT_MS)
            client.cache.learn(reply)
            if holds({topic.name or "": topic for topic in reply.topics}):
                return
            if asyncio.get_running_loop().time() > deadline:
                raise CommandFailed(
                    f"broker {node_id} did not receive the deletion within {TIMEOUT_MS:g} ms"
                )
            await asyncio.sleep(POLL_S)

    known = [node_id for node_id in nodes if node_id in client.cache.brokers]
    await asyncio.gather(*(on(node_id) for node_id in known))


ANSWERS: dict[str, Callable[[ClusterClient, Question], Awaitable[Any]]] = {
    "create_topic": create_topic,
    "delete_topic": delete_topic,
    "topics": topics,
    "produce": produce,
    "begin_reading": begin_reading,
    "consume": consume,
    "reset": reset,
    "brokers": operations.brokers,
    "alter_config": operations.alter_config,
    "group_lag": operations.group_lag,
    "elect": operations.elect,
    "explain": operations.explain,
}
