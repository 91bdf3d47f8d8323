"""Shell: The supervisor process of a local cluster: start, control requests, shutdown.

It owns the directory (a lock), the fork server (two pipes) and the control socket, and carries out
the effects that `states` returns. It has no event loop and imports little: it waits in one
`select`. If it dies, the fork server reads the end of its pipe, stops the nodes and ends. The lock
is shared with the fork server, so the directory stays locked until all of them have ended.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from kraftbox.launcher import frames
from kraftbox.launcher.callers import Caller, Callers, RequestRefused
from kraftbox.launcher.journal import Journal
from kraftbox.launcher.peers import command_of
from kraftbox.launcher.place import ClusterPlace
from kraftbox.launcher.plan import NodePlan
from kraftbox.launcher.states import (
    AllEnded,
    AllReady,
    Answer,
    Effect,
    Launch,
    NodeProcess,
    NodeProcesses,
    Refused,
    Say,
    Send,
    State,
    Tell,
)
from runtime.errors import StartupRefused

BROKERS_END_MS_MAX = 12_000
"""How long controllers wait for the brokers' controlled shutdown."""
ALL_END_MS_MAX = 35_000


class ForkServerProcess:
    """Client of the fork server; a process with threads may use it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Wrap `process`, which `early.start_fork_server` returned."""
        assert process.stdin is not None
        self._process = process
        self._commands_fd = process.stdin.fileno()
        # Non-blocking: both processes may be writing at once, and would block each other
        # indefinitely.
        os.set_blocking(self._commands_fd, False)
        self._unsent = bytearray()
        self._decoder = frames.Decoder()

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        """Return the descriptor that is readable when there are events."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def start(self, plan: NodePlan, cluster_id: str) -> None:
        """Send the command to start a node.

        Raises StartupRefused for settings that exceed a frame.
        """
        try:
            self._tell(
                {
                    "do": "start",
                    "id": plan.node.node_id,
                    "cluster_id": cluster_id,
                    "properties": dict(plan.properties),
                    "log": plan.log,
                    "namespace": plan.namespace,
                    # Brokers need a controller for their controlled shutdown.
                    "last": not plan.node.is_broker,
                }
            )
        except frames.FrameError as error:
            raise StartupRefused(f"node {plan.node.node_id}: invalid settings: {error}") from None

    def signal(self, node_id: int, number: int) -> None:
        self._tell({"do": "signal", "id": node_id, "number": int(number)})

    def tell(self, node_id: int, action: str) -> None:
        self._tell({"do": "tell", "id": node_id, "action": action})

    def read(self) -> list[dict[str, Any]] | None:
        """Wait for events and return them; None if the fork server has ended. Raises FrameError."""
        data = os.read(self.fileno(), 1 << 16)
        return self._decoder.feed(data) if data else None

    def end(self) -> int:
        """End the fork server and all its nodes; return its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    @property
    def unsent_to(self) -> int | None:
        """The descriptor that pending commands wait for, or None.

        Call `send` when it is writable.
        """
        return self._commands_fd if self._unsent else None

    def send(self) -> None:
        """Send pending commands as far as the pipe accepts them."""
        try:
            while self._unsent:
                del self._unsent[: os.write(self._commands_fd, self._unsent)]
        except BlockingIOError:
            return
        except BrokenPipeError:
            # `read` reports that the fork server has ended.
            self._unsent.clear()

    def _tell(self, command: frames.Message) -> None:
        self._unsent += frames.encode(command)
        self.send()


