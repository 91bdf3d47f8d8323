"""Apache Kafka's nodes in place of Kraftbox's: same properties file, same directory, same ports."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from metalog.quorum.snapshots import BOOTSTRAP_FILE
from protocol.ids import random_uuid, uuid_to_text
from testkit.kafka.class_archive import quick_to_start
from testkit.kafka.jars import ORACLE, PREVIOUS
from testkit.kafka.nodes import ApacheKafkaNode
from testkit.processes.quorum_cluster import NodeProcess

META = "meta.properties"
FIRST_SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
HEAP = "192m"
LEVELS = {ORACLE: ("metadata.version=33",), PREVIOUS: ("metadata.version=30",)}
"""By release of Kafka: levels for formatting a cluster in which its nodes take part."""


def _format_like(directory: Path, meta: str, seed: str) -> None:
    directory.mkdir()
    new = f"directory.id={uuid_to_text(random_uuid(random.Random(seed)))}"
    (directory / META).write_text(re.sub(r"^directory\.id=.*$", new, meta, flags=re.M))


class KafkaInPlace:
    """A Kafka node with the identity of a Kraftbox node, which must not run."""

    def __init__(
        self,
        place: NodeProcess,
        settings: Mapping[str, str] | None = None,
        version: str = ORACLE,
    ) -> None:
        self.place = place
        given = {
            "log.cleaner.dedupe.buffer.size": "4194304",
            **place.properties(),
            **(settings or {}),
        }
        ours = [key for key in given if key.startswith("kraftbox.")]
        for key in ours:
            del given[key]
        self.node = ApacheKafkaNode(place.directory, given, HEAP, quick_to_start(version), version)

    def complete_format(self) -> None:
        """Format further log directories, after the first one was formatted for `place`."""
        first, *others = self._directories()
        for directory in others:
            _format_like(directory, (first / META).read_text(), str(directory))

    def replace_disks(self) -> None:
        """Replace every log directory by an empty, newly formatted one with another
        directory id."""
        directories = self._directories()
        written = (directories[0] / META).read_text()
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)
            _format_like(directory, written, f"{directory} {written}")

    def _directories(self) -> list[Path]:
        return [Path(name) for name in self.node.settings["log.dirs"].split(",")]

    def begin(self) -> None:
        """Start the process without waiting, so that several nodes can start together.

        Kafka before 4.4 finds the records of our first snapshot as a `bootstrap.checkpoint`.
        """
        self.node.write_config()
        for directory in map(Path, self._directories() if self.node.version == PREVIOUS else ()):
            first = directory / FIRST_SNAPSHOT
            if first.exists() and not (directory / BOOTSTRAP_FILE).exists():
                shutil.copyfile(first, directory / BOOTSTRAP_FILE)
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
