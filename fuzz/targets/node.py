"""Requests to a whole node on virtual time: no handler may fail, whatever the field values.

Input: frames as a client's connection would carry them. The node is replaced every `RUNS_PER_NODE`
inputs, and after a request that takes it out of its cluster.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from fuzz.target import Finding
from fuzz.values import random_message
from kraftbox.node import Node
from protocol.api_keys import ApiKey
from protocol.batch import Record, build_batch
from protocol.codec import encode
from protocol.headers import RequestHeader, encode_request_header
from protocol.messages import request_class
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest
from protocol.schema import ApiMessage
from protocol.transport.client import Connection
from runtime.clock import LoopClock
from runtime.log import captured
from simulation.world.loop import VirtualLoop
from simulation.world.network import Network
from storage.files import MemoryFiles
from testkit.memory.node import make_node

RUNS_PER_NODE = 500
NODE_SECONDS = 2.0
"""Virtual seconds for the responses to one input."""
SETTINGS = {
    "kraftbox.produce.validate.records": "true",
    "kraftbox.produce.decompressed.max.bytes": "1000000",
    "kraftbox.http.listener": "",
}
SKIPPED = {ApiKey.UNREGISTER_BROKER}
"""Legitimate administrative requests that remove the node."""


class _Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = 0
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.received += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class NodeTarget:
    def __init__(self) -> None:
        self._loop: VirtualLoop | None = None
        self._node: Node | None = None
        self._port = 0
        self._runs = 0
        self._apis: list[tuple[ApiKey, int, int]] = []

    def seeds(self, rng: random.Random) -> Sequence[bytes]:
        """Return good requests of every API and version."""
        self._renew()
        out = [_framed(rng, message, version) for message, version in _likely()]
        for api, low, high in self._apis:
            first, last = request_class(api).VERSIONS
            for version in range(max(low, first), min(high, last) + 1):
                for _ in range(3):
                    message = random_message(rng, request_class(api), version)
                    _make_likely(rng, message)
                    out.append(_framed(rng, message, version))  # type: ignore[arg-type]
        return out

    def run(self, data: bytes) -> None:
        if self._loop is None or self._runs >= RUNS_PER_NODE:
            self._renew()
        self._runs += 1
        assert self._loop is not None and self._node is not None
        with captured() as lines:
            self._loop.run_until_complete(self._feed(data))
        for line in lines:
            if line["log_level"] == "error":
                self._drop()
                error = line.get("exc_info")
                cause = error if isinstance(error, BaseException) else None
                raise Finding(repr({**line, "exc_info": repr(error)})) from cause
        if self._node.failed.done():
            name, failure = self._node.failed.result()
            self._drop()
            raise Finding(f"the node stopped: {name}") from failure
        if self._loop.failures:
            failures = list(self._loop.failures)
            self._drop()
            raise Finding(repr(failures[:3])) from failures[0].get("exception")
        if not self._node.ready:
            self._drop()

    async def _feed(self, data: bytes) -> None:
        await self._send(self._port, data)

    async def _send(self, port: int, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        transport, client = await loop.create_connection(_Client, "127.0.0.1", port)
        transport.write(data)
        await asyncio.sleep(NODE_SECONDS if not client.lost else 0)
        transport.close()
        await asyncio.sleep(0.01)

    def _renew(self) -> None:
        self._drop()
        self._runs = 0
        loop = self._loop = VirtualLoop(Network(random.Random(1)))

        async def start() -> Node:
            clock = LoopClock(loop, 1_700_000_000_000)
            node = make_node(MemoryFiles(), SETTINGS, clock=clock)
            await node.start()
            self._port = node.bound_port("PLAINTEXT")
            connection = await Connection.connect("127.0.0.1", self._port, "fuzz", 5000)
            await connection.request(CreateTopicsRequest(topics=self._topics(), timeout_ms=5000))
            await connection.request(MetadataRequest(topics=None))
            self._apis = [
                (ApiKey(key), versions.first, versions.last)
                for key, versions in sorted(connection.versions.items())
                if key not in SKIPPED
            ]
            await connection.close()
            return node

        with captured():
            self._node = loop.run_until_complete(start())

    def _topics(self) -> list[CreateTopicsRequest.CreatableTopic]:
        return [
            CreateTopicsRequest.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
            for name in ("t", "topic")
        ]

    def _drop(self) -> None:
        loop, node = self._loop, self._node
        self._loop = self._node = None
        if loop is not None:
            with captured():
                if node is not None:
                    loop.run_world(node.stop())
            loop.close()

    def close(self) -> None:
        self._drop()


def _framed(rng: random.Random, message: ApiMessage, version: int) -> bytes:
    header = RequestHeader(ApiKey(message.API_KEY), version, rng.randrange(100), "fuzz")
    body = encode_request_header(header) + encode(message, version)
    return len(body).to_bytes(4, "big") + body


def _likely() -> list[tuple[ApiMessage, int]]:
    batch = build_batch([Record(timestamp=1_700_000_000_000, key=b"k", value=b"v")])
    produce = ProduceRequest(
        acks=-1,
        timeout_ms=100,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="t",
                partition_data=[ProduceRequest.PartitionProduceData(index=0, records=batch)],
            )
        ],
    )
    fetch = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=10_000,
        topics=[
            FetchRequest.FetchTopic(
                topic="t",
                partitions=[FetchRequest.FetchPartition(partition=0, partition_max_bytes=1000)],
            )
        ],
    )
    return [(produce, version) for version in (3, 7, 9, 12)] + [
        (fetch, version) for version in (4, 11, 12)
    ]


_MODEST = {"num_partitions": 5, "count": 5, "timeout_ms": 1000, "max_wait_ms": 1000}


def _make_likely(rng: random.Random, value: Any) -> None:
    """Reduce numbers that would cause much work in the node, and turn records into batches."""
    for field in type(value).FIELDS:
        inner = getattr(value, field.name)
        if field.name in _MODEST and inner is not None:
            setattr(value, field.name, min(inner, _MODEST[field.name]))
        elif field.name == "records" and rng.random() < 0.7:
            value.records = build_batch([Record(timestamp=1_700_000_000_000, value=b"v")])
        elif isinstance(inner, list):
            for one in inner:
                if hasattr(type(one), "FIELDS"):
                    _make_likely(rng, one)
        elif hasattr(type(inner), "FIELDS"):
            _make_likely(rng, inner)


def make() -> NodeTarget:
    return NodeTarget()
