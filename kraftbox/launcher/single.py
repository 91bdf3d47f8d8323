"""The directory of a single node that `kraftbox up` made, and the properties it starts with."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path

from kraftbox.launcher.place import PortChooser
from kraftbox.launcher.plan import HOST, PORT_DEFAULT, local_settings
from kraftbox.process.properties import read_properties
from runtime.config.properties import format_properties
from runtime.errors import StartupRefused

NODE_ID = "1"
META_PROPERTIES = "meta.properties"


class Place:
    """The directory of `up` and the names in it."""

    def __init__(self, directory: str) -> None:
        self.root = Path(directory).absolute()
        self.data = self.root / "data"
        self.properties = self.root / "server.properties"
        self.log = self.root / "node.log"

    def remembered(self) -> dict[str, str]:
        """What the directory was started with before; empty for a new one."""
        return read_properties(self.properties) if self.properties.exists() else {}

    def remember(self, props: Mapping[str, str]) -> None:
        comment = "Written by `kraftbox up`, which reads it again; --set changes it."
        temporary = self.properties.with_suffix(".tmp")
        temporary.write_text(format_properties(props, comment), encoding="utf-8")
        os.replace(temporary, self.properties)

    def refuse_foreign(self) -> None:
        """Raises StartupRefused when the directory is another node's log directory."""
        if not self.properties.exists() and (self.root / META_PROPERTIES).exists():
            raise StartupRefused(
                f"{self.root} is a log directory of another node: use `kraftbox server`"
            )

    def cluster_id(self) -> str | None:
        """Of a directory that was formatted before."""
        meta = self.data / META_PROPERTIES
        return read_properties(meta).get("cluster.id") if meta.exists() else None


def properties(place: Place, port: int | None, settings: Mapping[str, str]) -> dict[str, str]:
    """The node's properties: defaults of `up`, then what is remembered, then the options."""
    base = {
        "process.roles": "broker,controller",
        "node.id": NODE_ID,
        "listeners": listeners(PORT_DEFAULT),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{NODE_ID}@{HOST}:0",
        "log.dirs": str(place.data),
        "kraftbox.http.listener": f"{HOST}:0",
        **local_settings(brokers=1),
    }
    remembered = place.remembered()
    # The directory may have been moved since.
    merged = {**base, **remembered, "log.dirs": str(place.data)}
    if port is not None and not (port == 0 and remembered):
        merged["listeners"] = listeners(port)
    return {**merged, **settings}


def listeners(port: int) -> str:
    return f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:0"


def with_port(props: dict[str, str]) -> dict[str, str]:
    """The same with a port in place of `--port 0`, so that it is known before the node starts."""
    if props["listeners"] != listeners(0):
        return props
    chooser = PortChooser(random.Random(random.SystemRandom().getrandbits(64)), set())
    return {**props, "listeners": listeners(chooser.choose())}
