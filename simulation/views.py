"""Views of every node on each partition, side by side, at one moment of a run.

The moment (`--until`) is a virtual time since the first boot (`12.5s`), or the number of an event
of the trace (`48211`, as in stories). It may also be the start of an event of the schedule (`e3`),
or the first broken promise (`broken`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from simulation.schedule import Schedule
from simulation.shapes.shape import demand
from simulation.swarm import Stopped

if TYPE_CHECKING:
    from broker.replication.partition.partition import Partition
    from simulation.swarm import Broken, SwarmWorld
    from simulation.world.cluster import Machine, NodeLife
    from simulation.world.invariants import Key

FIELDS = (
    "role",
    "leader",
    "leader epoch",
    "partition epoch",
    "ISR",
    "maximal ISR",
    "log start",
    "local start",
    "high watermark",
    "log end",
    "last epoch",
    "image offset",
    "image says",
)
QUORUM_FIELDS = ("role", "leader", "epoch", "high watermark", "log end", "controller")
NOTHING = "-"


@dataclass(frozen=True)
class Moment:
    """When to stop: one of these is set, or none for the first broken promise."""

    at_s: float | None = None
    number: int | None = None
    event: str | None = None

    @classmethod
    def parse(cls, text: str, schedule: Schedule) -> Moment:
        """Return the moment of a text. Raises: BadShape if no run of this schedule has it."""
        if text == "broken":
            return cls()
        if re.fullmatch(r"\d+", text):
            return cls(number=int(text))
        if re.fullmatch(r"\d+(\.\d+)?s", text):
            return cls(at_s=float(text[:-1]))
        names = [one.name for one in schedule.events]
        allowed = f"{names[0]} to {names[-1]}" if names else "no event, for there is none"
        demand(
            text in names,
            f"--until {text!r}: a time (12.5s), the number of an event of the trace (48211), an "
            f"event of the schedule ({allowed}) or broken",
        )
        return cls(event=text)

    def __str__(self) -> str:
        if self.at_s is not None:
            return f"{self.at_s:g} s"
        if self.number is not None:
            return f"event {self.number}"
        return self.event or "a broken promise"


def partitions_of(schedule: Schedule) -> list[str]:
    """Return the names of all partitions that the run begins with."""
    topics = schedule.shape.topics
    return [f"{one.name}-{index}" for one in topics for index in range(one.partitions)]


class Until:
    """A watcher that ends the run at a moment and records the state of every node."""

    def __init__(self, world: SwarmWorld, moment: Moment, partitions: Sequence[str]) -> None:
        self._world = world
        self._moment = moment
        self._partitions = partitions
        self.reached = False
        self.lines: list[str] = []
        self.names: set[str] = set()
        """Names of all partitions that existed until then, and of those in the schedule."""

    def after(self, life: NodeLife) -> None:
        """Raise Stopped once the moment has come."""
        if self._is_due():
            self.reached = True
            raise Stopped

    def _is_due(self) -> bool:
        moment, world = self._moment, self._world
        if moment.at_s is not None:
            return world.loop.time() >= moment.at_s
        if moment.number is not None:
            return len(world.trace) >= moment.number
        return any(one.name == moment.event for one in world.faults)

    def finish(self, broken: Broken | None) -> None:
        """Record the views at the end of the run."""
        self.reached = self.reached or (broken is not None and self._moment == Moment())
        self.names = {one.name for one in self._world.promises.partitions.values()}
        self.names.update(partitions_of(self._world.schedule))
        self.lines = list(tell(self._world, self._partitions))


# --- tables ---------------------------------------------------------------------------------------


def tell(world: SwarmWorld, partitions: Iterable[str]) -> Iterator[str]:
    """Yield tables of the quorum and of the partitions with these names, or of all if no name is
    given."""
    wanted = list(partitions)
    yield f"at {world.loop.time():.6f} s, event {len(world.trace)} of the trace"
    yield ""
    yield from _table("quorum", QUORUM_FIELDS, world.controllers, _quorum)
    for key, truth in world.promises.partitions.items():
        if wanted and truth.name not in wanted:
            continue
        image = world.promises.metadata.image.topics.partition(*key)
        yield ""
        yield f"{truth.name}: committed up to {truth.end}" + (
            ", deleted"
            if image is None
            else f"; controllers: leader {image.leader} in {image.leader_epoch}/"
            f"{image.partition_epoch}, ISR {list(image.isr)}, ELR {list(image.elr)}"
        )
        yield from _table(truth.name, FIELDS, world.brokers, partial(_view, key))


def _table(
    name: str,
    fields: Sequence[str],
    machines: Sequence[Machine],
    look: Callable[[Machine], dict[str, str]],
) -> Iterator[str]:
    columns = [(f"{one.host}{_life(one)}", look(one)) for one in machines]
    first = max(len(name), *(len(one) for one in fields))
    widths = [
        max(len(head), *(len(values.get(one, NOTHING)) for one in fields))
        for head, values in columns
    ]
    heads = zip((head for head, _ in columns), widths, strict=True)
    yield "  ".join([name.ljust(first), *(head.ljust(width) for head, width in heads)]).rstrip()
    for one in fields:
        cells = [
            values.get(one, NOTHING).ljust(width)
            for (_, values), width in zip(columns, widths, strict=True)
        ]
        yield "  ".join([one.ljust(first), *cells]).rstrip()


def _life(machine: Machine) -> str:
    life = machine.life
    if life is None or not life.alive:
        return " (off)"
    if life.parked is not None:
        return " (stands still)"
    return "" if life.ready.done() else " (boots)"


def _running(machine: Machine) -> NodeLife | None:
    life = machine.life
    return life if life is not None and life.alive and life.node is not None else None


def _quorum(machine: Machine) -> dict[str, str]:
    life = _running(machine)
    node = None if life is None else life.node
    if node is None or node.quorum is None or not node.quorum.is_started:
        return {}
    quorum = node.quorum
    leader, epoch = quorum.leader()
    active = node.controller is not None and node.controller.controller.is_active
    values = (
        quorum.core.role.value,
        NOTHING if leader is None else leader,
        epoch,
        NOTHING if quorum.high_watermark is None else quorum.high_watermark,
        quorum.log_end_offset,
        "active" if active else "standby",
    )
    return {name: str(value) for name, value in zip(QUORUM_FIELDS, values, strict=True)}


def _view(key: Key, machine: Machine) -> dict[str, str]:
    life = _running(machine)
    node = None if life is None else life.node
    if node is None or node.loader is None:
        return {}
    image = node.loader.image
    known = image.topics.partition(*key)
    says = "nothing"
    if known is not None:
        epochs = f"{known.leader_epoch}/{known.partition_epoch}"
        says = f"{known.leader} in {epochs}, {list(known.isr)}"
    found = {"image offset": str(image.provenance.offset), "image says": says}
    replicas = () if node.broker is None else node.broker.replicas
    for one in replicas:
        if (one.topic_id, one.index) == key:
            found.update(_replica(one))
    return found


def _replica(one: Partition) -> dict[str, str]:
    log = one.log
    last = log.epochs.entries[-1] if log.epochs.entries else None
    return {
        "role": one.role.name.lower(),
        "leader": str(one.leader_id),
        "leader epoch": str(one.leader_epoch),
        "partition epoch": str(one.partition_epoch),
        "ISR": str(sorted(one.isr)),
        "maximal ISR": str(sorted(one.maximal_isr)),
        "log start": str(log.log_start_offset),
        "local start": str(log.local_log_start_offset),
        "high watermark": str(log.high_watermark),
        "log end": str(log.log_end_offset),
        "last epoch": NOTHING if last is None else f"{last.epoch} from {last.start_offset}",
    }
