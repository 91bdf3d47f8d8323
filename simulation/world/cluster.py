"""Simulated machines that run the node's own code: boot, power cut, kill, stop, boot again.

A machine has a disk that outlives it. One boot is a `NodeLife`: the configuration is parsed, the
directories are formatted unless they are, and `kraftbox.node.build_node` is started, all on the
machine's host and in the life's context. The end of a life determines the state that the next one
finds:

* power cut: flushed data, and with `torn` perhaps a part of the unflushed data;
* kill: the process is gone, but the operating system keeps its page cache; nothing written is lost;
* stop: as a kill, after a controlled shutdown of the node.

The caller waits for `NodeLife.ready` or `NodeLife.over`. To end a life at its n-th file operation,
put a `DiskTrouble` with `then` into `Machine.disk_troubles`.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import posixpath
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from kraftbox.node import Node, build_node
from metalog.format import FormatRequest, format_directories
from runtime.clock import LoopClock
from runtime.config import NodeConfig
from simulation.world.disks import DiskTrouble
from simulation.world.invariants import Violation
from simulation.world.life import CURRENT_LIFE, Life, PowerCut
from simulation.world.links import Trouble
from simulation.world.loop import VirtualLoop
from simulation.world.network import CURRENT_HOST
from simulation.world.trace import Trace
from storage.files import LossyFiles, MemoryFiles
from storage.log.directory import read_meta
from storage.objects import Objects, StoreSettings

EPOCH_MS = 1_700_000_000_000
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
CLIENT_PORT = 9092
CONTROLLER_PORT = 9093
HTTP_PORT = 9644


class End(Enum):
    """The way in which a life ended."""

    POWER_CUT = "power cut"
    KILL = "kill"
    STOP = "stop"


@dataclass(frozen=True)
class DiskPace:
    """The duration of awaited disk operations, in virtual milliseconds."""

    flush_ms_min: float = 0.05
    flush_ms_max: float = 5.0
    work_ms_max: float = 1.0


@dataclass(frozen=True)
class Disk:
    """A disk that was removed from a machine, as it was left, with the id of its data directory."""

    content: MemoryFiles
    files: LossyFiles | None
    directory_id: bytes | None


class NodeLife(Life):
    """One boot of a machine. `node` stays readable when it is over, for comparisons."""

    def __init__(self, machine: Machine, number: int) -> None:
        super().__init__(machine.host, number)
        self.machine = machine
        self.operations = 0
        self.node: Node | None = None
        self.end: End | None = None
        loop = machine.cluster.loop
        self.ready: asyncio.Future[None] = loop.create_future()
        self.over: asyncio.Future[End] = loop.create_future()


class MachineClock(LoopClock):
    """The clocks of one machine. It counts reads of the wall clock, which may run at
    another speed."""

    __slots__ = ("_speed", "_virtual", "jumped", "reads")

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop, EPOCH_MS)
        self._virtual = loop
        self.reads = 0
        self.jumped = False
        """True once the wall clock has jumped or run at another speed."""
        self._speed = 1000.0

    def now_ms(self) -> int:
        self.reads += 1
        return self._epoch_ms + int(self._virtual.now_s * self._speed)

    def jump(self, by_ms: int) -> None:
        """Let the wall clock jump."""
        self.jumped = True
        super().jump(by_ms)

    def drift(self, rate: float) -> None:
        """Let the clock gain `rate` seconds per second from now on; the time gained so far
        stays."""
        self.jumped = True
        before = int(self._virtual.now_s * self._speed)
        self._speed = 1000.0 * (1 + rate)
        self._epoch_ms += before - int(self._virtual.now_s * self._speed)

    def monotonic_ms(self) -> float:
        return self._virtual.now_s * 1000.0


class Machine:
    """A host, its disk, its node's configuration. `host` is its name, if not the node's own."""

    def __init__(
        self, cluster: SimCluster, node_id: int, settings: Mapping[str, str], host: str = ""
    ) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.host = host or f"node-{node_id}"
        self.settings = dict(settings)
        self.clock = MachineClock(cluster.loop)
        self.disk = self._empty_disk()
        self.files: LossyFiles | None = None
        self.life: NodeLife | None = None
        self.boots = 0
        self.directory_id: bytes | None = None
        """The id of the data directory, once a boot has formatted it."""
        self.disk_troubles: list[DiskTrouble] = []
        """The faults of its disk at present."""
        self.lost_metadata = False
        """True if its disk has not kept all of the metadata log."""
        self._dark: Trouble | None = None
        """Set while the machine has no power: data sent to it vanishes."""

    def _empty_disk(self) -> MemoryFiles:
        disk = MemoryFiles(self.clock.now_ms)
        disk.mkdirs("/data")
        # Code outside the machine reads the original data.
        disk.shows_rot = lambda: CURRENT_LIFE.get() is self.life
        return disk

    # --- boot ---------------------------------------------------------------------------------

    def boot(self) -> NodeLife:
        """Switch the machine on (or start the process again) and return at once."""
        assert self.life is None or not self.life.alive, f"{self.host} runs already"
        self.boots += 1
        life = self.life = NodeLife(self, self.boots)
        cluster = self.cluster
        if self._dark is not None:
            cluster.network.fill(self._dark)
            self._dark = None
        cluster.trace.add(f"{life} boots")
        if self.files is None:
            self.files = self._mount()
        self.files.on_op = lambda kind, path: self._operation(life, kind, path)
        self.files.on_read = lambda path: self._reading(life, path)
        self.files.on_data = lambda path, at, data: self._read(life, path, at, data)
        self.files.on_write = lambda path, at, data: cluster.trace.written(life, path, at, data)
        context = contextvars.copy_context()
        context.run(CURRENT_HOST.set, self.host)
        context.run(CURRENT_LIFE.set, life)
        task = cluster.loop.create_task(self._start(life), name=f"boot {life}", context=context)
        task.add_done_callback(lambda done: self._started(life, done))
        return life

    def _mount(self) -> LossyFiles:
        rng = random.Random(f"{self.cluster.seed}/{self.host}/disk/{self.boots}")
        pace = self.cluster.disk_pace

        async def flush() -> None:
            await asyncio.sleep(rng.uniform(pace.flush_ms_min, pace.flush_ms_max) / 1000)
            for trouble in list(self.disk_troubles):
                await trouble.flushing()

        async def work() -> None:
            await asyncio.sleep(rng.uniform(0, pace.work_ms_max) / 1000)

        return LossyFiles(self.disk, before_flush=flush, before_work=work, now_ms=self.clock.now_ms)

    async def _start(self, life: NodeLife) -> None:
        assert self.files is not None
        config = NodeConfig.parse(self._properties())
        rng = random.Random(f"{self.cluster.seed}/{self.host}/{life.number}")
        request = FormatRequest.from_node_config(config, CLUSTER_ID)
        request = request._replace(ignore_formatted=True, features=self.cluster.features)
        if config.is_controller and not config.quorum_voters:
            request = request._replace(initial_controllers=self.cluster.initial_controllers)
        format_directories(request, files=self.files, clock=self.clock, rng=rng)
        meta = read_meta(self.files, config.log_dir)
        if meta is None or self.directory_id not in (None, meta.directory_id):
            raise Violation(f"{life}: the directory is another one than before")
        self.directory_id = meta.directory_id
        life.node = build_node(
            config,
            clock=self.clock,
            rng=rng,
            files=self.files,
            open_objects=self.cluster.open_objects,
        )
        await life.node.start()

    def _properties(self) -> dict[str, str]:
        voters = ",".join(
            f"{one.node_id}@{one.host}:{CONTROLLER_PORT}" for one in self.cluster.machines
        )
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "listeners": f"PLAINTEXT://{self.host}:{CLIENT_PORT},"
            f"CONTROLLER://{self.host}:{CONTROLLER_PORT}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "log.dirs": "/data",
            "kraftbox.http.listener": f"{self.host}:{HTTP_PORT}",
            **self.settings,
        }

    def _started(self, life: NodeLife, task: asyncio.Task[None]) -> None:
        if not life.alive or task.cancelled():
            return
        error = task.exception()
        if isinstance(error, PowerCut):
            return
        if error is not None:
            life.ready.set_exception(Violation(f"F: {life} does not start: {error!r}"))
            life.ready.exception()  # mark the exception as retrieved: there may be no waiter
            return
        self.cluster.trace.add(f"{life} is ready after {life.operations} operations")
        life.ready.set_result(None)

    def swap_disk(self, other: Disk | None) -> Disk:
        """Replace the disk while the machine is off, None: by an empty one. Returns: the former
        disk.

        An empty disk is formatted at the next boot, and gets a directory id of its own.
        """
        assert self.life is None or not self.life.alive, f"{self.host} is running"
        before = Disk(self.disk, self.files, self.directory_id)
        if other is None:
            self.disk, self.files, self.directory_id = self._empty_disk(), None, None
        else:
            self.disk, self.files = other.content, other.files
            self.directory_id = other.directory_id
        self.cluster.trace.add(f"{self.host} has another disk: {self.disk_digest()}")
        return before

    # --- pauses -------------------------------------------------------------------------------

    def pause(self, life: NodeLife) -> None:
        """Pause the process as SIGSTOP does; its connections and files stay."""
        self.cluster.trace.add(f"{life} is paused")
        self.cluster.loop.pause_life(life)

    def resume(self, life: NodeLife) -> None:
        """Resume the process as SIGCONT does; no effect if the life has ended in the meantime."""
        if life.alive:
            self.cluster.trace.add(f"{life} goes on")
            self.cluster.loop.resume_life(life)

    # --- death --------------------------------------------------------------------------------

    def _operation(self, life: NodeLife, kind: str, path: str) -> None:
        if not life.alive:
            raise PowerCut(f"{life} is over")
        life.operations += 1
        self.cluster.trace.add(f"{life} {kind} {path}")
        for trouble in self.disk_troubles:
            trouble.strike(kind, path)

    def _reading(self, life: NodeLife, path: str) -> None:
        if CURRENT_LIFE.get() is life:  # reads by code outside the machine are exempt
            for trouble in self.disk_troubles:
                trouble.strike("read", path)

    def _read(self, life: NodeLife, path: str, position: int, data: bytes) -> bytes:
        # Not during the start, either: recovery from wrong data is the subject of another fault.
        if CURRENT_LIFE.get() is life and life.ready.done():
            for trouble in self.disk_troubles:
                data = trouble.read(path, position, data)
        return data

    def end(
        self, life: NodeLife, end: End, *, torn: bool = False, dark: Trouble | None = None
    ) -> None:
        """End a life at this instant, by a power cut or a kill.

        With `dark` its connections are not reset: peers notice when it boots again.
        """
        assert life.alive and self.files is not None
        cluster = self.cluster
        life.end = end
        cluster.loop.end_life(life)
        self._dark = dark
        cluster.network.crash_host(self.host, dark)
        if end is End.POWER_CUT:
            rng = random.Random(f"{cluster.seed}/{self.host}/tear/{life.number}")
            self.files.crash(rng if torn else None)
            self.files = None
        else:
            self.files.release_locks()
        cluster.trace.add(f"{life} ends: {end.value}; disk {self.disk_digest()}")
        life.over.set_result(end)

    async def stop(self, life: NodeLife) -> None:
        """Stop the node cleanly and end the life. Returns when it is over, however it ended."""
        assert life.node is not None
        self.cluster.trace.add(f"{life} is asked to stop")
        context = contextvars.copy_context()
        context.run(CURRENT_HOST.set, self.host)
        context.run(CURRENT_LIFE.set, life)
        task = self.cluster.loop.create_task(life.node.stop(), name=f"stop {life}", context=context)
        await asyncio.wait([task, life.over], return_when=asyncio.FIRST_COMPLETED)
        if not life.over.done():
            task.result()
            self.end(life, End.STOP)

    def disk_digest(self) -> str:
        """Return a digest of names and contents of everything on the disk."""
        digest = hashlib.blake2b(digest_size=8)
        pending = ["/"]
        while pending:
            path = pending.pop()
            if self.disk.isdir(path):
                pending += [posixpath.join(path, name) for name in self.disk.listdir(path)]
                digest.update(f"directory {path}\n".encode())
            else:
                content = self.disk.read(path)
                digest.update(f"file {path} {len(content)}\n".encode() + content)
        return digest.hexdigest()


def no_store(settings: StoreSettings) -> Objects:
    """Raise AssertionError: a world without a store must not open one, which would use a real
    clock."""
    raise AssertionError(f"a simulated node opens {settings.url}")


class SimCluster:
    """The machines of one world. Add all before the first boot: they are each other's voters.

    `features`: levels of formatting, if not this build's defaults. `open_objects`: opens the object
    store for nodes with tiered storage.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        trace: Trace,
        seed: int,
        disk_pace: DiskPace | None = None,
        features: Mapping[str, int] | None = None,
        open_objects: Callable[[StoreSettings], Objects] = no_store,
    ) -> None:
        self.loop = loop
        self.network = loop.network
        self.trace = trace
        self.seed = seed
        self.disk_pace = disk_pace or DiskPace()
        self.features = features or {}
        self.open_objects = open_objects
        self.machines: list[Machine] = []
        self.initial_controllers: str | None = None
        """The voters that the metadata log begins with, for nodes without static ones."""
        self.network.on_send = trace.message
        self.network.on_deliver = trace.delivered

    def add(self, settings: Mapping[str, str]) -> Machine:
        """Add a machine with the next node id, switched off."""
        machine = Machine(self, len(self.machines) + 1, settings)
        self.machines.append(machine)
        return machine

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """The bootstrap addresses for clients."""
        return [(machine.host, CLIENT_PORT) for machine in self.machines]
