"""`python -m fuzz.poison --minutes N`: hostile requests to a cluster of processes.

Three brokers and their controllers get requests of every API and version they offer, made by
`fuzz.hostile`, on all their listeners. Every frame goes to several nodes in turn, as a client would
retry it elsewhere. One connection to each node sends large lists and malformed ends (`fuzz.heavy`),
one frame after the other. An ordinary client in a process of its own produces and reads.
Requirements: no node stops, no broker is fenced, the counter of unforeseen errors stays at 0,
memory stays bounded, no event loop is held for long, and the ordinary client is hardly slower.

The run prints its results as JSON. It fails (exit 1) if a node stopped or counted an unforeseen
error, or a broker was fenced. How long loops were held, the client's latencies and the memory
depend on the machine: they are printed, and checked only against a limit that is given
(`--late-ms-max`, `--slower-max`, `--grown-mib-max`). `loop_held_ms` leaves out the time in which
the machine had no processor for a node; `heavy` names the frames that were in progress when a loop
was held.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from client.cluster_client import ClusterClient
from fuzz.heavy import HeavyFrame, heavy_frames, hello
from fuzz.hostile import BYSTANDER, SKIPPED, TOPIC_CONFIGS, VICTIMS, Facts, Hostile
from kraftbox.testing.cluster import KafkaCluster
from protocol.api_keys import ApiKey
from protocol.batch.records import Record, build_batch
from protocol.codec import decode
from protocol.errors import ApiError, ProtocolError
from protocol.headers import decode_response_header
from protocol.messages import request_class, response_class
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.schema import VersionRange
from protocol.transport.client import Connection
from testkit.processes.ending import end_on_sigterm

WINDOW: Final = 5
"""Requests in flight on one connection."""
PATIENCE_S: Final = 0.5
"""Age of the oldest unanswered request at which a connection is aborted: hostile timeouts may last
for days."""
SHARED: Final = 3
"""Number of connections that get the same frame."""
WEIGHTS: Final = {ApiKey.PRODUCE: 5, ApiKey.FETCH: 3, ApiKey.JOIN_GROUP: 3, ApiKey.SYNC_GROUP: 3}
"""Frequency of an API relative to others."""
WATCH_S: Final = 2.0
HELD_MS: Final = 100.0
HEAVY_PATIENCE_S: Final = 30.0
HELLO: Final = hello()
ERRORS_MAX: Final = 30
"""Errors printed from the log of each node."""
LEARNT: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.FETCH, ApiKey.INIT_PRODUCER_ID})
SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "3",
    "kraftbox.produce.validate.records": "true",
    "kraftbox.produce.decompressed.max.bytes": "4000000",
    "log.cleaner.backoff.ms": "1000",
    "log.segment.bytes": "1048576",
}
_METRIC: Final = re.compile(r"^((?:kraftbox|kafka_controller)_\w+?)(?:\{(.*?)\})? (\S+)$", re.M)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


# --- the senders ---------------------------------------------------------------------------------


class Source:
    """Frames for one kind of listener, each handed out several times."""

    def __init__(self, hostile: Hostile, offered: dict[int, VersionRange]) -> None:
        self.hostile = hostile
        self.apis = [
            (ApiKey(key), version)
            for key, versions in sorted(offered.items())
            if ApiKey(key) not in SKIPPED
            for common in (request_class(ApiKey(key)).VERSIONS.intersect(versions),)
            if common is not None
            for version in range(common.first, common.last + 1)
        ]
        self.by_api: dict[ApiKey, list[int]] = {}
        for api, version in self.apis:
            self.by_api.setdefault(api, []).append(version)
        self._names = [api for api in self.by_api for _ in range(WEIGHTS.get(api, 1))]
        self._ready: deque[tuple[ApiKey, int, bytes, bool]] = deque()

    def take(self) -> tuple[ApiKey, int, bytes, bool]:
        if not self._ready:
            rng = self.hostile.rng
            some = []
            for _ in range(50):
                api = rng.choice(self._names)
                version = rng.choice(self.by_api[api])
                some.append((api, version, *self.hostile.frame(api, version)))
            for _ in range(SHARED):
                self._ready.extend(some)
        return self._ready.popleft()


class Sender(asyncio.Protocol):
    """One connection that sends hostile requests and counts the responses."""

    def __init__(self, run: Run, source: Source) -> None:
        self.run = run
        self.source = source
        self.pending: deque[tuple[int, ApiKey, int, float]] = deque()
        self.lost = asyncio.Event()
        self.news = asyncio.Event()
        self._received = bytearray()
        self._next_id = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self.news.set()

    def data_received(self, data: bytes) -> None:
        self._received += data
        received = self._received
        while len(received) >= 4:
            end = 4 + int.from_bytes(received[:4], "big")
            if len(received) < end:
                break
            self._answered(bytes(received[4:end]))
            del received[:end]
        self.news.set()

    def _answered(self, frame: bytes) -> None:
        if not self.pending:
            return
        _, api, version, sent_s = self.pending.popleft()
        self.run.answered[api.name] += 1
        took_s = time.monotonic() - sent_s
        if took_s > self.run.slowest_s.get(api.name, 0.0):
            self.run.slowest_s[api.name] = took_s
        if api in LEARNT:
            self.run.learn(api, version, frame)

    def send_some(self) -> None:
        assert self.transport is not None
        now_s = time.monotonic()
        while len(self.pending) < WINDOW and not self.run.is_over and self.run.may_send(now_s):
            api, version, frame, answer_due = self.source.take()
            self._next_id += 1
            stamped = frame[:8] + self._next_id.to_bytes(4, "big") + frame[12:]
            self.run.sent[api.name] += 1
            self.run.total += 1
            if answer_due:
                self.pending.append((self._next_id, api, version, now_s))
            self.transport.write(stamped)


async def keep_sending(run: Run, address: tuple[str, int], source: Source) -> None:
    """Keep one connection to this node open until the run is over, and replace it when it ends."""
    while not run.is_over:
        try:
            _, sender = await asyncio.get_running_loop().create_connection(
                lambda: Sender(run, source), *address
            )
        except OSError:
            run.refused += 1
            await asyncio.sleep(0.05)
            continue
        run.connections += 1
        while not run.is_over and not sender.lost.is_set():
            sender.send_some()
            sender.news.clear()
            if len(sender.pending) < WINDOW:
                await asyncio.sleep(0 if run.options.rate is None else 0.01)
                continue
            try:
                await asyncio.wait_for(sender.news.wait(), PATIENCE_S)
            except TimeoutError:
                run.given_up += 1
                break
        assert sender.transport is not None
        sender.transport.abort()


# --- large lists ---------------------------------------------------------------------------------


class HeavySeen:
    """Counts and times of large frames, and their effect on event loops."""

    def __init__(self) -> None:
        self.sent = self.served = self.closed = self.late = 0
        self.slowest_ms: dict[str, float] = {}
        self.recent: dict[int, list[str]] = {}
        """The frames sent to each node since its last measurement."""
        self.suspects: dict[str, float] = {}
        """Frames that were under way when an event loop was held, and for how long at worst."""

    def took(self, name: str, took_ms: float) -> None:
        self.slowest_ms[name] = max(self.slowest_ms.get(name, 0.0), took_ms)

    def held(self, number: int, held_ms: float) -> None:
        """Record how long a node's event loop was blocked since its last measurement."""
        for name in self.recent.pop(number, ()):
            if held_ms > HELD_MS:
                self.suspects[name] = max(self.suspects.get(name, 0.0), held_ms)


