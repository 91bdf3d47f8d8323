"""The story of `testkit.kafka.story`, run again by a live Kafka cluster (`make soak`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from audit import job
from audit.reading.inputs import read_inputs
from testkit.kafka.jars import kafka_libs
from testkit.kafka.story import CONTROLLERS, Story, collect, dumped
from tests.spark.story import check_elections, check_findings, check_rows

pytestmark = pytest.mark.soak


def test_a_kafka_cluster_is_audited_right(spark: Any, tmp_path: Path) -> None:
    if kafka_libs() is None:
        pytest.skip("no Java or Maven to get Kafka's jars with (docs/gaps.md)")
    story = Story(tmp_path / "cluster")
    try:
        story.begin()
        story.tell()
        story.curtain()
    finally:
        story.end()
    kept = tmp_path / "story"
    collect(story, kept)
    truth = json.loads((kept / "truth.json").read_text())
    result = job.run(read_inputs([kept]), spark).data
    check_elections(result, truth)
    check_findings(result, truth)
    for controller in CONTROLLERS:
        log = kept / f"node-{controller}" / "__cluster_metadata-0"
        rows = spark.read.format("kraftlog").option("snapshots", "true").load(str(log))
        ordered = rows.orderBy("file", "offset").collect()
        files = {path.name: dumped(path) for path in sorted(log.iterdir())}
        assert check_rows(ordered, {"dumped": files}) > 100
    # The brokers' own logs, after all those kills: they are equal below the high watermark.
    whole = job.run(read_inputs([tmp_path / "cluster"]), spark).data
    assert [f for f in whole["findings"] if f["severity"] == "error"] == []
    assert whole["data"]
