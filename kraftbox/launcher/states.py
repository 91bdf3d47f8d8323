"""State machine of a cluster's nodes for their supervisor. Pure: events in, effects out.

A node that ends by itself stays down with the state `failed`: in a testbed a crash is information
that a restart must not hide. A request waits for its result (`stop` for the exit, `start` for
readiness) and is answered once; several requests may wait for the same result.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from kraftbox.launcher.frames import clipped


class State(StrEnum):
    """State of a node. `killed` and `stopped` were requested; `failed` was not."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"
    KILLED = "killed"
    FAILED = "failed"


ALIVE = frozenset({State.STARTING, State.RUNNING, State.PAUSED, State.STOPPING})
ACTIONS = ("kill", "stop", "pause", "resume", "start", "cut-off", "reconnect")
NETWORK_ACTIONS = ("cut-off", "reconnect")


class Refused(Exception):
    """The request cannot be carried out now; the message has the reason."""


class Launch(NamedTuple):
    """Start a process for the node."""

    node_id: int


class Send(NamedTuple):
    """Send a signal to the node's process."""

    node_id: int
    number: int


class Tell(NamedTuple):
    """Send one of NETWORK_ACTIONS to the node's process, which reports when it is done."""

    node_id: int
    action: str


class Answer(NamedTuple):
    """Answer the request `token`: it is done, or failed with `error`."""

    token: int
    error: str | None = None


class Say(NamedTuple):
    """Report an event that no request caused."""

    text: str


class AllReady(NamedTuple):
    """Every node has become ready for the first time."""


class AllEnded(NamedTuple):
    """All nodes have ended after `down`."""


Effect: TypeAlias = Launch | Send | Tell | Answer | Say | AllReady | AllEnded


@dataclass
class NodeProcess:
    """One node. `exit_code` is negative for a signal; `ready` refers to the current process."""

    node_id: int
    is_broker: bool
    is_controller: bool
    state: State = State.STOPPED
    pid: int | None = None
    ready: bool = False
    cut_off: bool = False
    exit_code: int | None = None
    error: str | None = None
    starts: int = 0
    wanted: State | None = None
    facts: dict[str, Any] = field(default_factory=dict)