async def keep_sending_heavy(
    run: Run, number: int, address: tuple[str, int], frames: Sequence[HeavyFrame]
) -> None:
    """Send one large frame after the other to this node, and wait for each."""
    rng = random.Random(number)
    while not run.is_over:
        frame = rng.choice(frames)
        run.heavy.sent += 1
        run.heavy.recent.setdefault(number, []).append(frame.name)
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(HEAVY_PATIENCE_S):
                reader, writer = await asyncio.open_connection(*address)
                try:
                    writer.writelines(HELLO)
                    await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                    writer.writelines(frame.parts)
                    await writer.drain()
                    await reader.readexactly(4)
                    run.heavy.served += 1
                finally:
                    writer.close()
        except TimeoutError:
            run.heavy.late += 1
        except (OSError, asyncio.IncompleteReadError):
            run.heavy.closed += 1
        run.heavy.took(frame.name, (time.monotonic() - began_s) * 1000)
        run.heavy.recent.setdefault(number, []).append(frame.name)
        await asyncio.sleep(run.options.heavy_pause_ms / 1000)


# --- the run -------------------------------------------------------------------------------------


class Run:
    """Options, counters and problems of one run."""

    def __init__(self, options: argparse.Namespace, facts: Facts) -> None:
        self.options = options
        self.facts = facts
        self.sent: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.slowest_s: dict[str, float] = {}
        self.fenced = 0
        self.total = self.connections = self.given_up = self.refused = 0
        self.problems: list[str] = []
        self.unforeseen: dict[str, int] = {}
        self.late_ms: dict[int, float] = {}
        self.held_ms: dict[int, float] = {}
        self.heavy = HeavySeen()
        self.resident: dict[int, list[int]] = {}
        self.began_s = time.monotonic()
        self.ends_s = time.monotonic() + options.minutes * 60

    @property
    def is_over(self) -> bool:
        wanted = self.options.requests
        return (
            bool(self.problems)
            or time.monotonic() >= self.ends_s
            or (wanted is not None and self.total >= wanted)
        )

    def look_at(self, number: int, metrics: dict[tuple[str, str], float]) -> None:
        """Note how late a node's loop was, and whether a broker is fenced."""
        late_ms = metrics.get(("kraftbox_loop_lag_worst_seconds", ""), 0.0) * 1000
        held_ms = metrics.get(("kraftbox_loop_lag_worst_cpu_seconds", ""), 0.0) * 1000
        if held_ms > HELD_MS:
            say(f"node {number}: event loop blocked for {held_ms:.0f} ms; {self.total} sent")
        self.late_ms[number] = max(self.late_ms.get(number, 0.0), late_ms)
        self.held_ms[number] = max(self.held_ms.get(number, 0.0), held_ms)
        self.heavy.held(number, held_ms)
        if metrics.get(("kafka_controller_kafkacontroller_fencedbrokercount", ""), 0.0) > 0:
            self.fenced += 1
            say(f"node {number} is fenced; {self.total} sent")

    def may_send(self, now_s: float) -> bool:
        rate = self.options.rate
        return rate is None or self.total < (now_s - self.began_s) * rate

    def learn(self, api: ApiKey, version: int, frame: bytes) -> None:
        """Remember names and ids from a response, so that later requests get further."""
        try:
            _, at = decode_response_header(frame, api, version)
            answer: Any = decode(response_class(api), frame, version, at)[0]
        except ProtocolError as error:
            self.problems.append(f"unreadable response to {api.name} {version}: {error}")
            return
        facts = self.facts
        if api is ApiKey.JOIN_GROUP and answer.member_id:
            facts.hear(facts.members, answer.member_id)
        elif api is ApiKey.FETCH and getattr(answer, "session_id", None):
            facts.hear(facts.sessions, answer.session_id)
        elif api is ApiKey.INIT_PRODUCER_ID and answer.producer_id >= 0:
            facts.hear(facts.producers, answer.producer_id)


