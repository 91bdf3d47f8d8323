"""Directories that both tools format with equal options, and the logs that begin from them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from metalog.quorum.batches import read_batches
from metalog.quorum.snapshots import FIRST_SNAPSHOT, SnapshotReader
from protocol.metadata import EndTransactionRecord, RegisterControllerRecord
from storage.files import RealFiles
from testkit.kafka.jars import ORACLE, kafka_libs
from testkit.kafka.nodes import ApacheKafkaNode
from testkit.kafka.twins import CLUSTER_ID, COMMON_FEATURES, KraftboxServer, NodeDirectory

pytestmark = [
    pytest.mark.interop,
    pytest.mark.rest,
    pytest.mark.skipif(
        kafka_libs(ORACLE) is None,
        reason="no Java or Maven to get Kafka's jars with (docs/gaps.md)",
    ),
]

SALT = "salt=c2FsdHNhbHQ="
SCRAM = [
    f"SCRAM-SHA-256=[name=bob,password=secret,iterations=8192,{SALT}]",
    f"SCRAM-SHA-512=[name=alice,saltedpassword=c2FsdGVk,{SALT}]",
]
OPTIONS = ["--standalone", *(part for one in SCRAM for part in ("--add-scram", one))]


def records_of(place: NodeDirectory) -> list[Any]:
    """Return the records of the first snapshot."""
    path = str(place.data / "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint")
    files = RealFiles()
    try:
        return list(SnapshotReader.open(files, path, FIRST_SNAPSHOT).records())
    finally:
        files.close()


def first_logged(place: NodeDirectory) -> list[Any]:
    """Return the records that the first active controller wrote at once."""
    log = place.data / "__cluster_metadata-0/00000000000000000000.log"
    records = [one for batch in read_batches(log.read_bytes()) for one in batch.records]
    kinds = [type(one) for one in records]
    assert kinds.count(EndTransactionRecord) == 1
    assert kinds.index(EndTransactionRecord) < kinds.index(RegisterControllerRecord)
    return records[: kinds.index(EndTransactionRecord) + 1]


def test_formatted_directories_and_first_records_equal_those_of_the_oracle(tmp_path: Path) -> None:
    """KIP-1170, KIP-900: equal options give equal records, in the snapshot and in the log."""
    ours, theirs = (NodeDirectory(tmp_path / name, {}) for name in ("ours", "theirs"))
    kafka = ApacheKafkaNode(theirs.directory, theirs.settings, "256m", version=ORACLE)
    kafka.format(CLUSTER_ID, *COMMON_FEATURES, *OPTIONS)
    config = ours.write_config()
    command = [sys.executable, "-m", "kraftbox", "storage", "format", "-t", CLUSTER_ID]
    done = subprocess.run(
        [*command, "-c", str(config), *OPTIONS], capture_output=True, text=True, check=True
    )
    assert "secret" not in done.stdout + done.stderr
    assert records_of(ours) == records_of(theirs)
    assert [one.name for one in records_of(ours)[-2:]] == ["bob", "alice"]

    kafka.start()
    kafka.stop()
    node = KraftboxServer(ours).start()
    assert node.stop() == 0
    assert first_logged(ours) == first_logged(theirs)
