"""Tiered storage: `python -m bench.tier`.

    python -m bench.tier [--cases CASES] [--quick] [--before FOLDER]
                         [--markdown FILE] [--json FILE]

There is one node with its segments in a bucket of versitygw on the same machine. Each row has its
aim and whether it is met; nothing here passes or fails.

Cases, by their names for `--cases`:

    copy       closed segments are copied, compared with obstore alone putting the same files there
    read       librdkafka reads a topic from the disk and then from the tier alone
    produce    p99 of a producer at a steady rate: without copies, with copies that keep up, with
               the same copies made by another process, and with a store that accepts connections
               and answers nothing
    consumers  1,000 consumers, each at its own offset in the part that only the tier has: memory of
               the node, and its event-loop stalls
    metadata   records of 100,000 segments are replayed, as at a start
    folder     copies and reads again, with the bucket a folder, compared with Apache Kafka
               with the folder store of its own tests, and the steady producer on both; Kafka's
               producer and JVM are warm
    off        a node without tiered storage: its imports, its start and its memory; with `--before`
               compared with those of another checkout

Copy and read are of the same bytes. Figures measured in turn are the medians of several rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from bench.clients import consume_librdkafka, create_topic, json_of, produce_librdkafka
from bench.elections import STALLS
from bench.nodes import Kafka, Kraftbox, keep_bytecode, resident_mb, waited_s
from bench.place import bench_place
from bench.report import put_between, shown
from bench.single_node import say
from testkit.kafka.jars import ORACLE, kafka_libs, tiered_store
from testkit.processes.ending import end_on_sigterm
from testkit.processes.object_servers import versitygw_process
from testkit.processes.waiting import until

MARK = "tier"
FREE_BYTES_MIN = 6 << 30
CASES = ("copy", "read", "produce", "consumers", "metadata", "folder", "off")
PARTITIONS = 4
RECORD_BYTES = 1024
SEGMENT_BYTES = 16 << 20
WAIT_S = 120.0
TIERED = {
    "remote.log.storage.system.enable": "true",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
    "remote.log.manager.task.interval.ms": "100",
    "log.retention.check.interval.ms": "500",
    "kraftbox.loop.lag.interval.ms": "10",
}
TOPIC = {"remote.storage.enable": "true", "internal.segment.bytes": str(SEGMENT_BYTES)}
WITHOUT_COPIES = {"remote.log.copy.disable": "true"}
ON_DISK_ONLY_WHAT_MUST = {"local.retention.bytes": "1"}
COPIES_AT_ONCE = "remote.log.manager.copier.thread.pool.size"
ASKS_SOON = {"fetch.queue.backoff.ms": "10"}
"""librdkafka pauses for a second when its own queue is full, at 64 MiB, regardless of the
broker's speed. That is longer than the whole read.
"""
AS_IT_COMES: Mapping[str, str] = {}
PACED = ("without copies", "while copying")
OF_KAFKA = {
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "log.initial.task.delay.ms": "500",
}
STARTS = ("start to ready, s", "CPU s of the node until it is ready", "resident, MiB")
MODULES = """
import sys
from kraftbox.__main__ import use_own_packages
use_own_packages()
from kraftbox.launcher.fork_server import import_everything
import_everything()
tiered = ("obstore", "storage.objects", "storage.tiered", "broker.tiering")
print(sum(name.startswith(tiered) for name in sys.modules))
"""


class Scale(NamedTuple):
    """The amount of work."""

    megabytes: int = 256
    rounds: int = 3
    rate_per_s: int = 20_000
    seconds: int = 6
    consumers: int = 1_000
    consume_s: int = 20
    starts: int = 11


QUICK = Scale(160, 1, 5_000, 2, 100, 3, 1)


class Row(NamedTuple):
    """A figure, its aim, whether it is met (None: there is no aim), and Kafka's figure."""

    name: str
    value: float
    aim: str = ""
    met: bool | None = None
    kafka: float | None = None


