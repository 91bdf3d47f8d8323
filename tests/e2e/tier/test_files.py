"""F21 on a tiered log: missing or damaged files next to the segments when a node starts.

Their content is restored from the segments on the disk, and from the tier for data that the disk
lacks: offsets, leader epochs and the producers' state are those from before (T2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from client.cluster_client import ClusterClient
from protocol.messages.describe_producers import DescribeProducersRequest
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from storage.log.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from testkit.processes.nodes import KraftboxNode
from testkit.processes.waiting import until
from tests.e2e.numbers import create_topic, read_numbers
from tests.e2e.tier.node import TOPIC, segments, send, tier_settings, until_clean

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("default")]

RECORDS = 3_500
"""More than a segment."""
EPOCHS = 3
OFFSETS = (-1, -2, -4, -5)
CONFIG = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": str(32 << 10),
    "local.retention.bytes": "1",
}
DAMAGED = {
    "epochs": f"{TOPIC}-0/{LEADER_EPOCH_CHECKPOINT}",
    "producers": f"{TOPIC}-0/*.snapshot",
    "indexes": f"{TOPIC}-0/*index",
    "high watermarks": HIGH_WATERMARK_CHECKPOINT,
    "log starts": LOG_START_CHECKPOINT,
    "recovery points": RECOVERY_POINT_CHECKPOINT,
}
"""Cases by name, with their files."""


class Facts(NamedTuple):
    """A leader's answers about the log."""

    offsets: list[int]
    epochs: list[tuple[int, int]]
    """End offset of each leader epoch but the newest."""
    producers: set[tuple[int, int, int]]
    """Producer id, epoch, last sequence."""


async def ask(bootstrap: str, newest_epoch: int) -> Facts:
    async with await ClusterClient.connect(bootstrap) as client:
        offsets = [(await client.list_offset(TOPIC, 0, one)).offset for one in OFFSETS]
        node_id = client.cache.leaders[TOPIC, 0].node_id
        producers = await client.request_broker(
            node_id,
            DescribeProducersRequest(
                topics=[DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[0])]
            ),
        )
        asked = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
        epochs = [
            await client.request_broker(
                node_id,
                OffsetForLeaderEpochRequest(
                    topics=[
                        OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                            topic=TOPIC, partitions=[asked(partition=0, leader_epoch=epoch)]
                        )
                    ]
                ),
            )
            for epoch in range(newest_epoch)
        ]
    (told,) = producers.topics[0].partitions
    ends = [one.topics[0].partitions[0] for one in epochs]
    assert [one.error_code for one in ends] == [0] * newest_epoch and told.error_code == 0
    return Facts(
        offsets,
        [(one.leader_epoch, one.end_offset) for one in ends],
        {(p.producer_id, p.producer_epoch, p.last_sequence) for p in told.active_producers},
    )


def newest_epoch(node: KraftboxNode) -> int:
    async def look() -> int:
        async with await ClusterClient.connect(node.bootstrap) as client:
            return (await client.topic(TOPIC)).partitions[0].leader_epoch

    return asyncio.run(look())


@pytest.fixture
def node(tmp_path: Path) -> Iterator[KraftboxNode]:
    settings = {
        **tier_settings({"url": f"file://{tmp_path}/bucket"}),
        "replica.high.watermark.checkpoint.interval.ms": "200",
        "log.flush.offset.checkpoint.interval.ms": "200",
        "log.flush.start.offset.checkpoint.interval.ms": "200",
    }
    made = KraftboxNode(tmp_path / "node", settings=settings).start()
    try:
        yield made
    finally:
        made.kill()


def damage(node: KraftboxNode, name: str, *, broken: bool) -> None:
    """Kill the node, and remove the files or change their bytes."""
    folder = node.directory / "data"
    until(f"files of {name}", lambda: list(folder.glob(DAMAGED[name])))
    node.kill()
    for path in folder.glob(DAMAGED[name]):
        if broken:
            path.write_bytes(b"?" + path.read_bytes()[1:] + b"?")
        else:
            path.unlink()


def story(node: KraftboxNode, cases: list[tuple[str, bool]]) -> None:
    create_topic(node.bootstrap, TOPIC, **CONFIG)
    for number in range(EPOCHS):
        if number:
            node.kill()
            node.start()
        send(node, number * RECORDS, RECORDS)
    until("all but the last segment left the disk", lambda: len(segments(node)) == 1)
    assert segments(node)[0] > (EPOCHS - 1) * RECORDS
    count = EPOCHS * RECORDS
    epoch = newest_epoch(node)
    before = asyncio.run(ask(node.bootstrap, epoch))
    assert len(set(before.epochs)) >= EPOCHS - 1
    assert len(before.producers) == EPOCHS
    for name, broken in cases:
        damage(node, name, broken=broken)
        node.start()
        assert read_numbers(node.bootstrap, TOPIC) == list(range(count)), name
        until(f"{name} as before", lambda: asyncio.run(ask(node.bootstrap, epoch)) == before)
    until_clean(("--dir", str(node.directory)))
    send(node, count, RECORDS)
    until("what came since is in the tier", lambda: segments(node)[0] > count)
    assert read_numbers(node.bootstrap, TOPIC) == list(range(count + RECORDS))


def test_f21_missing_files_of_tiered_log_are_rebuilt(node: KraftboxNode) -> None:
    story(node, [("epochs", False), ("producers", False), ("indexes", True)])


@pytest.mark.soak
@pytest.mark.parametrize("broken", [False, True])
def test_f21_each_damaged_file_is_rebuilt(node: KraftboxNode, broken: bool) -> None:
    story(node, [(name, broken) for name in DAMAGED])
