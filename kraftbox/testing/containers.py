"""A node in a container, for Testcontainers in Python: `pip install testcontainers`.

    with KraftboxContainer() as kafka:
        Producer({"bootstrap.servers": kafka.bootstrap_servers})

The image is built from a checkout (`docker build -f deploy/Dockerfile -t kraftbox .`), or named in
the environment variable KRAFTBOX_IMAGE. A node advertises its port, but Docker assigns the port
only when the container starts. So the container waits for a file with the address, as in
Testcontainers' own modules for Kafka.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from io import BytesIO
from tarfile import TarFile, TarInfo
from typing import Self

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from kraftbox.testing.shape import text_of

IMAGE_DEFAULT = "kraftbox:latest"
CLIENT_PORT = 9092
NETWORK_PORT = 9094
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
START_S = 60
READY = "Transitioning from RECOVERY to RUNNING"
_SCRIPT = "/tmp/kraftbox-start"
_WAIT = f"while [ ! -s {_SCRIPT} ]; do sleep 0.05; done; . {_SCRIPT}"


class KraftboxContainer(DockerContainer):
    """One node that is broker and controller.

    Args:
        image: the image; default KRAFTBOX_IMAGE, or `kraftbox:latest`.
        configs: keys of server.properties.

    Other containers of a network (`with_network`, `with_network_aliases`) reach it at its first
    alias and port 9094.
    """

    def __init__(
        self, image: str | None = None, configs: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(image or os.environ.get("KRAFTBOX_IMAGE") or IMAGE_DEFAULT)
        self.with_exposed_ports(CLIENT_PORT)
        self.with_command(["sh", "-c", _WAIT])
        self.with_env("CLUSTER_ID", CLUSTER_ID)
        for key, value in {**_fixed(), **(configs or {})}.items():
            self.with_env(_variable(key), text_of(value))

    @property
    def bootstrap_servers(self) -> str:
        """The `host:port` for clients on this machine, once the container is started."""
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(CLIENT_PORT)}"

    def start(self) -> Self:
        """Start the container and return when the node is ready.

        Raises TimeoutError after a minute.
        """
        super().start()
        inside = (self._network_aliases or ["localhost"])[0]
        advertised = f"PLAINTEXT://{self.bootstrap_servers},NETWORK://{inside}:{NETWORK_PORT}"
        self.get_wrapped_container().put_archive("/", _archive(_start_script(advertised)))
        ready = LogMessageWaitStrategy(READY).with_startup_timeout(START_S)
        ready.wait_until_ready(self)
        return self


def _fixed() -> dict[str, object]:
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://:{CLIENT_PORT},NETWORK://:{NETWORK_PORT},CONTROLLER://:9093",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,NETWORK:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "NETWORK",
        "offsets.topic.replication.factor": 1,
        "group.initial.rebalance.delay.ms": 0,
    }


def _variable(key: str) -> str:
    """Return the environment variable of a key, by the rules of Kafka's image."""
    return "KAFKA_" + key.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def _start_script(advertised: str) -> bytes:
    assignment = f"KAFKA_ADVERTISED_LISTENERS={shlex.quote(advertised)}"
    return f"export {assignment}\nexec /etc/kafka/docker/run\n".encode()


def _archive(script: bytes) -> bytes:
    with BytesIO() as file:
        with TarFile(fileobj=file, mode="w") as archive:
            entry = TarInfo(_SCRIPT)
            entry.size, entry.mode = len(script), 0o755
            archive.addfile(entry, BytesIO(script))
        return file.getvalue()
