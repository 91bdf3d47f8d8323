"""A tiered topic on a real node: clients write it, and read what no disk has any more."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from storage.tiered.records import METADATA_TOPIC
from testkit.processes.nodes import KraftboxNode
from testkit.processes.waiting import until
from tests.e2e.numbers import TIMEOUT_S, create_topic, read_numbers

pytestmark = [pytest.mark.e2e, pytest.mark.core, pytest.mark.filterwarnings("default")]

RECORDS = 20_000
SEGMENT_BYTES = 32 << 10
TOPIC = "tiered"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[KraftboxNode]:
    settings = {
        "remote.log.storage.system.enable": "true",
        "kraftbox.tiered.storage.preview": "true",
        "rsm.config.url": f"file://{tmp_path}/bucket",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "remote.log.manager.task.interval.ms": "200",
        "log.retention.check.interval.ms": "200",
        "log.segment.delete.delay.ms": "0",
    }
    made = KraftboxNode(tmp_path / "node", settings=settings)
    yield made
    made.kill()


def segments(node: KraftboxNode) -> list[int]:
    """Base offsets of the segments on the disk."""
    folder = node.directory / "data" / f"{TOPIC}-0"
    return sorted(int(path.stem) for path in folder.glob("*.log"))


def objects(node: KraftboxNode) -> list[str]:
    """Names of what is in the bucket."""
    found = (node.directory.parent / "bucket").rglob("*")
    return [path.name for path in found if path.is_file()]


def send(node: KraftboxNode, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "batch.num.messages": 100})
    for number in range(first, first + count):
        producer.produce(TOPIC, b"%d" % number)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


def tier(node: KraftboxNode, *arguments: str) -> tuple[int, Any]:
    """Exit code and answer of `kraftbox tier`."""
    command = [sys.executable, "-m", "kraftbox", "tier", *arguments, "--json"]
    command += ["--dir", str(node.directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def verify_what_there_is(node: KraftboxNode) -> None:
    """All that finished segments name is there; what lacks, is cut or is of nobody is named."""
    _, listed = tier(node, "list", "--topic", TOPIC)
    finished = [one for one in listed["segments"] if one["state"] == "COPY_FINISHED"]
    assert [one["startOffset"] for one in finished][0] == 0
    assert finished[-1]["endOffset"] + 1 == segments(node)[0]
    assert tier(node, "verify", "--topic", TOPIC)[1]["findings"] == []
    bucket = node.directory.parent / "bucket"
    index = next(bucket.rglob(f"{finished[0]['segment']}.index"))
    kept = index.read_bytes()
    index.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    foreign = bucket / "foreign"
    foreign.write_bytes(b"?")
    code, verified = tier(node, "verify")
    faults = {one["fault"]: one["key"].rsplit("/")[-1] for one in verified["findings"]}
    assert (code, faults) == (1, {"FOREIGN": "foreign", "WRONG_CONTENT": index.name})
    index.write_bytes(kept)
    foreign.unlink()
    assert tier(node, "verify")[0] == 0
    assert tier(node, "rebuild") == (0, {"written": 0, "known": len(finished)})
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.delete_topics([METADATA_TOPIC])[METADATA_TOPIC].result(TIMEOUT_S)
    assert tier(node, "rebuild") == (0, {"written": len(finished), "known": 0})
    assert tier(node, "verify")[0] == 0


def test_what_only_the_tier_has_is_read_also_after_a_crash_and_goes_with_the_topic(
    node: KraftboxNode,
) -> None:
    node.start()
    config = {
        "remote.storage.enable": "true",
        "internal.segment.bytes": str(SEGMENT_BYTES),
        "local.retention.bytes": "1",
    }
    create_topic(node.bootstrap, TOPIC, **config)
    send(node, 0, RECORDS)
    until("all but the last segment left the disk", lambda: len(segments(node)) == 1)
    assert segments(node)[0] > RECORDS * 3 // 4
    assert sum(name.endswith(".manifest") for name in objects(node)) >= 5
    assert read_numbers(node.bootstrap, TOPIC) == list(range(RECORDS))
    verify_what_there_is(node)
    node.kill()
    node.start()
    send(node, RECORDS, 1_000)
    assert read_numbers(node.bootstrap, TOPIC) == list(range(RECORDS + 1_000))
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.delete_topics([TOPIC])[TOPIC].result(TIMEOUT_S)
    until("the deleted topic's objects are gone", lambda: not objects(node))