class Supervisor:
    """The supervisor of one cluster; `run` returns when the cluster is down."""

    def __init__(
        self,
        place: ClusterPlace,
        fork_server: ForkServerProcess,
        plans: Sequence[NodePlan],
        cluster_id: str,
        *,
        on_ready: Callable[[NodeProcesses], None],
        say: Callable[[str], None],
        lifeline: int | None = None,
    ) -> None:
        """Initialize.

        The cluster goes down when the other end of the descriptor `lifeline` closes.
        """
        self._place = place
        self._fork_server = fork_server
        self._plans = {plan.node.node_id: plan for plan in plans}
        self._cluster_id = cluster_id
        self._on_ready = on_ready
        self._say = say
        self._lifeline = lifeline
        self._journal = Journal(str(place.root))
        self.cluster = NodeProcesses(
            NodeProcess(m.node_id, is_broker=m.is_broker, is_controller=m.is_controller)
            for m in (plan.node for plan in plans)
        )
        self._selector = selectors.DefaultSelector()
        self._callers: Callers | None = None
        self._sending_to: int | None = None
        self._tokens = 0
        self._done = False
        self._failed = False
        self._down_since: float | None = None
        self._down_wanted = False
        self._pressed = 0

    def run(self) -> int:
        """Run the cluster until it is down; return the exit code.

        0 follows `down` or a signal, 1 a cluster that did not start or was lost. Raises
        StartupRefused if the control socket cannot be created.
        """
        wake_r, wake_w = os.pipe()
        for fd in (wake_r, wake_w):
            os.set_blocking(fd, False)
        before = {n: signal.signal(n, self._on_signal) for n in (signal.SIGINT, signal.SIGTERM)}
        old_wakeup = signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        listener = self._listen()
        try:
            self._selector.register(wake_r, selectors.EVENT_READ, lambda: os.read(wake_r, 4096))
            self._callers = Callers(self._selector, listener, self._on_request, self._lost)
            self._selector.register(self._fork_server, selectors.EVENT_READ, self._read_events)
            if self._lifeline is not None:
                self._selector.register(self._lifeline, selectors.EVENT_READ, self._read_lifeline)
            self._journal.note("cluster-starting", nodes=list(self._plans))
            self._do(self.cluster.start_all())
            while not self._done:
                self._watch_commands()
                for key, _ in self._selector.select(self._timeout_s()):
                    key.data()
                if self._down_wanted:
                    self._down()
                self._press_on()
        finally:
            listener.close()
            with contextlib.suppress(OSError):
                self._place.control.unlink()
            self._fork_server.end()
            if self._callers is not None:
                self._callers.close()
            self._selector.close()
            self._journal.note("cluster-stopped")
            signal.set_wakeup_fd(old_wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(wake_r)
            os.close(wake_w)
        return 1 if self._failed else 0

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        try:
            # The directory is locked, so an existing socket is stale.
            self._place.control.unlink(missing_ok=True)
            with self._place.control_address() as address:
                listener.bind(address)
            self._place.control.chmod(0o600)
            listener.listen(16)
        except OSError as error:
            listener.close()
            raise StartupRefused(f"cannot listen on {self._place.control}: {error}") from None
        return listener

    def _watch_commands(self) -> None:
        """Watch the fork server's pipe for writability while commands are pending."""
        wanted = self._fork_server.unsent_to
        if wanted == self._sending_to:
            return
        if self._sending_to is not None:
            self._selector.unregister(self._sending_to)
        if wanted is not None:
            self._selector.register(wanted, selectors.EVENT_WRITE, self._fork_server.send)
        self._sending_to = wanted

    # --- effects and events -----------------------------------------------------------------------

    def _do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Launch):
                plan = self._plans[effect.node_id]
                self._fork_server.start(plan, self._cluster_id)
            elif isinstance(effect, Send):
                self._fork_server.signal(effect.node_id, effect.number)
            elif isinstance(effect, Tell):
                self._fork_server.tell(effect.node_id, effect.action)
            elif isinstance(effect, Answer):
                self._answer(effect.token, effect.error)
            elif isinstance(effect, Say):
                self._tell(effect.text)
            elif isinstance(effect, AllReady):
                self._journal.note("cluster-ready")
                self._on_ready(self.cluster)
            elif isinstance(effect, AllEnded):
                self._done = True

    def _read_events(self) -> None:
        try:
            events = self._fork_server.read()
            ending = "exited"
        except frames.FrameError as error:
            events, ending = None, f"sent an unreadable frame ({error}) and is stopped"
        if events is None:
            self._tell(f"the fork server {ending}; its nodes have ended too")
            self._failed = self._done = True
            return
        for event in events:
            self._on_event(event)

    def _tell(self, text: str) -> None:
        """Log a line. The terminal or pipe may be gone; the cluster runs on."""
        with contextlib.suppress(OSError):
            self._say(text)

    def _on_event(self, event: dict[str, Any]) -> None:
        cluster = self.cluster
        kind = event.pop("event")
        if kind == "started":
            cluster.started(event["id"], event["pid"])
        elif kind == "ready":
            self._journal.note("ready", node=event["id"])
            self._do(cluster.ready(event.pop("id"), event))
        elif kind == "refused":
            cluster.refused(event["id"], event["error"])
        elif kind == "network":
            if event["error"] is not None:
                self._journal.note("network-failed", node=event["id"], error=event["error"])
            self._do(cluster.network(event["id"], event["cut_off"], event["error"]))
        elif kind == "exited":
            self._do(cluster.exited(event["id"], event["code"]))
            node = cluster.nodes[event["id"]]
            expected = node.state is not State.FAILED
            self._journal.note(
                "exited", node=event["id"], code=event["code"], expected=expected, error=node.error
            )
            alone = len(cluster.nodes) == 1
            if node.state is State.FAILED and (alone or not cluster.was_ready):
                # If not all nodes start, or the only node has failed, stop the whole cluster.
                self._failed = True
                self._down()

    # --- the end ------------------------------------------------------------------------------

    def _on_signal(self, _number: int, _frame: object) -> None:
        # A signal handler may run between any two steps, so it only sets a flag.
        self._down_wanted = True

    def _read_lifeline(self) -> None:
        assert self._lifeline is not None
        if not os.read(self._lifeline, 4096):
            self._selector.unregister(self._lifeline)
            self._down_wanted = True

    def _down(self, by: str | None = None) -> None:
        if self._down_since is None:
            self._down_since = time.monotonic()
            self._journal.note("cluster-stopping", by=by)
        self._do(self.cluster.down())

    def _timeout_s(self) -> float | None:
        if self._down_since is None:
            return None
        steps = (BROKERS_END_MS_MAX, ALL_END_MS_MAX, ALL_END_MS_MAX)
        due = self._down_since + steps[self._pressed] / 1000
        return max(0.01, due - time.monotonic())

    def _press_on(self) -> None:
        """Escalate a shutdown that takes too long: stop the controllers, then kill all nodes."""
        if self._down_since is None or self._done:
            return
        over_ms = (time.monotonic() - self._down_since) * 1000
        if self._pressed == 0 and over_ms >= BROKERS_END_MS_MAX:
            self._pressed = 1
            self._do(self.cluster.end_controllers())
        if self._pressed == 1 and over_ms >= ALL_END_MS_MAX:
            self._pressed = 2
            self._tell("killing nodes that did not stop in time")
            self._do(self.cluster.kill_all())

    # --- requests ---------------------------------------------------------------------------------

    def _on_request(self, caller: Caller, request: dict[str, Any]) -> frames.Message | None:
        """Carry out a request; return its answer, or None if the answer follows later."""
        what = request.get("do")
        if what == "status":
            return self.describe()
        if what == "down":
            # The end of the connection is the answer, when all nodes have ended.
            self._down(command_of(caller.connection))
            return None
        if what != "node":
            raise RequestRefused(f"unknown request {what!r:.80}; allowed: status, node, down")
        self._tokens += 1
        token = self._tokens
        try:
            effects = self.cluster.request(request.get("action"), request.get("id"), token)
        except Refused as error:
            raise RequestRefused(str(error)) from None
        by = command_of(caller.connection)
        self._journal.note(str(request["action"]), node=request["id"], by=by)
        caller.tokens.add(token)
        self._do(effects)
        return None

    def _answer(self, token: int, error: str | None) -> None:
        for caller in self._callers or ():
            if token in caller.tokens:
                caller.tokens.discard(token)
                assert self._callers is not None
                self._callers.reply(caller, {} if error is None else {"error": error})

    def _lost(self, caller: Caller) -> None:
        for token in caller.tokens:
            self.cluster.give_up(token)

    def describe(self) -> dict[str, Any]:
        """Return the answer to `status`: the state of the cluster and its nodes."""
        nodes = []
        for node in self.cluster.nodes.values():
            plan = self._plans[node.node_id]
            nodes.append(
                {
                    "id": node.node_id,
                    "roles": plan.node.roles,
                    "rack": plan.properties.get("broker.rack"),
                    "state": str(node.state),
                    "ready": node.ready,
                    "cutOff": node.cut_off,
                    "pid": node.pid,
                    "exitCode": node.exit_code,
                    "error": node.error,
                    "starts": node.starts,
                    "listeners": plan.properties["listeners"],
                    "addresses": node.facts.get("addresses", []) if node.ready else [],
                    "http": node.facts.get("http") if node.ready else None,
                    "log": plan.log,
                }
            )
        return {
            "dir": str(self._place.root),
            "clusterId": self._cluster_id,
            "pid": os.getpid(),
            "forkServerPid": self._fork_server.pid,
            "nodes": nodes,
        }