class NodeProcesses:
    """All nodes. Methods named after events and requests return the effects to carry out."""

    def __init__(self, nodes: Iterable[NodeProcess]) -> None:
        self.nodes = {node.node_id: node for node in nodes}
        self.going_down = False
        self.was_ready = False
        self._waiting: dict[int, list[tuple[int, str]]] = {}

    # --- requests -----------------------------------------------------------------------------

    def start_all(self) -> list[Effect]:
        """Start all nodes, controllers first: a broker can only register with a leader."""
        effects: list[Effect] = []
        for node in sorted(self.nodes.values(), key=lambda one: one.is_broker):
            effects += self._launch(node)
        return effects

    def request(self, action: object, node_id: object, token: int) -> list[Effect]:
        """Carry out one of ACTIONS; an `Answer` with `token` follows when it is done.

        Raises Refused.

        `action` and `node_id` come from a socket and may have any type.
        """
        # True and 1.0 are equal to 1 and would find node 1.
        node = self.nodes.get(node_id) if type(node_id) is int else None
        if node is None:
            known = ", ".join(map(str, self.nodes))
            raise Refused(f"unknown node {node_id!r:.80}; known: {known}")
        if not isinstance(action, str) or action not in ACTIONS:
            raise Refused(f"invalid action {action!r:.80}; allowed: {', '.join(ACTIONS)}")
        if self.going_down:
            raise Refused("the cluster is stopping")
        if action == "start":
            return self._start(node, token)
        if node.state not in ALIVE:
            raise Refused(f"node {node_id} is not running: it is {node.state}")
        if action in ("kill", "stop"):
            self._wait(node, token, "end")
            return self._end(node, State.KILLED if action == "kill" else State.STOPPED)
        if action == "pause":
            return self._pause(node, token)
        if action in NETWORK_ACTIONS:
            return self._network(node, action, token)
        return self._resume(node, token)

    def _start(self, node: NodeProcess, token: int) -> list[Effect]:
        if node.state in ALIVE:
            raise Refused(f"node {node.node_id} is already {node.state}")
        self._wait(node, token, "ready")
        return self._launch(node)

    def _pause(self, node: NodeProcess, token: int) -> list[Effect]:
        if node.state not in (State.RUNNING, State.STARTING):
            raise Refused(f"node {node.node_id} is {node.state}")
        node.state = State.PAUSED
        return [Send(node.node_id, signal.SIGSTOP), Answer(token)]

    def _resume(self, node: NodeProcess, token: int) -> list[Effect]:
        if node.state is not State.PAUSED:
            raise Refused(f"node {node.node_id} is {node.state}, not paused")
        node.state = State.RUNNING if node.ready else State.STARTING
        return [Send(node.node_id, signal.SIGCONT), Answer(token)]

    def _network(self, node: NodeProcess, action: str, token: int) -> list[Effect]:
        if node.state is not State.RUNNING:
            raise Refused(f"node {node.node_id} is {node.state}")
        if node.cut_off == (action == "cut-off"):
            raise Refused(f"node {node.node_id} is {'' if node.cut_off else 'not '}cut off")
        self._wait(node, token, action)
        return [Tell(node.node_id, action)]

    def give_up(self, token: int) -> None:
        """Forget the request `token`, whose caller has gone."""
        for entries in self._waiting.values():
            entries[:] = [entry for entry in entries if entry[0] != token]

    def down(self) -> list[Effect]:
        """Stop everything, brokers first: they need a controller for their controlled shutdown."""
        if self.going_down:
            return []
        self.going_down = True
        return self._go_down()

    def end_controllers(self) -> list[Effect]:
        """Stop the nodes that still run, without waiting for brokers."""
        return [
            effect
            for node in self.nodes.values()
            if node.state in ALIVE and node.state is not State.STOPPING
            for effect in self._end(node, State.STOPPED)
        ]

    def kill_all(self) -> list[Effect]:
        return [
            effect
            for node in self.nodes.values()
            if node.state in ALIVE
            for effect in self._end(node, State.KILLED)
        ]

    # --- events -------------------------------------------------------------------------------

    def started(self, node_id: int, pid: int) -> None:
        """Record the process ID of a started node."""
        self.nodes[node_id].pid = pid

    def ready(self, node_id: int, facts: Mapping[str, Any]) -> list[Effect]:
        """Record that the node serves; `facts` are its addresses."""
        node = self.nodes[node_id]
        node.ready = True
        node.facts = dict(facts)
        if node.state is State.STARTING:
            node.state = State.RUNNING
        effects = self._answer(node, "ready", None)
        if not self.was_ready and all(other.ready for other in self.nodes.values()):
            self.was_ready = True
            effects.append(AllReady())
        return effects

    def refused(self, node_id: int, error: str) -> None:
        """Record the reason why the node does not start or must stop."""
        self.nodes[node_id].error = clipped(error)

    def network(self, node_id: int, cut_off: bool, error: str | None) -> list[Effect]:
        """Record that the node has cut itself off or reconnected, or that this failed."""
        node = self.nodes[node_id]
        if error is None:
            node.cut_off = cut_off
        return self._answer(node, "cut-off" if cut_off else "reconnect", error)

    def exited(self, node_id: int, code: int) -> list[Effect]:
        """Record the end of the node's process."""
        node = self.nodes[node_id]
        effects: list[Effect] = []
        if node.wanted is not None:
            node.state = node.wanted
        else:
            node.state = State.FAILED
            ending = f"signal {-code}" if code < 0 else f"exit code {code}"
            what = "exited unexpectedly" if node.ready else "did not start"
            effects.append(Say(f"node {node_id} {what}: {node.error or ending}"))
        node.pid = None
        node.ready = node.cut_off = False
        node.exit_code = code
        effects += self._answer(node, "end", None)
        for what in ("ready", *NETWORK_ACTIONS):
            effects += self._answer(node, what, node.error or f"node {node_id} is {node.state}")
        if self.going_down:
            effects += self._go_down()
        return effects

    # --- parts --------------------------------------------------------------------------------

    def _launch(self, node: NodeProcess) -> list[Effect]:
        node.state = State.STARTING
        node.starts += 1
        node.ready = False
        node.exit_code = node.error = node.wanted = node.pid = None
        return [Launch(node.node_id)]

    def _end(self, node: NodeProcess, wanted: State) -> list[Effect]:
        """Stop or kill a process; a later stop never cancels a kill."""
        if node.wanted is not State.KILLED:
            node.wanted = wanted
        node.state = State.STOPPING
        if node.wanted is State.KILLED:
            return [Send(node.node_id, signal.SIGKILL)]
        # A paused process handles SIGTERM only after SIGCONT.
        return [Send(node.node_id, signal.SIGTERM), Send(node.node_id, signal.SIGCONT)]

    def _go_down(self) -> list[Effect]:
        alive = [node for node in self.nodes.values() if node.state in ALIVE]
        if not alive:
            return [AllEnded()]
        plain_brokers = [node for node in alive if not node.is_controller]
        effects: list[Effect] = []
        for node in plain_brokers or alive:
            if node.state is not State.STOPPING:
                effects += self._end(node, State.STOPPED)
        return effects

    def _wait(self, node: NodeProcess, token: int, what: str) -> None:
        self._waiting.setdefault(node.node_id, []).append((token, what))

    def _answer(self, node: NodeProcess, what: str, error: str | None) -> list[Effect]:
        entries = self._waiting.get(node.node_id, [])
        self._waiting[node.node_id] = [entry for entry in entries if entry[1] != what]
        return [Answer(token, error) for token, kind in entries if kind == what]
