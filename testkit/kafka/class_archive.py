"""An archive of the classes that a Kafka broker loads, which halves its start-up time.

It is made once, by a node that starts and stops, and kept in the user's cache. A virtual machine
that it does not fit starts without it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from functools import cache
from pathlib import Path

from testkit.kafka.jars import ORACLE, cache_folder
from testkit.kafka.nodes import ApacheKafkaNode, kafka_class_path
from testkit.processes.ports import free_ports

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
QUICK_TO_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


@cache
def quick_to_start(version: str = ORACLE) -> tuple[str, ...]:
    """Return options of a virtual machine for a quick start of a release; make its archive if it
    does not exist."""
    archive = _archive(version)
    if not archive.exists():
        _make(archive, version)
    use = (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()
    return (*QUICK_TO_START, *use)


def _archive(version: str) -> Path:
    """Return the path of the archive: one for each release, Java and set of jars."""
    java = Path(shutil.which("java") or "java").resolve()
    marks = f"{java} {java.stat().st_mtime_ns} {kafka_class_path(version=version)}"
    return cache_folder() / f"kafka-{version}-{zlib.crc32(marks.encode()):08x}.jsa"


def _make(archive: Path, version: str) -> None:
    """Start and stop a node that writes the archive; several processes may do so at once."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        broker, controller = free_ports(2)
        made = directory / "classes.jsa"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(directory / "data"),
            "log.cleaner.dedupe.buffer.size": "4194304",
        }
        node = ApacheKafkaNode(
            directory,
            settings,
            jvm=(*QUICK_TO_START, f"-XX:ArchiveClassesAtExit={made}"),
            version=version,
        )
        node.format(CLUSTER_ID, "--standalone")
        node.start()
        node.stop()
        if not made.exists():
            return
        archive.parent.mkdir(parents=True, exist_ok=True)
        beside = archive.with_suffix(f".{os.getpid()}")
        shutil.copyfile(made, beside)
        beside.replace(archive)
