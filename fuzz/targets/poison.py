"""Valid requests with hostile values to a whole node on virtual time, broker and controller.

Input: one byte that chooses the listener, then frames. The good inputs are requests that
`fuzz.hostile` makes for each API and version, and inputs that once caused a failure
(`fuzz/corpus/poison`). `python -m fuzz.poison` sends the same requests to a cluster of processes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from fuzz.heavy import heavy_frames, hello
from fuzz.hostile import BYSTANDER, SKIPPED, TOPIC_CONFIGS, VICTIMS, Facts, Hostile
from fuzz.targets.node import NodeTarget
from protocol.api_keys import ApiKey
from protocol.messages import request_class
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.transport.dispatch import HandlerTable
from testkit.memory.node import CLUSTER_ID

BROKER, CONTROLLER = b"\x00", b"\x01"
CORPUS = Path(__file__).resolve().parents[1] / "corpus" / "poison"
LARGE_ELEMENTS = 2_000
"""Of a list, so that its frame is decoded in slices."""
EACH = 4
"""Good inputs of each API and version."""


class PoisonTarget(NodeTarget):
    """A node whose broker and controller listeners both get hostile requests."""

    def seeds(self, rng: random.Random) -> Sequence[bytes]:
        self._renew()
        assert self._node is not None
        assert self._node.broker is not None and self._node.controller is not None
        kept = [bytes.fromhex(path.read_text()) for path in sorted(CORPUS.glob("*.hex"))]
        hostile = Hostile(rng, Facts(cluster_id=CLUSTER_ID))
        tables = (
            (BROKER, self._node.broker.servers[0].handlers),
            (CONTROLLER, self._node.controller.servers[0].handlers),
        )
        large = [
            listener + b"".join(map(bytes, (*hello(), *frame.parts)))
            for listener, table in tables
            for frame in heavy_frames(hostile, _versions(table), LARGE_ELEMENTS, LARGE_ELEMENTS)
        ]
        return (
            kept
            + large
            + [
                listener + hostile.frame(api, version)[0]
                for listener, table in tables
                for api, version in _served(table)
                for _ in range(EACH)
            ]
        )

    async def _feed(self, data: bytes) -> None:
        assert self._node is not None and self._node.controller is not None
        port = self._port
        if data[:1] == CONTROLLER:
            port = self._node.controller.servers[0].address[1]
        await self._send(port, data[1:])

    def _topics(self) -> list[CreateTopicsRequest.CreatableTopic]:
        return [
            CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=2,
                replication_factor=1,
                configs=[
                    CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                    for key, value in TOPIC_CONFIGS.get(name, {}).items()
                ],
            )
            for name in (*VICTIMS, BYSTANDER)
        ]


def _served(table: HandlerTable) -> list[tuple[ApiKey, int]]:
    return [
        (entry.api, version)
        for _, entry in sorted(table.entries.items())
        if entry.api not in SKIPPED
        for version in range(entry.version_min, entry.version_max + 1)
        if version in request_class(entry.api).VERSIONS
    ]


def _versions(table: HandlerTable) -> dict[ApiKey, list[int]]:
    versions: dict[ApiKey, list[int]] = {}
    for api, version in _served(table):
        versions.setdefault(api, []).append(version)
    return versions


def make() -> PoisonTarget:
    return PoisonTarget()
