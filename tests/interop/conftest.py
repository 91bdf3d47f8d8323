"""One node for all interop tests, and one that sits behind a proxy that cuts connections."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.flaky_proxy import FlakyProxy
from tests.support.nodes import KraftboxNode


def pytest_configure(config: pytest.Config) -> None:
    """Foreign clients leave sockets of their own unclosed; that is not ours to fail on."""
    for ignored in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::{ignored}")


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a running node."""
    given = os.environ.get("KRAFTBOX_INTEROP_BOOTSTRAP")
    if given:
        yield given
        return
    node = KraftboxNode(tmp_path_factory.mktemp("interop") / "node").start()
    yield node.bootstrap
    assert node.stop() == 0


@pytest.fixture(scope="session")
def flaky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlakyProxy]:
    """A proxy, not armed yet, in front of a node that advertises the proxy's address."""
    directory: Path = tmp_path_factory.mktemp("flaky") / "node"
    with FlakyProxy(seed=20_260) as proxy:
        advertised = f"PLAINTEXT://127.0.0.1:{proxy.port}"
        node = KraftboxNode(directory, settings={"advertised.listeners": advertised}).start()
        host, _, port = node.bootstrap.rpartition(":")
        # `up` announces the advertised address; the proxy needs the one the node is bound to.
        bound = _bound_port(node) if int(port) == proxy.port else int(port)
        proxy.forward_to(host, bound)
        yield proxy
        node.stop()


def _bound_port(node: KraftboxNode) -> int:
    """The node's client port, from the operating system's table of listening sockets."""
    inodes = set()
    for entry in Path(f"/proc/{node.pid}/fd").iterdir():
        target = os.readlink(entry)
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    listening = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            listening.append(int(fields[1].rpartition(":")[2], 16))
    return min(listening)


@pytest.fixture
def prefix() -> str:
    """A name no other test uses."""
    return f"t{uuid.uuid4().hex[:10]}"
