"""The quorum's promises over running nodes: one leader per epoch (M1), and epochs and commits that
never go back (M2, M7), also across restarts of a machine.

That committed records stay and are the same everywhere (M14, P5) is judged in `judges.metadata`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from simulation.judges.judge import Judge
from simulation.world.invariants import require

if TYPE_CHECKING:
    from simulation.world.cluster import NodeLife


class QuorumJudge(Judge):
    """Judges M1, M2, M3 and M7 for the quorum node of each life."""

    due_s = math.inf

    def __init__(self) -> None:
        self._leaders: dict[int, int] = {}
        self._told: set[int] = set()
        """Epochs whose leader had its leadership on disk: before that it sends nothing of it."""
        self._epochs: dict[tuple[int, bytes | None], int] = {}
        self._seen: dict[NodeLife, tuple[int, bool, int | None, bool, int | None]] = {}

    def after(self, life: NodeLife) -> None:
        """Check the quorum state of a node (M1, M2, M3, M7)."""
        node = life.node
        quorum = None if node is None else node.quorum
        if quorum is None or not quorum.is_started:
            return
        epoch, mark = quorum.leader()[1], quorum.high_watermark
        # While quorum-state is written no other node learns the epoch: a process that ends may
        # forget it.
        settled = not quorum.driver.is_persisting
        known_leader = quorum.core.leader_id
        seen = (epoch, quorum.is_leader, mark, settled, known_leader)
        old = self._seen.get(life)
        if seen == old:
            return
        self._seen[life] = seen
        node_id = life.machine.node_id
        place = (node_id, life.machine.directory_id)
        before = max(self._epochs.get(place, -1), -1 if old is None else old[0])
        require(epoch >= before, f"M2: {life}: epoch {epoch} after {before}")
        if settled:
            self._epochs[place] = epoch
        if quorum.is_leader:
            first = self._leaders.setdefault(epoch, node_id)
            require(first == node_id, f"M1: {first} and {node_id} lead epoch {epoch}")
            if settled:
                self._told.add(epoch)
        elif (
            settled
            and epoch in self._told
            and self._leaders[epoch] == node_id
            and len(quorum.voters) > 1
        ):
            # It voted for itself then. A node that forgets that may vote for another (KAFKA-10527).
            require(
                known_leader == node_id,
                f"M3: {life} has led epoch {epoch}, and knows nothing of it: {known_leader}",
            )
        if mark is not None:
            known = (0 if old is None else old[2]) or 0
            require(mark >= known, f"M7: {life}: high watermark {mark} after {known}")
            end = quorum.log_end_offset
            require(mark <= end, f"M7: {life}: high watermark {mark} above the log end {end}")

    def leader_of(self, epoch: int) -> int | None:
        """Return the observed leader of an epoch."""
        return self._leaders.get(epoch)
