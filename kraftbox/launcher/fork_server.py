"""Shell: The process from which a cluster's nodes are forked.

It has imported all modules of a node, and has neither an event loop nor threads, so it can fork
safely. The supervisor never forks, so it may have threads. Objects that exist before a fork are
frozen (`gc.freeze`), so that the nodes keep sharing their memory. If fork is unsafe (`--spawn`),
nodes start in fresh interpreters.

Commands arrive as frames on standard input; events are written as frames to standard output:

    {"do": "start", "id", "cluster_id",                    {"event": "hello", "pid"}
     "properties", "log", "last"}                          {"event": "started", "id", "pid"}
    {"do": "signal", "id", "number"}                       {"event": "ready", "id", ...}
    {"do": "tell", "id", "action"}                         {"event": "refused", "id", "error"}
                                                           {"event": "network", "id", "cut_off",
                                                            "error"}
                                                           {"event": "exited", "id", "code"}

At the end of standard input it stops all nodes and ends. Nodes marked `last` stop after the others,
which may need them in order to shut down. Each node holds one end of a socket pair: it reports
through that end, and stops when the other end is closed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field
from typing import Any, NoReturn

from kraftbox.launcher import frames
from kraftbox.launcher.interpreter import own_command

END_MS_MAX = 40_000
OTHERS_END_MS_MAX = 12_000
"""How long the nodes marked `last` wait for the others."""
REPORT_FD = 3
"""The descriptor of a spawned node's end of the socket pair."""


def import_controllers() -> None:
    """Import all modules that every controller uses."""
    _import("kraftbox.launcher.node_process", "controller.assembly")


def import_everything() -> None:
    """Import all modules that every node uses."""
    import_controllers()
    _import("broker.assembly")


def _import(*names: str) -> None:
    import importlib

    for name in names:
        importlib.import_module(name)


def checked_report(message: dict[str, Any]) -> frames.Message | None:
    """Return the report to pass to the supervisor, or None if the node's message is invalid."""
    event = message.get("event")
    if event == "ready":
        addresses, http = message.get("addresses"), message.get("http")
        texts = addresses if isinstance(addresses, list) else [None]
        if all(isinstance(one, str) for one in texts) and isinstance(http, str | None):
            return {"event": event, "addresses": texts, "http": http}
    error = message.get("error")
    if event == "refused" and isinstance(error, str):
        return {"event": event, "error": frames.clipped(error)}
    cut_off = message.get("cut_off")
    if event == "network" and isinstance(cut_off, bool) and isinstance(error, str | None):
        shown = None if error is None else frames.clipped(error)
        return {"event": event, "cut_off": cut_off, "error": shown}
    return None


@dataclass
class Child:
    """A node's process. `report` is the fork server's end of the socket pair."""

    node_id: int
    pid: int
    report: socket.socket
    last: bool
    told_to_end: bool = False
    decoder: frames.Decoder = field(default_factory=frames.Decoder)