class Produced(NamedTuple):
    """The steady producer's figures, and the waits of the node's main thread."""

    p99_ms: float
    waited_ms_per_s: float
    """Time in which the thread waited for a processor."""


class Start(NamedTuple):
    """The figures of a node's start until it was ready."""

    s: float
    cpu_s: float
    mb: float


class Run:
    """One measurement from the first start to the last stop."""

    def __init__(self, place: Path, options: argparse.Namespace) -> None:
        self.place = place
        self.options = options
        self.scale = QUICK if options.quick else Scale()
        self.cases = options.cases.split(",")
        self.rows: list[Row] = []

    def measure(self) -> None:
        """Run the requested cases and record their rows."""
        keep_bytecode(self.place)
        if set(self.cases) - {"metadata", "folder", "off"}:
            self._with_a_store()
        if "metadata" in self.cases:
            self._metadata()
        if "folder" in self.cases:
            self._folder()
        if "off" in self.cases:
            self._off()

    def note(
        self,
        name: str,
        value: float,
        *,
        least: float = 0,
        most: float = 0,
        kafka: float | None = None,
    ) -> None:
        """Record a row; with an aim, if one is given."""
        aim = f"at least {shown(least)}" if least else f"at most {shown(most)}" if most else ""
        met = value >= least if least else value <= most if most else None
        self.rows.append(Row(name, value, aim, met, kafka))
        say(f"{name}: {shown(value)}")

    # --- with a store ---------------------------------------------------------------------------

    def _with_a_store(self) -> None:
        folder = self.place / "store"
        folder.mkdir()
        with versitygw_process(folder) as (options, store):
            given = {f"rsm.config.{name}": value for name, value in options.items()}
            node = Kraftbox(self.place / "node", {**TIERED, **given})
            side = OurSide(node, folder / "buckets")
            node.start()
            try:
                if "copy" in self.cases:
                    self._copy(side, options)
                if "read" in self.cases:
                    self._read(side)
                if "produce" in self.cases:
                    self._produce(side, options, store)
                if "consumers" in self.cases:
                    self._consumers(side)
            finally:
                store.send_signal(signal.SIGCONT)
                node.stop()

    def _fill(self, side: Side, topic: str, configs: Mapping[str, str]) -> None:
        create_topic(side.node, topic, PARTITIONS, configs={**TOPIC, **configs})
        records = self.scale.megabytes * 1_000_000 // RECORD_BYTES
        produce_librdkafka(side.node, topic, records, RECORD_BYTES)

    def _copy(self, side: Side, options: Mapping[str, str]) -> None:
        alone, ours = [], []
        for number in range(self.scale.rounds):
            topic = f"copied-{number}"
            self._fill(side, topic, WITHOUT_COPIES)
            closed = side.closed(topic)
            folders = _linked(closed, self.place / "alone" / topic)
            for what in ("ours", "alone") if number % 2 else ("alone", "ours"):
                if what == "alone":
                    alone.append(_obstore_alone(options, folders))
                    continue
                ours.append(side.copy(topic))
        self.note("obstore alone puts: MB/s", statistics.median(alone))
        self.note("copy: MB/s", statistics.median(ours))
        share = statistics.median(one / other for one, other in zip(ours, alone, strict=True))
        self.note("copy, as a part of obstore alone", share, least=0.8)

    def _read(self, side: Side) -> None:
        self._fill(side, "read", WITHOUT_COPIES)
        side.copy("read")
        (local, remote), (local_as_is, remote_as_is) = self._read_both(
            side, "read", ASKS_SOON, AS_IT_COMES
        )
        self.note("read from the disk: MB/s", local)
        self.note("read from the tier: MB/s", remote)
        self.note("read from the tier, as a part of that from the disk", remote / local, least=0.5)
        self.note("read from the disk, stops when its queue is full: MB/s", local_as_is)
        self.note("read from the tier, stops when its queue is full: MB/s", remote_as_is)

    def _read_both(
        self, side: Side, topic: str, *clients: Mapping[str, str]
    ) -> list[tuple[float, float]]:
        """Return median MB/s for each of these client settings, as (disk, tier).

        The reads from the tier follow once the segments have left the disk.
        """
        read: dict[str, list[list[float]]] = {"disk": [], "tier": []}
        consume_librdkafka(side.node, topic, clients[0])
        for where, rounds in read.items():
            if where == "tier":
                side.only_in_the_tier(topic)
            for _ in range(self.scale.rounds):
                rounds.append(
                    [consume_librdkafka(side.node, topic, one)["mb_per_s"] for one in clients]
                )
        disk, tier = (
            [statistics.median(of_one) for of_one in zip(*rounds, strict=True)]
            for rounds in read.values()
        )
        return list(zip(disk, tier, strict=True))

    def _produce(
        self, side: Side, options: Mapping[str, str], store: subprocess.Popen[bytes]
    ) -> None:
        self._begin_to_produce(side)
        self._fill(side, "beside", WITHOUT_COPIES)
        folders = _linked(side.closed("beside"), self.place / "alone" / "beside")
        meanwhile: dict[str, Callable[[], AbstractContextManager[None]]] = {
            "without copies": nullcontext,
            "while copying": nullcontext,
            "while copying one by one": lambda: _one_by_one(side),
            "beside obstore alone": lambda: _obstore_beside(options, folders, self._closed_every_s),
            "with a hung store": lambda: _hung(store),
        }
        found = self._p99s(side, meanwhile)
        for what, one in found.items():
            self.note(f"produce {what}: p99 ms", one.p99_ms)
            self.note(f"produce {what}: the loop waits for a processor, ms/s", one.waited_ms_per_s)
        plain, copying, single, beside, hung = (one.p99_ms for one in found.values())
        self.note("p99 while copying, times that without", copying / plain, most=1.2)
        self.note("p99 while copying one by one, times that without", single / plain)
        self.note("p99 while copying, times that beside obstore alone", copying / beside)
        self.note("p99 with a hung store, times that without", hung / plain, most=1.1)

    def _begin_to_produce(self, side: Side) -> None:
        create_topic(side.node, "plain", PARTITIONS, configs={**TOPIC, **WITHOUT_COPIES})
        create_topic(side.node, "busy", PARTITIONS, configs={**TOPIC, **ON_DISK_ONLY_WHAT_MUST})
        self._produced(side, "plain")

    def _p99s(
        self, side: Side, meanwhile: Mapping[str, Callable[[], AbstractContextManager[None]]]
    ) -> dict[str, Produced]:
        """Return medians of the steady producer for each of the activities, measured in turn."""
        found: dict[str, list[Produced]] = {what: [] for what in meanwhile}
        for _ in range(self.scale.rounds):
            for what, going_on in meanwhile.items():
                copies = what.startswith("while copying") or what == "with a hung store"
                with going_on():
                    found[what].append(self._produced(side, "busy" if copies else "plain"))
                side.wait_gone("busy")
        return {
            what: Produced(*map(statistics.median, zip(*made, strict=True)))
            for what, made in found.items()
        }

    def _produced(self, side: Side, topic: str) -> Produced:
        scale, pid = self.scale, side.node.pid
        records = scale.rate_per_s * scale.seconds
        began, waited_before_s = time.monotonic(), waited_s(pid)
        made = produce_librdkafka(side.node, topic, records, RECORD_BYTES, scale.rate_per_s)
        waited = (waited_s(pid) - waited_before_s) / (time.monotonic() - began)
        return Produced(made["p99_ms"], 1e3 * waited)

    @property
    def _closed_every_s(self) -> float:
        """The interval in which the steady producer closes a segment of each partition."""
        return SEGMENT_BYTES * PARTITIONS / (self.scale.rate_per_s * RECORD_BYTES)

    def _consumers(self, side: OurSide) -> None:
        topic = "cold"
        self._fill(side, topic, ON_DISK_ONLY_WHAT_MUST)
        side.wait_gone(topic)
        side.node.scrape()  # resets the worst values
        with Memory(side.node.pid) as memory:
            made = json_of(
                *("-m", "bench.tier_consumers", side.node.bootstrap, topic),
                *(str(side.local_start(topic)), "--partitions", str(PARTITIONS)),
                *("--consumers", str(self.scale.consumers)),
                *("--seconds", str(self.scale.consume_s)),
            )
        text = side.node.scrape()
        many = f"{self.scale.consumers:,} consumers"
        self.note(f"{many}: MB/s", made["mb_per_s"])
        self.note(f"{many}: of them read something", made["served"])
        self.note(f"{many}: answers to try again, %", 100 * made["tries_again"] / made["answers"])
        self.note(f"{many}: most memory more than before, MiB", memory.most_mb - memory.first_mb)
        self.note(f"{many}: memory at the end, times that of the middle", memory.growth, most=1.1)
        for name, pattern in STALLS.items():
            self.note(f"{many}: {name}, ms", 1e3 * float(pattern.findall(text)[0]), most=20)

    # --- without a store
    # ----------------------------------------------------------------------------

    def _metadata(self) -> None:
        path = self.place / "metadata"
        _run("-m", "bench.tier_metadata", "write", str(path))
        made = json_of("-m", "bench.tier_metadata", "replay", str(path))
        self.note("metadata of 100,000 segments: s", made["s"], most=6)
        self.note("metadata of 100,000 segments: CPU s", made["cpu_s"])
        self.note(
            "metadata of 100,000 segments: s that it waited for a processor", made["waited_s"]
        )
        self.note("metadata of 100,000 segments: MiB", made["mb"], most=100)

    def _folder(self) -> None:
        found: dict[str, tuple[float, ...]] = {}
        bucket, store = self.place / "bucket", self.place / "kafka-store"
        ours = Kraftbox(self.place / "folder", {**TIERED, "rsm.config.url": f"file://{bucket}"})
        sides: list[Side] = [OurSide(ours, bucket)]
        if kafka_libs() is not None:
            node = Kafka(self.place / "kafka", {**TIERED, **OF_KAFKA, **tiered_store(store)})
            sides.append(KafkaSide(node, store))
        for side in sides:
            side.node.start()
            try:
                self._fill(side, "folder", WITHOUT_COPIES)
                copied = side.copy("folder")
                (read,) = self._read_both(side, "folder", ASKS_SOON)
                self._begin_to_produce(side)
                p99s = self._p99s(side, dict.fromkeys(PACED, nullcontext))
                found[side.node.name] = (copied, *read, *(one.p99_ms for one in p99s.values()))
            finally:
                side.node.stop()
        names = [f"{what}: MB/s" for what in ("copy", "read from the disk", "read from the tier")]
        names += [f"produce {what}: p99 ms" for what in PACED]
        theirs = found.get("kafka", (None,) * len(names))
        for name, value, kafka in zip(names, found["kraftbox"], theirs, strict=True):
            self.note(f"a folder: {name}", value, kafka=kafka)

    def _off(self) -> None:
        count = int(_run("-c", MODULES))
        self.note("off: modules of the tier that are imported", count)
        self.rows[-1] = self.rows[-1]._replace(aim="none", met=not count)
        checkouts: dict[str, Path | None] = {"off": None}
        if self.options.before:
            checkouts["before"] = self.options.before
        found: dict[str, list[Start]] = {side: [] for side in checkouts}
        for number in range(self.scale.starts + 1):
            for side, checkout in checkouts.items():
                start = self._start(side, checkout)
                if number:  # the first one compiles
                    found[side].append(start)
        for side, starts in found.items():
            for what, values in zip(STARTS, zip(*starts, strict=True), strict=True):
                self.note(f"{side}: {what}", statistics.median(values))
        if self.options.before:
            pairs = list(zip(found["off"], found["before"], strict=True))
            for at, what in enumerate(STARTS):
                ratio = statistics.median(now[at] / then[at] for now, then in pairs)
                self.note(f"off: {what}, times that before", ratio, most=1.05)

    def _start(self, name: str, checkout: Path | None) -> Start:
        with _working_in(checkout):
            node = Kraftbox(self.place / name)
            took_s = node.start()
            found = Start(took_s, node.cpu_s(), resident_mb(node.pid))
            node.stop()
        return found


