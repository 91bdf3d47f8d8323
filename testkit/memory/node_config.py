"""A broker's configuration from its keys as keyword arguments."""

from __future__ import annotations

from runtime.config import NodeConfig

BASE = {
    "node.id": "1",
    "process.roles": "broker",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "2@localhost:9093",
}


def node(**props: str) -> NodeConfig:
    return NodeConfig.parse({**BASE, **{key.replace("_", "."): v for key, v in props.items()}})
