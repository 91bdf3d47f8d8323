"""Shell: Names and addresses of a cluster with a network of its own (`up --isolate`)."""

from __future__ import annotations

import os
import random
from pathlib import Path

from runtime.errors import StartupRefused

HOST_OCTET = 254
NETWORKS = range(1, 251)
NAMESPACES = Path("/run/netns")
_CLONE_NEWNET = 0x40000000


class Network:
    """Names and addresses of one cluster's network; `number` distinguishes it from others."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.device = f"kbx{number}"
        self.prefix = f"10.213.{number}"

    @property
    def host(self) -> str:
        """The host's own address in this network."""
        return f"{self.prefix}.{HOST_OCTET}"

    def address(self, node_id: int) -> str:
        return f"{self.prefix}.{node_id}"

    def namespace(self, node_id: int) -> str:
        return f"kbx{self.number}-{node_id}"


def choose_network(rng: random.Random) -> Network:
    """Return a network that no other cluster on this host uses.

    Raises StartupRefused if all are in use.
    """
    for number in rng.sample(NETWORKS, len(NETWORKS)):
        network = Network(number)
        if not Path("/sys/class/net", network.device).exists():
            return network
    raise StartupRefused("--isolate: no free network")


def enter(namespace: str) -> None:
    """Move this process into a network namespace.

    Raises StartupRefused if the namespace cannot be opened or entered.
    """
    import ctypes

    try:
        fd = os.open(NAMESPACES / namespace, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise StartupRefused(f"network namespace {namespace}: {error.strerror}") from None
    try:
        if ctypes.CDLL(None, use_errno=True).setns(fd, _CLONE_NEWNET):
            why = os.strerror(ctypes.get_errno())
            raise StartupRefused(f"network namespace {namespace}: {why}")
    finally:
        os.close(fd)