class Side(ABC):
    """A node, and the folder with its copies."""

    def __init__(self, node: Kraftbox | Kafka, store: Path) -> None:
        self.node = node
        self.store = store

    @abstractmethod
    def copies(self, topic: str) -> list[Path]:
        """Return one file per copy, the one that is written last."""

    def closed(self, topic: str) -> list[Path]:
        """Return the files of closed segments on the disk."""
        found = []
        for folder in self.node.folders(topic):
            last = max(folder.glob("*.log")).stem
            files = [*folder.glob("*.log"), *folder.glob("*.*index")]
            found += [path for path in files if path.stem < last]
        return found

    def local_start(self, topic: str) -> int:
        """Return the smallest local log start offset of the topic's partitions."""
        return min(int(min(folder.glob("*.log")).stem) for folder in self.node.folders(topic))

    def alter(self, topic: str, **configs: str) -> None:
        self._alter(ResourceType.TOPIC, topic, configs)

    def alter_broker(self, name: str, value: str | None) -> None:
        """Set a key of the only broker; None removes it."""
        self._alter(ResourceType.BROKER, "1", {name: value})

    def _alter(self, kind: ResourceType, of: str, configs: Mapping[str, str | None]) -> None:
        admin = AdminClient({"bootstrap.servers": self.node.bootstrap, "log_level": 0})
        put, delete = AlterConfigOpType.SET, AlterConfigOpType.DELETE
        entries = [
            ConfigEntry(name, value, incremental_operation=delete if value is None else put)
            for name, value in configs.items()
        ]
        resource = ConfigResource(kind, of, incremental_configs=entries)
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(WAIT_S)

    def copy(self, topic: str) -> float:
        """Enable copies of a topic and wait for its closed segments.

        Return MB/s from the request on.
        """
        logs = [path for path in self.closed(topic) if path.suffix == ".log"]
        size_bytes = sum(path.stat().st_size for path in logs)
        began = time.time()
        self.alter(topic, **{"remote.log.copy.disable": "false"})
        until("all is copied", lambda: len(self.copies(topic)) >= len(logs), WAIT_S, every_s=0.1)
        last = max(path.stat().st_mtime for path in self.copies(topic))
        return size_bytes / 1e6 / (last - began)

    def only_in_the_tier(self, topic: str) -> None:
        """Wait until the closed segments have left the disk."""
        self.alter(topic, **ON_DISK_ONLY_WHAT_MUST)
        self.wait_gone(topic)

    def wait_gone(self, topic: str) -> None:
        until("it left the disk", lambda: not self.closed(topic), WAIT_S)


