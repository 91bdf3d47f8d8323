"""Time from the kill of a leader to the first acknowledgement of the next one.

    python -m bench.failover [--rounds 20] [--kafka-rounds 5] [--kafka JARS]
    python -m bench.failover --fence-ms 50 [--with-controller] [--rounds 50]
    python -m bench.failover --librdkafka [--rounds 20]

There are three controllers and three brokers in separate processes, and one partition with three
replicas; acks=all. A client sends small records one after the other to the partition's leader, and
measures until the first acknowledgement by another broker. The clusters are Kraftbox with Kafka's
default timers, Kraftbox with `kraftbox.broker.connection.loss.fence.ms=100`, and Apache Kafka from
its jars. The client is always ours; it retries every 5 ms, so that it adds little.

`--fence-ms` measures only Kraftbox, with this value of `kraftbox.broker.connection.loss.fence.ms`.
With `--with-controller` the active controller is killed together with the leader.

`--librdkafka` measures the delay for librdkafka's users, with the client's default settings. A
producer sends a record every 5 ms for a second or two. The figure is the time from the kill to the
first delivery of a record that was passed to it afterwards. The moment of the kill is random,
because the client has an internal cycle of one second.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from client.addresses import Address
from client.cluster_client import ClusterClient
from kraftbox.chaos import local
from kraftbox.chaos.target import LocalTarget
from kraftbox.launcher import control
from kraftbox.launcher.place import ClusterPlace
from protocol.batch.records import Record, build_batch
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.describe_quorum import DescribeQuorumRequest
from protocol.transport.client import ConnectionLost
from testkit.processes.ending import end_on_sigterm

TOPIC = "failover"
RETRY_S = 0.005
ASK_MS_MAX = 250.0
WHOLE_S_MAX = 90.0
ROUND_S_MAX = 60.0
NODES = 3


class Cluster(Protocol):
    """A cluster under measurement."""

    bootstrap: list[Address]

    async def kill(self, node_id: int) -> None: ...

    async def start(self, node_id: int) -> None: ...


class Kraftbox:
    def __init__(self, target: LocalTarget) -> None:
        self.bootstrap = target.bootstrap
        self._target = target
        self._pids: dict[int, int] = {}

    async def learn(self) -> None:
        """Read the process IDs before a timed kill, because the supervisor takes time to answer."""
        self._pids = {
            one.node_id: one.pid for one in await self._target.members() if one.pid is not None
        }

    async def kill(self, node_id: int) -> None:
        os.kill(self._pids[node_id], signal.SIGKILL)

    async def start(self, node_id: int) -> None:
        await self._target.act("start", node_id)
        await self.learn()


class WithController(Kraftbox):
    """The same cluster, in which the active controller is killed with every broker."""

    _controller = -1

    async def learn(self) -> None:
        await super().learn()
        client = await ClusterClient.connect(self.bootstrap, "bench", 5_000.0)
        try:
            request = DescribeQuorumRequest(
                topics=[
                    DescribeQuorumRequest.TopicData(
                        topic_name="__cluster_metadata",
                        partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)],
                    )
                ]
            )
            answer = await client.request_any(request, 5_000.0)
            self._controller = answer.topics[0].partitions[0].leader_id
        finally:
            await client.close()

    async def kill(self, node_id: int) -> None:
        os.kill(self._pids[self._controller], signal.SIGKILL)
        await super().kill(node_id)

    async def start(self, node_id: int) -> None:
        await self._target.act("start", self._controller)
        await super().start(node_id)


class ApacheKafka:
    """Apache Kafka from its jars, with the same numbers of nodes."""

    def __init__(self, directory: Path, jars: Path) -> None:
        from testkit.processes.ports import free_port

        self._directory = directory
        self._classpath = f"{jars}/*"
        controllers = {100 + n: free_port() for n in range(1, NODES + 1)}
        brokers = {n: free_port() for n in range(1, NODES + 1)}
        self.bootstrap: list[Address] = [("127.0.0.1", port) for port in brokers.values()]
        voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in controllers.items())
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for node_id, port in {**controllers, **brokers}.items():
            self._prepare(node_id, port, voters, is_controller=node_id in controllers)
        for node_id in [*controllers, *brokers]:
            self._run(node_id)

    def _prepare(self, node_id: int, port: int, voters: str, *, is_controller: bool) -> None:
        name = "CONTROLLER" if is_controller else "PLAINTEXT"
        folder = self._directory / f"kafka-{node_id}"
        folder.mkdir(parents=True)
        lines = {
            "process.roles": "controller" if is_controller else "broker",
            "node.id": str(node_id),
            "listeners": f"{name}://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": voters,
            "log.dirs": str(folder / "data"),
        }
        (folder / "server.properties").write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
        subprocess.run(
            [
                *self._java("256m"),
                *("kafka.tools.StorageTool", "format", "-t", "5L6g3nShT-eMCtK--X86sw"),
                *("-c", str(folder / "server.properties")),
            ],
            check=True,
            capture_output=True,
        )

    def _java(self, heap: str) -> list[str]:
        return ["java", f"-Xmx{heap}", "-XX:+UseSerialGC", "-cp", self._classpath]

    def _run(self, node_id: int) -> None:
        folder = self._directory / f"kafka-{node_id}"
        with open(folder / "node.log", "ab") as log:
            self._processes[node_id] = subprocess.Popen(
                [*self._java("384m"), "kafka.Kafka", str(folder / "server.properties")],
                stdout=log,
                stderr=log,
            )

    async def kill(self, node_id: int) -> None:
        self._processes[node_id].kill()

    async def start(self, node_id: int) -> None:
        self._processes[node_id].wait()
        self._run(node_id)

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()


class Result(NamedTuple):
    """The milliseconds of every round."""

    name: str
    rounds_ms: list[float]

    def line(self) -> str:
        found = sorted(self.rounds_ms)
        return (
            f"{self.name:55} {len(found):3} rounds   median {statistics.median(found):8.0f} ms   "
            f"best {found[0]:8.0f}   worst {found[-1]:8.0f}"
        )


Measure = Callable[[str, Cluster, int], Awaitable[Result]]
DeliveredAfter = Callable[[Cluster, int, float], Awaitable[float]]
"""Returns the ms from the kill of a leader to the delivery of a record sent after it. The last
argument is a random part of a second to wait before the kill.
"""


async def make_topic(client: ClusterClient) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=TOPIC,
                num_partitions=1,
                replication_factor=NODES,
                configs=[
                    CreateTopicsRequest.CreatableTopicConfig(
                        name="min.insync.replicas", value=str(NODES - 1)
                    )
                ],
            )
        ],
        timeout_ms=30_000,
    )
    deadline = time.monotonic() + WHOLE_S_MAX
    while True:
        answer = await client.request_any(request, WHOLE_S_MAX * 1000)
        code = ErrorCode(answer.topics[0].error_code)
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
        if time.monotonic() > deadline:
            raise ApiError(code, answer.topics[0].error_message)
        await asyncio.sleep(0.5)


async def whole(bootstrap: list[Address]) -> int:
    """Return the leader once every replica is in sync."""
    deadline = time.monotonic() + WHOLE_S_MAX
    while time.monotonic() < deadline:
        try:
            client = await ClusterClient.connect(bootstrap, "bench", 5_000.0)
        except OSError:
            continue
        try:
            for partition in (await client.metadata([TOPIC], 5_000.0)).topics[0].partitions:
                if partition.leader_id >= 0 and len(partition.isr_nodes) == NODES:
                    return partition.leader_id
        except (ApiError, OSError):
            pass
        finally:
            await client.close()
        await asyncio.sleep(0.2)
    raise RuntimeError(f"cluster not recovered within {WHOLE_S_MAX} s")


async def first_acknowledgement(client: ClusterClient, old: int) -> None:
    """Wait until a broker other than `old` has acknowledged a record."""
    batch = build_batch([Record(0, 0, None, b"x")])
    deadline = time.monotonic() + ROUND_S_MAX
    while time.monotonic() < deadline:
        try:
            leader = client.cache.leaders.get((TOPIC, 0))
            if leader is None or leader.node_id in (old, -1):
                await client.metadata([TOPIC], ASK_MS_MAX)
                leader = client.cache.leaders.get((TOPIC, 0))
            if leader is not None and leader.node_id not in (old, -1):
                connection = await client.leader(TOPIC, 0, ASK_MS_MAX)
                request, version = client.produce_request(
                    connection, TOPIC, 0, batch, -1, ROUND_S_MAX * 1000
                )
                client.produced(
                    TOPIC, 0, await connection.request(request, ROUND_S_MAX * 1000, version)
                )
                return
        except (ApiError, ConnectionLost, OSError, ProtocolError):
            pass
        await asyncio.sleep(RETRY_S)
    raise RuntimeError(f"no acknowledgement within {ROUND_S_MAX} s")


async def measure(name: str, cluster: Cluster, rounds: int) -> Result:
    found = []
    admin = await ClusterClient.connect(cluster.bootstrap, "bench", WHOLE_S_MAX * 1000)
    await make_topic(admin)
    await admin.close()
    for number in range(rounds):
        leader = await whole(cluster.bootstrap)
        client = await ClusterClient.connect(cluster.bootstrap, "bench", 5_000.0)
        await client.metadata([TOPIC])
        await client.produce(TOPIC, 0, build_batch([Record(0, 0, None, b"x")]))
        begun = time.monotonic()
        await cluster.kill(leader)
        await first_acknowledgement(client, leader)
        found.append((time.monotonic() - begun) * 1000)
        await client.close()
        print(f"{name}: round {number + 1}: {found[-1]:.0f} ms", flush=True)
        await cluster.start(leader)
    return Result(name, found)


async def delivered_after(cluster: Cluster, leader: int, random_s: float) -> float:
    """Return the ms from the kill of `leader` until librdkafka delivers a record sent after it."""
    from confluent_kafka import KafkaError, Message, Producer

    producer = Producer({"bootstrap.servers": ",".join(f"{h}:{p}" for h, p in cluster.bootstrap)})
    ended: list[float] = []

    def after_the_kill(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            raise RuntimeError(f"librdkafka abandoned a record: {error}")
        ended.append(time.monotonic())

    begun = time.monotonic() + 1.0 + random_s
    while time.monotonic() < begun:
        producer.produce(TOPIC, b"x", partition=0)
        producer.poll(0)
        await asyncio.sleep(RETRY_S)
    begun = time.monotonic()
    await cluster.kill(leader)
    while not ended and time.monotonic() < begun + ROUND_S_MAX:
        producer.produce(TOPIC, b"x", partition=0, on_delivery=after_the_kill)
        producer.poll(0)
        await asyncio.sleep(RETRY_S)
    producer.flush(ROUND_S_MAX)
    if not ended:
        raise RuntimeError(f"no delivery within {ROUND_S_MAX} s")
    return (ended[0] - begun) * 1000


async def measure_deliveries(
    name: str, cluster: Cluster, rounds: int, after: DeliveredAfter, rest_s: float = 0.0
) -> Result:
    """Run all rounds of one client with `after`.

    `rest_s` is the time between a leader's death and its next start.
    """
    admin = await ClusterClient.connect(cluster.bootstrap, "bench", WHOLE_S_MAX * 1000)
    await make_topic(admin)
    await admin.close()
    rng = random.Random(1)
    found = []
    for number in range(rounds):
        leader = await whole(cluster.bootstrap)
        found.append(await after(cluster, leader, rng.random()))
        print(f"{name}: round {number + 1}: {found[-1]:.0f} ms", flush=True)
        await asyncio.sleep(rest_s)
        await cluster.start(leader)
    return Result(name, found)


async def measure_librdkafka(name: str, cluster: Cluster, rounds: int) -> Result:
    return await measure_deliveries(name, cluster, rounds, delivered_after)


def kraftbox(
    name: str,
    settings: Mapping[str, str],
    rounds: int,
    measure: Measure = measure,
    kind: type[Kraftbox] = Kraftbox,
) -> Result:
    with tempfile.TemporaryDirectory(prefix="kraftbox-failover-") as made:
        place = ClusterPlace(made)
        target = local.start(place, settings=settings, isolate=False, prepared=False)
        try:

            async def work() -> Result:
                cluster = kind(target)
                await cluster.learn()
                return await measure(name, cluster, rounds)

            return asyncio.run(work())
        finally:
            control.down(place)


def kafka(jars: Path, rounds: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="kafka-failover-") as made:
        cluster = ApacheKafka(Path(made), jars)
        try:
            return asyncio.run(measure("Apache Kafka, default timers", cluster, rounds))
        finally:
            cluster.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--kafka-rounds", type=int, default=5)
    parser.add_argument(
        "--fence-ms",
        type=int,
        help="only ours: time until a broker is fenced after its connection was lost",
    )
    parser.add_argument(
        "--with-controller", action="store_true", help="kill this node together with the leader"
    )
    parser.add_argument("--librdkafka", action="store_true", help="measure with librdkafka too")
    parser.add_argument("--kafka", type=Path, default=None, help="folder of Kafka's jars")
    options = parser.parse_args()
    if options.fence_ms is not None:
        setting = ("kraftbox.broker.connection.loss.fence.ms", str(options.fence_ms))
        kind = WithController if options.with_controller else Kraftbox
        name = f"{'='.join(setting)}{', with the controller' * options.with_controller}"
        print(kraftbox(name, dict([setting]), options.rounds, kind=kind).line())
        return
    if options.librdkafka:
        fencing = {"kraftbox.broker.connection.loss.fence.ms": "100"}
        name = "librdkafka, kraftbox.broker.connection.loss.fence.ms=100"
        print(kraftbox(name, fencing, options.rounds, measure_librdkafka).line())
        return
    runs: list[Callable[[], Result]] = [
        lambda: kraftbox(
            "Kraftbox, kraftbox.broker.connection.loss.fence.ms=100",
            {"kraftbox.broker.connection.loss.fence.ms": "100"},
            options.rounds,
        ),
        lambda: kraftbox(
            "Kraftbox, default timers",
            {"kraftbox.broker.connection.loss.fence.ms": "0"},
            min(options.rounds, 10),
        ),
    ]
    if options.kafka is not None:
        runs.append(lambda: kafka(options.kafka, options.kafka_rounds))
    results = [run() for run in runs]
    for result in results:
        print(result.line())


if __name__ == "__main__":
    end_on_sigterm()
    main()
