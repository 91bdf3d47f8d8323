"""Leftovers (P26): at the end, without requests, nodes hold no more than at the beginning.

A waiting request has a connection and a deadline, and an open file exists. Tasks, timers and
connections are about as many as before the trouble. The checks are repeated until they hold, so
work that ends by itself, late, is not a leftover. The memory of a broker is checked in
`judges.holdings`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from simulation.judges.holdings import unexplained
from simulation.judges.judge import Judge

if TYPE_CHECKING:
    from simulation.judges.world import JudgedWorld
    from simulation.world.cluster import Machine

TASKS_MORE = 12
"""Tasks beyond the most that any node had in the beginning: leaders have more than followers."""
TIMERS_MORE = 25
CONNECTIONS_MAX = 12
"""From one node to another: heartbeats, fetchers, the quorum, forwarding, other requests."""
OPENED_MAX = 2
OVERDUE_MS = 1_000.0


class LeftoverJudge(Judge):
    """Compares tasks, timers, connections, files and waits with the beginning of the run."""

    def __init__(self, world: JudgedWorld) -> None:
        self._world = world
        self._tasks = self._timers = 0

    def began(self) -> None:
        """Note the highest numbers of tasks and timers of any node."""
        for machine in self._world.cluster.machines:
            if machine.life is not None:
                tasks, timers = self._world.loop.held_by(machine.life)
                self._tasks, self._timers = max(self._tasks, tasks), max(self._timers, timers)

    def missing(self) -> str | None:
        """Return a leftover of any node (P26), else None."""
        hosts = [machine.host for machine in self._world.cluster.machines]
        for (source, target), count in self._world.loop.network.between(hosts).items():
            if count > CONNECTIONS_MAX:
                return f"P26: {source} has {count} connections to {target}"
        for machine in self._world.cluster.machines:
            for what in (
                *self._work(machine),
                *_files(machine),
                *_waits(machine),
                *self._memory(machine),
            ):
                return f"P26: {machine.host} {what}"
        return None

    def _work(self, machine: Machine) -> Iterator[str]:
        if machine.life is None:
            return
        tasks, timers = self._world.loop.held_by(machine.life)
        if tasks > self._tasks + TASKS_MORE:
            yield f"has {tasks} tasks, at the start no node had more than {self._tasks}"
        if timers > self._timers + TIMERS_MORE:
            yield f"has {timers} timers, at the start no node had more than {self._timers}"

    def _memory(self, machine: Machine) -> Iterator[str]:
        node = None if machine.life is None else machine.life.node
        server = None if node is None else node.broker
        if server is not None and server.context is not None:
            world = self._world
            yield from unexplained(server, server.context, world.promises, world.shape)


def _files(machine: Machine) -> Iterator[str]:
    opened = [] if machine.files is None else list(machine.files.opened)
    deleted = [one.path for one in opened if one.inode.path is None]
    if deleted:
        yield f"has {deleted} open, which are deleted"
    of = Counter(one.inode for one in opened)
    often = [one.path for one, count in of.items() if count > OPENED_MAX]
    if often:
        yield f"has {often} open more than {OPENED_MAX} times"


def _waits(machine: Machine) -> Iterator[str]:
    node = None if machine.life is None else machine.life.node
    context = None if node is None or node.broker is None else node.broker.context
    if node is None or node.broker is None or context is None:
        return
    purgatory = context.waits.purgatory
    here = {one.id for server in node.broker.servers for one in server.connections}
    gone = set(purgatory._owners) - here
    if gone:
        yield f"keeps waits of {len(gone)} closed connections"
    due_ms = purgatory.next_deadline_ms()
    now_ms = machine.clock.monotonic_ms()
    if due_ms is not None and due_ms < now_ms - OVERDUE_MS:
        yield f"lets a request wait {now_ms - due_ms:.0f} ms longer than it asked for"
