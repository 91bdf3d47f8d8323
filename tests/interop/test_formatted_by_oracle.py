"""Directories that Kafka 4.4.0 formatted, with Kraftbox and 4.4.0 on them in turn (KIP-1170)."""

from __future__ import annotations

from pathlib import Path

import pytest

from metalog.image.replay import replay_all
from metalog.image.values import EMPTY_IMAGE, MetadataImage
from metalog.quorum.batches import read_batches
from testkit.kafka.jars import kafka_libs
from testkit.kafka.nodes import ApacheKafkaNode
from testkit.kafka.twins import CLUSTER_ID, COMMON_FEATURES, KraftboxServer, NodeDirectory

pytestmark = [
    pytest.mark.interop,
    pytest.mark.rest,
    pytest.mark.skipif(
        kafka_libs() is None,
        reason="no Java or Maven to get Kafka's jars with (docs/gaps.md)",
    ),
]

SCRAM = ["--add-scram", "SCRAM-SHA-256=[name=alice,iterations=4096,password=secret]"]


def image_of(place: NodeDirectory) -> MetadataImage:
    log = place.data / "__cluster_metadata-0/00000000000000000000.log"
    records = [one for batch in read_batches(log.read_bytes()) for one in batch.records]
    return replay_all(EMPTY_IMAGE, records)


@pytest.mark.parametrize("way", ["static", "standalone"])
@pytest.mark.parametrize(("release", "level", "elr"), [("4.4", 33, 1), ("4.0", 25, 0)])
def test_directory_of_the_oracle_keeps_levels_and_credentials(
    tmp_path: Path, way: str, release: str, level: int, elr: int
) -> None:
    """The log of an empty quorum begins with the records of the 0-0 snapshot, once."""
    place = NodeDirectory(tmp_path / "node", {})
    if way == "static":
        del place.settings["controller.quorum.bootstrap.servers"]
        place.settings["controller.quorum.voters"] = f"1@{place.controller}"
    kafka = ApacheKafkaNode(place.directory, place.settings, "256m")
    option = [] if way == "static" else ["--standalone"]
    features = COMMON_FEATURES if release == "4.4" else COMMON_FEATURES[:4]
    kafka.format(CLUSTER_ID, *option, "--release-version", release, *features, *SCRAM)
    assert not (place.data / "bootstrap.checkpoint").exists()

    ours = KraftboxServer(place).start()
    ours.kill()
    for _ in range(2):
        image = image_of(place)
        levels = {"metadata.version": level, "eligible.leader.replicas.version": elr}
        assert {name: image.features.get(name, 0) for name in levels} == levels
        assert set(image.features) <= set(levels)
        assert list(image.scram) == [(1, "alice")]
        kafka.start()
        kafka.stop()
        ours = KraftboxServer(place).start()
        assert ours.stop() == 0