class OurSide(Side):
    """Kraftbox: the last object of a copy is its manifest."""

    node: Kraftbox

    def copies(self, topic: str) -> list[Path]:
        metadata = (self.node.folders(topic)[0] / "partition.metadata").read_text()
        topic_id = metadata.partition("topic_id:")[2].split()[0]
        while True:
            # A finishing upload removes its folder during the walk.
            with suppress(FileNotFoundError):
                return list(self.store.glob(f"**/{topic_id}/*/*.manifest"))


class KafkaSide(Side):
    """Apache Kafka with a tier in a folder."""

    def copies(self, topic: str) -> list[Path]:
        return list(self.store.glob(f"**/{topic}-*/*.log"))


class Memory:
    """The resident memory of a process during the block."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._end = threading.Event()
        self._seen: list[float] = []
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._seen or not self._end.wait(0.1):
            self._seen.append(resident_mb(self._pid))

    @property
    def first_mb(self) -> float:
        return self._seen[0]

    @property
    def most_mb(self) -> float:
        return max(self._seen)

    @property
    def growth(self) -> float:
        """The maximum of the last third over the maximum of the third before."""
        third = max(1, len(self._seen) // 3)
        return max(self._seen[-third:]) / max(self._seen[-2 * third : -third] or self._seen)


# --- processes ------------------------------------------------------------------------------------


def _run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], stdout=subprocess.PIPE, text=True, timeout=300, check=True
    )
    return done.stdout


def _obstore_alone(options: Mapping[str, str], folders: Sequence[Path]) -> float:
    given = (json.dumps(options), *map(str, folders))
    return json_of("-m", "bench.obstore_alone", *given)["mb_per_s"]


def _linked(paths: Sequence[Path], place: Path) -> list[Path]:
    """Link the files into folders by partition; return the folders."""
    for path in paths:
        folder = place / path.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        os.link(path, folder / path.name)
    return sorted(place.iterdir())


@contextmanager
def _hung(process: subprocess.Popen[bytes]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@contextmanager
def _one_by_one(side: Side) -> Iterator[None]:
    """Copy one segment at a time during the block."""
    side.alter_broker(COPIES_AT_ONCE, "1")
    try:
        yield
    finally:
        side.alter_broker(COPIES_AT_ONCE, None)


@contextmanager
def _obstore_beside(
    options: Mapping[str, str], folders: Sequence[Path], every_s: float
) -> Iterator[None]:
    """Let another process copy a segment of each folder per interval."""
    command = [sys.executable, "-m", "bench.obstore_alone", "--every", str(every_s)]
    process = subprocess.Popen([*command, json.dumps(options), *map(str, folders)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def _working_in(folder: Path | None) -> Iterator[None]:
    """Run our commands from another checkout during the block."""
    before = os.getcwd()
    if folder is not None:
        os.chdir(folder)
        os.environ["PYTHONPATH"] = str(folder)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.pop("PYTHONPATH", None)


# --- the report -----------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> str:
    """Return the table as Markdown."""
    lines = [f"| | Kraftbox | aim | | Kafka {ORACLE} |", "|---|---|---|---|---|"]
    words = {True: "met", False: "missed", None: ""}
    for one in rows:
        kafka = "" if one.kafka is None else shown(one.kafka)
        lines.append(
            f"| {one.name} | {shown(one.value)} | {one.aim} | {words[one.met]} | {kafka} |"
        )
    return "\n".join(lines)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line. Raises SystemExit for a case that does not exist."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default=",".join(CASES), help="comma-separated names")
    parser.add_argument("--quick", action="store_true", help="run every step once, without figures")
    parser.add_argument("--before", type=Path, help="another checkout, whose node is measured too")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument(
        "--markdown", type=Path, help="write the table between the marks of this file"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.cases.split(",")) - set(CASES):
        parser.error(f"unknown case: {', '.join(sorted(unknown))}; known: {', '.join(CASES)}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parsed(arguments)
    began = time.monotonic()
    with bench_place(FREE_BYTES_MIN) as place:
        run = Run(place, options)
        try:
            run.measure()
        finally:
            text = table(run.rows)
            print(text)
            if options.json:
                options.json.write_text(json.dumps([one._asdict() for one in run.rows], indent=1))
            say(f"{time.monotonic() - began:.0f} s in all")
    if options.markdown:
        put_between(options.markdown, MARK, text)


if __name__ == "__main__":
    end_on_sigterm()
    main()
