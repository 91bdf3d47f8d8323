"""A whole node in memory, on the running loop."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from broker.tiering.tier import ObjectsFactory
from kraftbox.node import Node, build_node
from metalog.format import FormatRequest, format_directories
from runtime.clock import Clock, SystemClock
from runtime.config import NodeConfig
from storage.files import Files, MemoryFiles

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:0",
    "log.dirs": "/data",
    "kraftbox.http.listener": "127.0.0.1:0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}
_seeds = itertools.count()
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def make_node(
    files: Files,
    settings: Mapping[str, str] | None = None,
    *,
    clock: Clock | None = None,
    seed: int | None = None,
    open_objects: ObjectsFactory | None = None,
) -> Node:
    """Return a formatted node that is not started."""
    config = NodeConfig.parse({**PROPERTIES, **(settings or {})})
    clock = clock or SystemClock()
    # Like two starts of a process, two nodes never draw the same incarnation id.
    rng = random.Random(next(_seeds) if seed is None else seed)
    request = FormatRequest.from_node_config(config, CLUSTER_ID)._replace(ignore_formatted=True)
    format_directories(request, files=files, clock=clock, rng=rng)
    return build_node(config, clock=clock, rng=rng, files=files, open_objects=open_objects)


@asynccontextmanager
async def running_node(
    files: Files | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    open_objects: ObjectsFactory | None = None,
) -> AsyncIterator[Node]:
    """Run a node; stop it at the end. Raises: AssertionError if it failed by itself."""
    node = make_node(files or MemoryFiles(), settings, open_objects=open_objects)
    try:
        await node.start()
        yield node
    finally:
        await node.stop()
        if node.failed.done():
            name, error = node.failed.result()
            raise AssertionError(f"the node failed: {name}") from error
