"""A tiered topic on a real node: clients write it, and read data that is on no disk any more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.tiered.records import METADATA_TOPIC
from testkit.processes.nodes import KraftboxNode
from testkit.processes.waiting import until
from tests.e2e.numbers import create_topic, read_numbers
from tests.e2e.tier.node import (
    TOPIC,
    delete_topic,
    files_in,
    segments,
    send,
    tier,
    tier_settings,
)

pytestmark = [pytest.mark.e2e, pytest.mark.core, pytest.mark.filterwarnings("default")]

RECORDS = 20_000
SEGMENT_BYTES = 32 << 10


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    return tmp_path / "bucket"


@pytest.fixture
def node(tmp_path: Path, bucket: Path) -> Iterator[KraftboxNode]:
    made = KraftboxNode(tmp_path / "node", settings=tier_settings({"url": f"file://{bucket}"}))
    yield made
    made.kill()


def verify_what_there_is(node: KraftboxNode, bucket: Path) -> None:
    """Check that `tier verify` finds no fault, then each missing, truncated or foreign object."""
    _, listed = tier(node, "list", "--topic", TOPIC)
    finished = [one for one in listed["segments"] if one["state"] == "COPY_FINISHED"]
    assert [one["startOffset"] for one in finished][0] == 0
    assert finished[-1]["endOffset"] + 1 == segments(node)[0]
    assert tier(node, "verify", "--topic", TOPIC)[1]["findings"] == []
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
    delete_topic(node, METADATA_TOPIC)
    assert tier(node, "rebuild") == (0, {"written": len(finished), "known": 0})
    assert tier(node, "verify")[0] == 0


def test_tiered_records_are_read_after_crash_and_deleted_with_topic(
    node: KraftboxNode, bucket: Path
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
    assert sum(name.endswith(".manifest") for name in files_in(bucket)) >= 5
    assert read_numbers(node.bootstrap, TOPIC) == list(range(RECORDS))
    verify_what_there_is(node, bucket)
    node.kill()
    node.start()
    send(node, RECORDS, 1_000)
    assert read_numbers(node.bootstrap, TOPIC) == list(range(RECORDS + 1_000))
    delete_topic(node)
    until("the deleted topic's objects are gone", lambda: not files_in(bucket))
