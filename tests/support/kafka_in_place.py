"""Apache Kafka's nodes in the place of ours: same properties file, same directory, same ports."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path

from protocol.ids import random_uuid, uuid_to_text
from tests.support.nodes import ApacheKafkaNode
from tests.support.quorum_cluster import NodeProcess

META = "meta.properties"
HEAP = "192m"
QUICK_TO_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


class KafkaInPlace:
    """Kafka's node with the identity of one of ours, which must not run."""

    def __init__(self, place: NodeProcess, settings: Mapping[str, str] | None = None) -> None:
        self.place = place
        given = {
            "log.cleaner.dedupe.buffer.size": "4194304",
            **place.properties(),
            **(settings or {}),
        }
        ours = [key for key in given if key.startswith("kraftbox.")]
        for key in ours:
            del given[key]
        self.node = ApacheKafkaNode(place.directory, given, HEAP, QUICK_TO_START)

    def complete_format(self) -> None:
        """Further log directories, after the first one was formatted for `place`."""
        first, *others = self.node.settings["log.dirs"].split(",")
        written = (Path(first) / META).read_text()
        for directory in map(Path, others):
            directory.mkdir()
            new = f"directory.id={uuid_to_text(random_uuid(random.Random(str(directory))))}"
            (directory / META).write_text(re.sub(r"^directory\.id=.*$", new, written, flags=re.M))

    def begin(self) -> None:
        """Start the process; several may come up together."""
        self.node.write_config()
        self.node.begin()

    def wait_until_ready(self) -> None:
        self.node.wait_until_ready("Kafka Server started")

    def start(self) -> None:
        self.begin()
        self.wait_until_ready()

    def stop(self) -> None:
        self.node.stop()

    def kill(self) -> None:
        self.node.kill()