async def scrape(address: str) -> dict[tuple[str, str], float]:
    """Scrape the `kraftbox_` metrics of a node."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    return {(name, labels): float(value) for name, labels, value in _METRIC.findall(text)}


def resident_mib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024
    return 0


async def watch(run: Run, cluster: KafkaCluster) -> None:
    """Watch the nodes: report a stopped one, and collect its memory, loop lag and errors."""
    pids = {node["id"]: node["pid"] for node in cluster.supervised()["nodes"]}
    while True:
        for facts in (await asyncio.to_thread(cluster.supervised))["nodes"]:
            number, pid = facts["id"], facts["pid"]
            if pid is None or pid != pids[number] or facts["exitCode"] is not None:
                run.problems.append(f"node {number} has stopped: {facts}")
                return
            run.resident.setdefault(number, []).append(resident_mib(pid))
            try:
                metrics = await asyncio.wait_for(scrape(facts["http"]), 10)
            except (OSError, TimeoutError, AttributeError) as error:
                say(f"no metrics of node {number}: {error!r}")
                continue
            run.look_at(number, metrics)
            for (name, labels), value in metrics.items():
                if name == "kraftbox_unforeseen_errors_total" and value:
                    run.unforeseen[f"node {number}: {labels}"] = round(value)
        await asyncio.sleep(WATCH_S)


async def make_topics(cluster: KafkaCluster, facts: Facts) -> None:
    """Create the missing topics, and remember the ids of those that exist."""
    addresses = [("127.0.0.1", int(node.address.rpartition(":")[2])) for node in cluster.brokers]
    client = await ClusterClient.connect(addresses)
    try:
        topics = [
            CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=3,
                replication_factor=min(3, len(addresses)),
                configs=[
                    CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                    for key, value in TOPIC_CONFIGS.get(name, {}).items()
                ],
            )
            for name in (*VICTIMS, BYSTANDER)
        ]
        await client.request_any(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
        answer = await client.metadata()
        for topic in answer.topics:
            if topic.name in VICTIMS:
                facts.hear(facts.victim_ids, topic.topic_id)
            if topic.name in (*VICTIMS, BYSTANDER):
                facts.hear(facts.topic_ids, topic.topic_id)
    finally:
        await client.close()


async def refresh_topics(cluster: KafkaCluster, run: Run) -> None:
    """Create the topics again every 10 seconds, since hostile requests delete them."""
    while True:
        await asyncio.sleep(10)
        run.facts.now_ms = int(time.time() * 1000)
        try:
            await make_topics(cluster, run.facts)
        except (ApiError, ProtocolError, OSError) as error:
            say(f"cannot create the topics again: {error}")


# --- the ordinary client -------------------------------------------------------------------------


async def stand_by(bootstrap: str) -> None:
    """Produce and read repeatedly, and print one line of JSON per second to standard output."""
    addresses = []
    for address in bootstrap.split(","):
        host, _, port = address.rpartition(":")
        addresses.append((host, int(port)))
    client = await ClusterClient.connect(addresses)
    number = 0
    while True:
        took_ms, errors, second = [], [], time.monotonic() + 1.0
        while time.monotonic() < second:
            number += 1
            batch = build_batch([Record(0, int(time.time() * 1000), b"k", b"v" * 100)])
            began = time.monotonic()
            try:
                done = await client.produce(BYSTANDER, number % 3, batch, timeout_ms=10_000)
                await client.fetch(BYSTANDER, number % 3, done.base_offset, timeout_ms=10_000)
            except (ApiError, ProtocolError, OSError) as error:
                errors.append(f"{type(error).__name__}: {error}")
            took_ms.append((time.monotonic() - began) * 1000)
            await asyncio.sleep(0.005)
        say(json.dumps({"took_ms": took_ms, "errors": errors}))


class Bystander:
    """The process of the ordinary client, and its latencies before and during the run."""

    def __init__(self) -> None:
        self.took_ms: list[float] = []
        self.errors: list[str] = []
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self, bootstrap: str) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fuzz.poison", "--bystander", bootstrap),
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 24,
        )
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        while line := await self._process.stdout.readline():
            report = json.loads(line)
            self.took_ms += report["took_ms"]
            self.errors += report["errors"]

    def take(self) -> dict[str, Any]:
        """Return statistics of the requests since the last call."""
        times, self.took_ms = sorted(self.took_ms), []
        errors, self.errors = self.errors, []

        def quantile(share: float) -> float:
            return round(times[min(int(len(times) * share), len(times) - 1)], 1) if times else 0.0

        return {
            "requests": len(times),
            "p50_ms": quantile(0.5),
            "p99_ms": quantile(0.99),
            "max_ms": quantile(1.0),
            "errors": len(errors),
            "first_errors": errors[:3],
        }

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()
        if self._reading is not None:
            await self._reading


async def poison(options: argparse.Namespace, cluster: KafkaCluster) -> dict[str, Any]:
    """Run the hostile senders with all observers. Returns: the results, as JSON values."""
    rng = random.Random(options.seed)
    facts = Facts(cluster_id=cluster.cluster_id, now_ms=int(time.time() * 1000))
    await make_topics(cluster, facts)
    bystander = Bystander()
    await bystander.start(cluster.bootstrap_servers)
    kinds = []
    for nodes in (cluster.brokers, cluster.controllers):
        addresses = [_listener(node.listeners) for node in nodes]
        first = await Connection.connect(*addresses[0], "poison")
        source = Source(Hostile(rng, facts), first.versions)
        await first.close()
        # Large frames take long to make: that time belongs neither to the calm nor to the run.
        frames = await asyncio.to_thread(_heavy_of, source, options) if options.heavy else []
        kinds.append((nodes, addresses, source, frames))
    bystander.take()
    await asyncio.sleep(options.calm_seconds)
    before = bystander.take()
    run = Run(options, facts)
    looking = [
        asyncio.create_task(watch(run, cluster)),
        asyncio.create_task(refresh_topics(cluster, run)),
    ]
    began_s = time.monotonic()
    senders = []
    heavy = []
    for nodes, addresses, source, frames in kinds:
        for address in addresses:
            for _ in range(options.connections):
                senders.append(asyncio.create_task(keep_sending(run, address, source)))
        for node, address in zip(nodes, addresses, strict=True):
            for _ in range(options.heavy):
                heavy.append((node.id, address, frames))
    senders += [asyncio.create_task(keep_sending_heavy(run, *each)) for each in heavy]
    telling = asyncio.create_task(_tell(run))
    await asyncio.wait(senders)
    took_s = time.monotonic() - began_s
    during = bystander.take()
    if not run.problems:
        await asyncio.sleep(WATCH_S * 2)
    for task in (*looking, telling):
        task.cancel()
    await asyncio.gather(*looking, telling, *senders, return_exceptions=True)
    await bystander.stop()
    return {
        "seed": options.seed,
        "problems": run.problems,
        "unforeseen": run.unforeseen,
        "seconds": round(took_s, 1),
        "requests": run.total,
        "answered": sum(run.answered.values()),
        "connections": run.connections,
        "given_up": run.given_up,
        "refused": run.refused,
        "by_api": dict(run.sent.most_common()),
        "slowest_ms": {
            name: round(value * 1000)
            for name, value in sorted(run.slowest_s.items(), key=lambda item: -item[1])[:12]
        },
        "fenced": run.fenced,
        "loop_late_ms": {number: round(value) for number, value in run.late_ms.items()},
        "loop_held_ms": {number: round(value) for number, value in run.held_ms.items()},
        "heavy": {
            "sent": run.heavy.sent,
            "served": run.heavy.served,
            "closed": run.heavy.closed,
            "late": run.heavy.late,
            "slowest_ms": _worst(run.heavy.slowest_ms),
            "under_way_when_held_ms": _worst(run.heavy.suspects),
        },
        "resident_mib": {
            number: [values[0], max(values), values[-1]] for number, values in run.resident.items()
        },
        "bystander_before": before,
        "bystander_during": during,
    }


def _heavy_of(source: Source, options: argparse.Namespace) -> list[HeavyFrame]:
    made = heavy_frames(source.hostile, source.by_api)
    return [frame for frame in made if frame.is_refused or not options.heavy_refused]


def _worst(times_ms: dict[str, float]) -> dict[str, int]:
    slowest = sorted(times_ms.items(), key=lambda item: -item[1])[:20]
    return {name: round(value) for name, value in slowest}


def judge(seen: dict[str, Any], options: argparse.Namespace) -> list[str]:
    """Return a message for each given limit that was exceeded."""
    wrong = []
    held_ms = max(seen["loop_held_ms"].values(), default=0)
    if options.late_ms_max is not None and held_ms > options.late_ms_max:
        wrong.append(f"an event loop was blocked for {held_ms} ms, limit {options.late_ms_max:g}")
    before, during = seen["bystander_before"]["p99_ms"], seen["bystander_during"]["p99_ms"]
    if options.slower_max is not None and during > before * options.slower_max:
        wrong.append(f"the client's p99 rose from {before} to {during} ms")
    for number, (first, highest, last) in seen["resident_mib"].items():
        if options.grown_mib_max is not None and max(highest, last) > first + options.grown_mib_max:
            wrong.append(f"node {number} grew from {first} to {max(highest, last)} MiB")
    if seen["fenced"]:
        wrong.append("a broker was fenced")
    return wrong


def say_errors(text: str) -> None:
    """Print each error of a node's log once, and the last 1,000 characters of the log."""
    printed: set[str] = set()
    for part in re.split(r"^(?=\[)", text, flags=re.M):
        last = part.rstrip().rpartition("\n")[2]
        if (
            " ERROR " in part.partition("\n")[0]
            and last not in printed
            and len(printed) < ERRORS_MAX
        ):
            printed.add(last)
            say(part.rstrip())
    say(text[-1000:])


