"""The narrator of a run: compares every node after each callback with its last state, and records
the changes.

It reads and changes nothing, so a run with it has the same trace as one without. High watermarks
move all the time: at most one a second is recorded for each partition. Times are those of the
callback after which a change was seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from audit.report.svg import leader_style
from metalog.image.values import LOSSY_ELECTIONS, NO_LEADER, ElectedAs, PartitionImage
from simulation.messages import Messages
from simulation.story import Entry, Story, grouped

if TYPE_CHECKING:
    from broker.replication.partition.partition import Partition
    from metalog.image.values import MetadataImage
    from simulation.swarm import Broken, SwarmWorld
    from simulation.world.cluster import Machine, NodeLife
    from simulation.world.invariants import Key

WATERMARK_S = 1.0
"""Virtual seconds between two recorded high watermarks of one partition."""
UP, BOOTING, PAUSED, OFF = "up", "closing", "paused", "down"
ENDED = ""


class Narrator:
    """A watcher of `simulation.swarm` that fills `story`."""

    def __init__(self, world: SwarmWorld) -> None:
        self._world = world
        self.story = Story(f"seed {world.schedule.seed}")
        self.story.nodes = [one.node_id for one in world.schedule.shape.nodes]
        self._machines: dict[int, tuple[int, str]] = {}
        self._quorums: dict[int, tuple[str, int]] = {}
        self._active: dict[int, bool] = {}
        self._replicas: dict[tuple[int, Key], tuple[Any, ...]] = {}
        self._image: MetadataImage | None = None
        self._marks: dict[Key, tuple[float, int]] = {}
        self._listen()

    def _listen(self) -> None:
        """Record messages between nodes, in addition to the trace."""
        network, messages = self._world.loop.network, Messages(self._world.loop.time)
        trace_sent, trace_arrived = network.on_send, network.on_deliver
        self.story.messages = messages.found

        def sent(source: str, target: str, data: bytes) -> None:
            trace_sent(source, target, data)
            messages.sent(source, target, data)

        def arrived(source: str, target: str, data: bytes) -> None:
            trace_arrived(source, target, data)
            messages.arrived(source, target, data)

        network.on_send, network.on_deliver = sent, arrived

    # --- the watcher --------------------------------------------------------------------------

    def after(self, life: NodeLife) -> None:
        """Record changes of this node, and of the cluster."""
        for machine in self._world.cluster.machines:
            self._look_at_machine(machine)
        self._look_at_quorum(life)
        self._look_at_replicas(life)
        image = self._world.promises.metadata.image
        if image is not self._image:
            self._look_at_image(self._image, image)
            self._image = image
        self._look_at_watermarks()

    def finish(self, broken: Broken | None) -> None:
        """Add the faults, and the responses that clients got, at the end of the run."""
        world, story = self._world, self.story
        story.ends_s = world.loop.time() if broken is None else broken.at_s
        story.broken = None if broken is None else broken.words
        story.faults = world.faults
        story.answers = grouped([] if world.load is None else world.load.history)

    def _tell(self, lane: str, kind: str, text: str, style: str | None = None) -> None:
        world = self._world
        entry = Entry(world.loop.time(), len(world.trace), lane, kind, text, style)
        self.story.entries.append(entry)

    # --- nodes --------------------------------------------------------------------------------

    def _look_at_machine(self, machine: Machine) -> None:
        life = machine.life
        if life is None:
            return
        if not life.alive:
            state, style = "off" if life.end is None else life.end.value, OFF
        elif life.parked is not None:
            state, style = "stands still", PAUSED
        elif life.ready.done():
            state, style = "is ready", UP
        else:
            state, style = "boots", BOOTING
        seen = (life.number, state)
        if self._machines.get(machine.node_id) == seen:
            return
        before = self._machines.get(machine.node_id)
        self._machines[machine.node_id] = seen
        if before is not None and before[1] == "stands still" and style == UP:
            state = "goes on"
        words = (
            f"life {life.number} ends: {state}" if style == OFF else f"life {life.number} {state}"
        )
        self._tell(machine.host, "life", words, style)
        if style == OFF:
            self._forget(machine)

    def _forget(self, machine: Machine) -> None:
        """Drop the last state of a machine whose process has ended, and end its lanes."""
        node_id = machine.node_id
        if self._quorums.pop(node_id, None) is not None:
            self._tell(f"quorum {node_id}", "quorum", "gone with its process", ENDED)
        self._active.pop(node_id, None)
        for key in [one for one in self._replicas if one[0] == node_id]:
            del self._replicas[key]
            self._tell(self._replica_lane(node_id, key[1]), "replica", "process ended", ENDED)

    def _look_at_quorum(self, life: NodeLife) -> None:
        node = life.node
        if node is None or node.quorum is None or not node.quorum.is_started:
            return
        node_id = life.machine.node_id
        if node.controller is None:
            return  # an observer
        quorum = node.quorum
        leader, epoch = quorum.leader()
        seen = (quorum.core.role.value, epoch)
        if self._quorums.get(node_id) != seen:
            self._quorums[node_id] = seen
            words = f"{seen[0]} in epoch {epoch}" + ("" if leader is None else f", of {leader}")
            style = leader_style(node_id) if quorum.is_leader else f"role-{seen[0]}"
            self._tell(f"quorum {node_id}", "quorum", words, style)
        active = node.controller.controller.is_active
        if active != self._active.get(node_id, False):
            self._active[node_id] = active
            words = (
                "is the active controller" if active else "is not the active controller any more"
            )
            self._tell("controller", "controller", f"node {node_id} {words}, epoch {epoch}")

    # --- partitions ---------------------------------------------------------------------------

    def _name(self, key: Key) -> str:
        truth = self._world.promises.partitions.get(key)
        return f"?-{key[1]}" if truth is None else truth.name

    def _replica_lane(self, node_id: int, key: Key) -> str:
        return f"{self._name(key)} on {node_id}"

    def _look_at_replicas(self, life: NodeLife) -> None:
        node = life.node
        if node is None or node.broker is None:
            return
        node_id = life.machine.node_id
        for one in node.broker.replicas:
            self._look_at_replica(node_id, one)

    def _look_at_replica(self, node_id: int, one: Partition) -> None:
        key = (node_id, (one.topic_id, one.index))
        end = one.log.log_end_offset
        state = (one.role, one.leader_epoch, one.leader_id)
        before = self._replicas.get(key)
        if before is not None and before[:3] == state and end >= before[3]:
            if end > before[3]:
                self._replicas[key] = (*state, end)
            return
        self._replicas[key] = (*state, end)
        lane = f"{one.topic}-{one.index} on {node_id}"
        if before is not None and end < before[3]:
            self._tell(lane, "truncation", f"log is cut from {before[3]} to {end}")
        if before is not None and before[:3] == state:
            return
        role = one.role.name.lower()
        words = f"{role} of {one.leader_id} in leader epoch {one.leader_epoch}, log end {end}"
        style = f"role-{role}" if not one.is_leader else leader_style(node_id)
        self._tell(lane, "replica", words, style)

    def _look_at_watermarks(self) -> None:
        now_s = self._world.loop.time()
        for key, truth in self._world.promises.partitions.items():
            told_s, told = self._marks.get(key, (-WATERMARK_S, 0))
            if truth.end != told and now_s - told_s >= WATERMARK_S:
                self._marks[key] = (now_s, truth.end)
                self._tell(truth.name, "watermark", f"high watermark {truth.end}, was {told}")

    # --- what the controllers have committed --------------------------------------------------

    def _look_at_image(self, before: MetadataImage | None, image: MetadataImage) -> None:
        if before is None or before.topics is not image.topics:
            self._look_at_topics(before, image)
        if before is None or before.cluster is not image.cluster:
            old = {} if before is None else before.cluster.brokers
            for broker_id, one in image.cluster.brokers.items():
                was = old.get(broker_id)
                if was is None or was.epoch != one.epoch:
                    self._tell(
                        "brokers", "broker", f"broker {broker_id} registers, epoch {one.epoch}"
                    )
                if was is not None and was.fenced != one.fenced:
                    words = "is fenced" if one.fenced else "is unfenced"
                    self._tell("brokers", "broker", f"broker {broker_id} {words}")

    def _look_at_topics(self, before: MetadataImage | None, image: MetadataImage) -> None:
        for topic_id, topic in image.topics.by_id.items():
            was = None if before is None else before.topics.by_id.get(topic_id)
            if was is topic:
                continue
            for index, one in topic.partitions.items():
                old = None if was is None else was.partitions.get(index)
                if old is not one:
                    self._look_at_change((topic_id, index), f"{topic.name}-{index}", old, one)
        for topic_id, topic in {} if before is None else before.topics.by_id.items():
            if topic_id not in image.topics.by_id:
                for index in topic.partitions:
                    self._tell(f"{topic.name}-{index}", "topic", "the topic is deleted", ENDED)

    def _look_at_change(
        self, key: Key, name: str, old: PartitionImage | None, one: PartitionImage
    ) -> None:
        epochs = f"epochs {one.leader_epoch}/{one.partition_epoch}"
        if old is None or old.leader != one.leader:
            record = self._world.promises.metadata.last_change.get(key)
            kind = ElectedAs(record.election_kind) if record is not None else ElectedAs.NONE
            cause = "" if record is None else record.election_cause
            if one.leader == NO_LEADER:
                self._tell(name, "election", f"no leader, {epochs}", "none")
            else:
                named = "" if kind is ElectedAs.NONE else f" by {kind.name} election ({cause})"
                what = "lossy" if kind in LOSSY_ELECTIONS else "election"
                self._tell(
                    name,
                    what,
                    f"broker {one.leader} leads{named}, {epochs}",
                    leader_style(one.leader),
                )
        elif old.leader_epoch != one.leader_epoch:
            self._tell(name, "epoch", f"leader epoch {one.leader_epoch}, leader stays {one.leader}")
        for what, was, now in (
            ("ISR", None if old is None else old.isr, one.isr),
            ("ELR", () if old is None else old.elr, one.elr),
            ("replicas", one.replicas if old is None else old.replicas, one.replicas),
        ):
            if was != now:
                before = "" if was is None else f", was {list(was)}"
                self._tell(name, what.lower(), f"{what} {list(now)}{before}, {epochs}")