class ForkServer:
    """Commands in, processes out. `run` returns once the commands and all nodes have ended."""

    def __init__(self, commands_fd: int, events_fd: int, *, spawn: bool) -> None:
        self._commands_fd = commands_fd
        self._events_fd = events_fd
        self._spawn = spawn
        self._children: dict[int, Child] = {}
        self._decoder = frames.Decoder()
        self._selector = selectors.DefaultSelector()
        self._wake_r, self._wake_w = os.pipe()
        self._ending_since: float | None = None
        self._end_wanted = False
        self._lacks_brokers = not spawn

    def run(self) -> None:
        """Serve commands until they end, then stop the nodes.

        The caller has called `import_controllers`, unless nodes are spawned. Modules of brokers are
        imported here, while the controllers elect a leader.
        """
        for fd in (self._wake_r, self._wake_w):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
        self._selector.register(self._wake_r, selectors.EVENT_READ, self._reap)
        self._selector.register(self._commands_fd, selectors.EVENT_READ, self._read_commands)
        self._tell({"event": "hello", "pid": os.getpid()})
        while self._ending_since is None or self._children:
            ready = self._selector.select(0 if self._lacks_brokers else self._timeout_s())
            for key, _ in ready:
                key.data()
            if not ready:
                self._import_brokers()
            if self._end_wanted:
                self._end()

    def _import_brokers(self) -> None:
        if self._lacks_brokers:
            self._lacks_brokers = False
            import_everything()

    def _on_term(self, _number: int, _frame: object) -> None:
        # A signal handler may run between any two steps, so it only sets a flag.
        self._end_wanted = True

    # --- commands -----------------------------------------------------------------------------

    def _read_commands(self) -> None:
        data = os.read(self._commands_fd, 1 << 16)
        if not data:
            self._selector.unregister(self._commands_fd)
            self._end_wanted = True
            return
        for command in self._decoder.feed(data):
            try:
                self._carry_out(command)
            except Exception as error:  # noqa: BLE001 - a command fails alone: other nodes run on
                traceback.print_exc()
                if command.get("do") == "start":
                    self._not_started(command.get("id"), repr(error))

    def _carry_out(self, command: dict[str, Any]) -> None:
        if command["do"] == "start":
            self._start(command)
        elif command["do"] == "tell":
            self._pass_on(command["id"], command["action"])
        else:
            self._signal(command["id"], command["number"])

    def _signal(self, node_id: int, number: int) -> None:
        # A child keeps its process ID until it is waited for, so the signal cannot hit another
        # process.
        child = self._children.get(node_id)
        if child is not None:
            os.kill(child.pid, number)

    def _pass_on(self, node_id: int, action: str) -> None:
        child = self._children.get(node_id)
        # The `exited` event reports a node that has just ended.
        if child is None:
            return
        try:
            child.report.send(frames.encode({"do": action}))
        except BlockingIOError:
            error = "the node has not read its earlier commands"
            cut_off = action == "cut-off"
            self._tell({"event": "network", "id": node_id, "cut_off": cut_off, "error": error})
        except OSError:
            pass  # the node is ending

    def _start(self, command: dict[str, Any]) -> None:
        node_id = command["id"]
        if "broker" in command["properties"]["process.roles"]:
            self._import_brokers()
        ours, theirs = socket.socketpair()
        try:
            log_fd = os.open(command["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                if self._spawn:
                    pid = self._spawned(log_fd, theirs)
                    ours.sendall(frames.encode(command))
                else:
                    pid = self._forked(command, log_fd, ours, theirs)
            finally:
                os.close(log_fd)
        except OSError as error:
            ours.close()
            self._not_started(node_id, str(error))
            return
        finally:
            theirs.close()
        child = Child(node_id, pid, ours, last=command["last"])
        ours.setblocking(False)
        self._children[node_id] = child
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._read_report(child))
        self._tell({"event": "started", "id": node_id, "pid": pid})

    def _not_started(self, node_id: Any, error: str) -> None:
        self._tell({"event": "refused", "id": node_id, "error": frames.clipped(error)})
        self._tell({"event": "exited", "id": node_id, "code": 1})

    def _forked(
        self, command: dict[str, Any], log_fd: int, ours: socket.socket, theirs: socket.socket
    ) -> int:
        # No collection before the freeze: imports leave only some hundred objects in cycles, and a
        # collection takes longer than a fork.
        gc.freeze()
        pid = os.fork()
        if pid:
            return pid
        try:
            self._leave_behind(ours)
            os.dup2(log_fd, 1)
            os.dup2(log_fd, 2)
            os.close(log_fd)
            _become_node(command, theirs)
        finally:
            os._exit(1)

    def _leave_behind(self, ours: socket.socket) -> None:
        """Close, in a child, the resources of the fork server."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        ours.close()
        for child in self._children.values():
            child.report.close()
        for fd in (self._wake_r, self._wake_w, self._events_fd):
            os.close(fd)
        # Standard input was the command pipe. The node must not hold the lock on the directory
        # either.
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, self._commands_fd)
        os.close(nothing)
        _close_inherited_lock()

    def _spawned(self, log_fd: int, theirs: socket.socket) -> int:
        command = own_command("_node")
        actions: list[tuple[Any, ...]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, log_fd, 1),
            (os.POSIX_SPAWN_DUP2, log_fd, 2),
            (os.POSIX_SPAWN_DUP2, theirs.fileno(), REPORT_FD),
        ]
        if theirs.fileno() == REPORT_FD:
            os.set_inheritable(REPORT_FD, True)
        return os.posix_spawn(
            command[0], command, os.environ, file_actions=actions, setsigdef=[signal.SIGINT]
        )

    # --- events -------------------------------------------------------------------------------

    def _read_report(self, child: Child) -> None:
        if child.report.fileno() < 0:
            return  # reaped in the same loop iteration
        try:
            data = child.report.recv(1 << 16)
            messages = child.decoder.feed(data)
        except (OSError, frames.FrameError):
            data, messages = b"", []
        if not data:
            # The node is ending; SIGCHLD reports when it has ended.
            self._selector.unregister(child.report)
            return
        for message in messages:
            report = checked_report(message)
            if report is not None:
                self._tell({**report, "id": child.node_id})
            else:
                sys.stderr.write(f"node {child.node_id}: unknown report {message!r:.200}\n")

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_r, 4096):
                pass
        for child in list(self._children.values()):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if not pid:
                continue
            del self._children[child.node_id]
            # The node's last report may still be unread.
            if child.report in self._selector.get_map():
                self._read_report(child)
            with contextlib.suppress(KeyError):
                self._selector.unregister(child.report)
            child.report.close()
            code = os.waitstatus_to_exitcode(status)
            self._tell({"event": "exited", "id": child.node_id, "code": code})

    def _tell(self, event: frames.Message) -> None:
        try:
            data = frames.encode(event)
            while data:
                data = data[os.write(self._events_fd, data) :]
        except BrokenPipeError:
            self._end_wanted = True
        except frames.FrameError:
            traceback.print_exc()

    # --- the end ------------------------------------------------------------------------------

    def _end(self) -> None:
        """Signal the nodes to stop, each once. `run` calls this in every iteration of the end."""
        now = time.monotonic()
        if self._ending_since is None:
            self._ending_since = now
        over_ms = (now - self._ending_since) * 1000
        others = any(not child.last for child in self._children.values())
        for child in self._children.values():
            if over_ms > END_MS_MAX:
                os.kill(child.pid, signal.SIGKILL)
            elif not child.told_to_end and (
                not child.last or not others or over_ms > OTHERS_END_MS_MAX
            ):
                child.told_to_end = True
                os.kill(child.pid, signal.SIGTERM)
                os.kill(child.pid, signal.SIGCONT)

    def _timeout_s(self) -> float | None:
        if self._ending_since is None:
            return None
        over_ms = (time.monotonic() - self._ending_since) * 1000
        due_ms = OTHERS_END_MS_MAX if over_ms <= OTHERS_END_MS_MAX else END_MS_MAX
        return max(0.0, due_ms - over_ms) / 1000 + 0.01


_lock_fd: int | None = None


def _close_inherited_lock() -> None:
    if _lock_fd is not None:
        os.close(_lock_fd)


def _become_node(command: dict[str, Any], report: socket.socket) -> NoReturn:
    """Run the node in a child, then exit without the parent's pending cleanup."""
    import random

    from kraftbox.launcher import node_process

    gc.enable()
    random.seed()
    code = 1
    try:
        code = node_process.run(command, report)
    except BaseException:  # noqa: BLE001 - whatever it is, it must not unwind into the fork server
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def main(arguments: list[str]) -> int:
    """Run `_fork-server [--spawn] [--lock FD]`, which the supervisor starts."""
    global _lock_fd
    spawn = "--spawn" in arguments
    if "--lock" in arguments:
        _lock_fd = int(arguments[arguments.index("--lock") + 1])
        os.set_inheritable(_lock_fd, False)
    # `_forked` freezes the existing objects before each fork.
    gc.disable()
    if not spawn:
        import_controllers()
    events_fd = os.dup(1)
    # Redirect standard output, so that no print can corrupt the frames.
    os.dup2(2, 1)
    ForkServer(0, events_fd, spawn=spawn).run()
    return 0