async def _tell(run: Run) -> None:
    while True:
        await asyncio.sleep(10)
        resident = {number: values[-1] for number, values in run.resident.items()}
        say(f"{run.total} sent, {run.given_up} abandoned; MiB {resident}")


def _listener(listeners: str) -> tuple[str, int]:
    """Return the address of a node's first listener, given as `NAME://host:port,...` or
    `host:port`."""
    host, _, port = listeners.split(",")[0].rpartition("/")[2].rpartition(":")
    return host or "127.0.0.1", int(port)


def main(given: list[str] | None = None) -> int:
    """Run the command line. Returns: the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.poison", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--requests", type=int, help="stop after N requests")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--connections", type=int, default=4, help="connections to each node")
    parser.add_argument("--rate", type=float, help="requests per second in total")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--controllers", type=int, default=3)
    parser.add_argument(
        "--calm-seconds", type=float, default=5.0, help="seconds without poison at the start"
    )
    parser.add_argument(
        "--heavy", type=int, default=1, help="connections for large lists to each node"
    )
    parser.add_argument(
        "--heavy-refused", action="store_true", help="send only large frames that are not requests"
    )
    parser.add_argument(
        "--heavy-pause-ms", type=float, default=200.0, help="milliseconds between large frames"
    )
    parser.add_argument(
        "--late-ms-max", type=float, help="fail if an event loop was blocked for longer"
    )
    parser.add_argument("--slower-max", type=float, help="fail if the client's p99 rose by more")
    parser.add_argument("--grown-mib-max", type=int, help="fail if a node's memory grew by more")
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--bystander", help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    if options.bystander:
        asyncio.run(stand_by(options.bystander))
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 32)
    say(f"seed {options.seed}")
    directory = options.directory or Path(tempfile.mkdtemp(prefix="poison-"))
    with KafkaCluster.start(
        directory, brokers=options.brokers, controllers=options.controllers, configs=SETTINGS
    ) as cluster:
        seen = asyncio.run(poison(options, cluster))
        say(json.dumps(seen, indent=1))
        if seen["problems"] or seen["unforeseen"]:
            for node, log in cluster.logs():
                say(f"--- {node!r}")
                say_errors(log.read_text(errors="replace"))
            return 1
    wrong = judge(seen, options)
    for each in wrong:
        say(each)
    return 1 if wrong else 0


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
