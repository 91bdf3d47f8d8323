"""The nodes of a cluster as their supervisor sees them, and requests to the running brokers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from kraftbox.testing.channel import ClusterError, Helper, ask_supervisor
from kraftbox.testing.healing import Node, broken

__tracebackhide__ = True

T = TypeVar("T")

WAIT_S = 30.0
POLL_S = 0.02
NOTICE_S = 2.0
"""How long a test waits before a line on standard error names the awaited condition."""


class RunningNodes:
    """The nodes in a cluster's directory. Each method raises ClusterError."""

    def __init__(self, directory: Path, helper: Helper) -> None:
        self._directory = directory
        self._helper = helper

    def supervised(self) -> dict[str, Any]:
        """Return the supervisor's view of the processes."""
        return ask_supervisor(self._directory, {"do": "status"}, WAIT_S)

    def states(self) -> list[Node]:
        """Return the state of each node."""
        return [
            Node(facts["id"], facts["state"], bool(facts.get("cutOff")), facts.get("exitCode"))
            for facts in self.supervised()["nodes"]
        ]

    def ready(self) -> set[int]:
        """Return the IDs of the nodes that are ready."""
        return {facts["id"] for facts in self.supervised()["nodes"] if facts["ready"]}

    def ask(self, what: str, **question: object) -> Any:
        """Send a request to the brokers that run; one to a paused broker would block."""
        nodes = self.supervised()["nodes"]
        brokers = {
            facts["id"]: _address(facts["listeners"])
            for facts in nodes
            if "broker" in facts["roles"].split(",")
            and facts["state"] == "running"
            and not facts.get("cutOff")
        }
        if not brokers:
            damage = "; ".join(
                f"node {key} is {text}" for key, text in broken(self.states()).items()
            )
            raise ClusterError(f"no broker is running: {damage or 'all nodes are starting'}")
        where = {"bootstrap": ",".join(brokers.values()), "nodes": list(brokers)}
        return self._helper.ask({"do": what, **where, **question})


def _address(listeners: str) -> str:
    """Return the address for clients among the listeners of a broker."""
    named = (entry.partition("://") for entry in listeners.split(","))
    return next(address for name, _, address in named if name != "CONTROLLER")


def wait_for(
    holds: Callable[[], T | None], what: str, timeout_s: float = WAIT_S, *, told: bool = True
) -> T:
    """Poll until `holds` returns a value, and return it; errors before `timeout_s` are ignored.

    After NOTICE_S, a line on standard error names `what`.

    Raises ClusterError: the last error, or `what` with the time unless `told` is false.
    """
    begun = time.monotonic()
    deadline = begun + timeout_s
    is_reported = False
    while True:
        try:
            found = holds()
        except ClusterError:
            if time.monotonic() > deadline:
                raise
            found = None
        if found is not None:
            return found
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: not within {timeout_s:g} s" if told else what)
        if not is_reported and time.monotonic() - begun >= NOTICE_S:
            is_reported = True
            sys.stderr.write(f"kraftbox: waiting for {what}\n")
        time.sleep(POLL_S)
