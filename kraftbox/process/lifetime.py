"""A node as a process: event loop, signals, shutdown.

`kraftbox server`, the image and the nodes that `kraftbox up` forks share `run`. It builds the node
from a configuration and real files, and stops it on SIGINT and SIGTERM. The exit code is 0 after a
clean stop and 1 after a fatal failure.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from kraftbox.node import Node, build_node
from kraftbox.process.loop import CuttableLoop
from kraftbox.process.properties import read_properties
from runtime import descriptors, log
from runtime.clock import SystemClock
from runtime.collector import Collector
from runtime.config import NodeConfig, keys_kraftbox
from runtime.config.env import merge
from runtime.printable import escape
from runtime.tasks import Supervisor
from storage.files import Files, RealFiles, SlowFiles

_log = log.get_logger("kraftbox.process.lifetime")

STOP_MS_MAX = 30_000
ORPHAN_WAIT_MS = 2_000
"""How long a controller without its launcher keeps serving, for the brokers' controlled
shutdown.
"""


class Lifeline(NamedTuple):
    """The connection between a node and the process that started it.

    When `fd` reaches its end, that process has gone and the node stops. Data that arrives before is
    passed to `obey`. The node reports through `ready` and `failed`.
    """

    fd: int
    obey: Callable[[CuttableLoop, bytes], None]
    ready: Callable[[Node], None]
    failed: Callable[[str], None]


def run_file(path: str | None, overrides: Mapping[str, str]) -> int:
    """Run `kraftbox server` with properties from a file, the environment and overrides.

    Raises ConfigError and StartupRefused.
    """
    mounted = None if path is None else read_properties(path)
    props = {**merge(defaults={}, mounted=mounted, environ=os.environ), **overrides}
    config = NodeConfig.parse(props, hostname=host_name(props))
    configure_log(config)
    return run(config)


def host_name(props: Mapping[str, str]) -> str:
    """Return the host name to advertise; it is looked up only if a listener has no host."""
    source = props.get("advertised.listeners") or props.get("listeners", "://:")
    return socket.getfqdn() if "://:" in source else "localhost"


def configure_log(config: NodeConfig, write: log.Write | None = None) -> None:
    log.configure(
        format="json" if config[keys_kraftbox.KRAFTBOX_LOG_FORMAT] == "json" else "console",
        level=config[keys_kraftbox.KRAFTBOX_LOG_LEVEL],
        write=write,
    )


def run(config: NodeConfig, lifeline: Lifeline | None = None) -> int:
    """Run a node until a signal or a fatal failure; return the exit code.

    Raises StartupRefused if the node cannot start for a reason that the operator can remove.
    """
    # This is the only source of randomness of the cores.
    rng = random.Random(random.SystemRandom().getrandbits(128))
    descriptors.raise_limit()
    files = RealFiles(config[keys_kraftbox.KRAFTBOX_FILES_OPEN_MAX] or None)
    try:
        with asyncio.Runner(loop_factory=CuttableLoop) as runner:
            return runner.run(_serve(config, rng, files, lifeline))
    finally:
        files.close()
        log.flush()


async def _serve(
    config: NodeConfig, rng: random.Random, files: Files, lifeline: Lifeline | None
) -> int:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CuttableLoop), "made by `run`"
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if lifeline is not None:
        wait_ms = 0 if config.is_broker else ORPHAN_WAIT_MS
        loop.add_reader(lifeline.fd, _read_lifeline, loop, lifeline, stop, wait_ms)
    for warning in config.warnings:
        _log.warning(warning)
    node = build_node(config, clock=SystemClock(), rng=rng, files=files)
    plant_faults(loop, config, node.files)
    loop.set_exception_handler(partial(_callback_failed, node.supervisor))
    collector = Collector()
    collector.start()
    looking = asyncio.ensure_future(collector.run())
    starting = asyncio.ensure_future(_start(node, lifeline))
    ending = asyncio.ensure_future(_wait(stop))
    node.failed.add_done_callback(lambda _failed: stop.set())
    try:
        await asyncio.wait([starting, ending], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            collector.settle()
        await ending
    finally:
        tasks = (starting, ending, looking)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        await _stop(node)
        collector.stop()
    if not node.failed.done():
        return 0
    name, error = node.failed.result()
    reason = f"the node stopped after an error: {name}: {error!r}"
    sys.stderr.write(f"kraftbox: {escape(reason)}\n")
    if lifeline is not None:
        lifeline.failed(reason)
    return 1


def _callback_failed(
    supervisor: Supervisor, loop: asyncio.AbstractEventLoop, context: dict[str, Any]
) -> None:
    """Count and log an exception from a timer, a callback or a protocol, which no task awaits."""
    error = context.get("exception")
    if isinstance(error, Exception):
        supervisor.survive("callback", error, what=str(context.get("message")))
    else:
        loop.default_exception_handler(context)


def _read_lifeline(
    loop: CuttableLoop, lifeline: Lifeline, stop: asyncio.Event, wait_ms: int
) -> None:
    data = os.read(lifeline.fd, 1 << 16)
    if data:
        lifeline.obey(loop, data)
        return
    loop.remove_reader(lifeline.fd)
    loop.call_later(wait_ms / 1000, stop.set)


def plant_faults(loop: asyncio.AbstractEventLoop, config: NodeConfig, files: Files) -> None:
    """Install signal handlers that cause the configured faults."""
    stall_ms = config[keys_kraftbox.KRAFTBOX_FAULT_STALL_MS]
    if stall_ms:
        loop.add_signal_handler(signal.SIGUSR1, time.sleep, stall_ms / 1000)
    if isinstance(files, SlowFiles) and config[keys_kraftbox.KRAFTBOX_FAULT_FILES_ON_SIGNAL]:
        disk = files

        def toggle() -> None:
            disk.slow = not disk.slow

        loop.add_signal_handler(signal.SIGUSR2, toggle)


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _start(node: Node, lifeline: Lifeline | None) -> None:
    await node.start()
    if lifeline is not None:
        lifeline.ready(node)


async def _stop(node: Node) -> None:
    try:
        async with asyncio.timeout(STOP_MS_MAX / 1000):
            await node.stop()
    except TimeoutError:
        _log.error("The node did not stop in time and is ended", after_ms=STOP_MS_MAX)
