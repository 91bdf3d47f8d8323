"""A QuorumNode on given files, for tests that need a real node and log."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

from metalog.loader import MetadataLoader
from metalog.quorum.config import QuorumConfig
from metalog.quorum.core.discovery import Addresses
from metalog.quorum.core.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from metalog.quorum.log import MetadataLogConfig
from metalog.quorum.node import QuorumNode
from runtime.clock import Clock, SystemClock
from runtime.tasks import Supervisor
from storage.files import Files

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
DIRECTORY_ID = b"D" * 16
ENDPOINTS = (("CONTROLLER", VoterEndpoint("localhost", 9093)),)


def sole_voter(node_id: int = 1) -> VoterSet:
    return VoterSet([Voter(ReplicaKey(node_id), ENDPOINTS)])


def make_config(log_dir: str, **changes: Any) -> QuorumConfig:
    """Return a configuration with one static voter, node 1."""
    config = QuorumConfig(
        node=ReplicaKey(1, DIRECTORY_ID),
        cluster_id=CLUSTER_ID,
        log_dir=log_dir,
        voters=sole_voter(),
        addresses=Addresses(ENDPOINTS),
    )
    return config._replace(**changes)


class Commits:
    """A writer that writes nothing, on which a test waits until the loader has applied an
    offset."""

    def __init__(self, loader: MetadataLoader) -> None:
        self._image = loader.log_image
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        loader.register_writer(self)

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
        """Do nothing on a change of leader."""

    def handle_commit(self, epoch: int) -> None:
        while self._waiting and self._waiting[0][0] < self._image.end_offset:
            _, _, future = heapq.heappop(self._waiting)
            if not future.done():
                future.set_result(None)

    async def wait_for(self, offset: int) -> None:
        """Return once the record at `offset` has been replayed and published."""
        if offset < self._image.end_offset:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (offset, next(self._order), future))
        await future


class RunningQuorum:
    """`async with RunningQuorum(files) as q`: a started node with a loader."""

    def __init__(
        self,
        files: Files,
        log_dir: str = "/data",
        *,
        config: QuorumConfig | None = None,
        clock: Clock | None = None,
        limits: MetadataLogConfig | None = None,
    ) -> None:
        self.failures: list[tuple[str, BaseException]] = []
        self.supervisor = Supervisor(lambda name, error: self.failures.append((name, error)))
        config = config or make_config(log_dir)
        if limits is not None:
            config = config._replace(log=limits)
        self.node = QuorumNode(
            config,
            files=files,
            clock=clock or SystemClock(),
            rng=random.Random(7),
            supervisor=self.supervisor,
        )
        self.loader = MetadataLoader(self.node, self.supervisor)
        self.commits = Commits(self.loader)

    async def __aenter__(self) -> RunningQuorum:
        await self.node.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.node.stop()
        await self.supervisor.close()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Run loop iterations until a condition holds."""
        for _ in range(100_000):
            if holds():
                return
            await asyncio.sleep(0)
        raise AssertionError("condition not met in time")

    async def replayed_or_failed(self, offset: int) -> bool:
        """Return True once the record at `offset` is replayed, False if the node failed first."""
        waiter = asyncio.ensure_future(self.commits.wait_for(offset))
        await self.until(lambda: waiter.done() or bool(self.failures))
        done = waiter.done()
        waiter.cancel()
        return done

    async def commit(self, *records: Any) -> int:
        """Append one batch and wait until it is replayed. Returns: its last offset."""
        offset = self.node.append(self.node.core.epoch, records)
        await self.commits.wait_for(offset)
        return offset
