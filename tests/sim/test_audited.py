"""Audits of simulated controllers' disks, which find exactly the events of the run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simulation.schedule import draw_schedule
from simulation.swarm import Broken, SwarmWorld, run
from simulation.world.cluster import NodeLife
from testkit.audits import elections_of, kinds_of

pytestmark = [pytest.mark.sim, pytest.mark.rest]

SEEDS = (3, 4, 7, 8)

MARKS = {
    "elr": "controller.elr-election",
    "preferred": "controller.preferred-election",
    "last-known-leader": "controller.last-known-leader",
    "unclean": "controller.unclean-election",
    "unclean-recovery": "controller.unclean-election",
    "designated": "controller.unclean-election",
}
"""The controllers' own counter for each kind that the audit finds."""


class KeepsMetadata:
    """A recorder of the controllers' metadata directories at the end of the world."""

    def __init__(self, world: SwarmWorld) -> None:
        self._world = world
        self.found: dict[Path, bytes] = {}

    def after(self, life: NodeLife) -> None:
        pass

    def finish(self, broken: Broken | None) -> None:
        for machine in self._world.controllers:
            files = machine.files or machine.disk
            for folder in ("/data", "/data/__cluster_metadata-0"):
                for name in files.listdir(folder):
                    path = f"{folder}/{name}"
                    if not files.isdir(path):
                        self.found[Path(f"{machine.host}{path}")] = files.read(path)

    def write(self, to: Path) -> None:
        """Write the recorded directories as real files."""
        for path, data in self.found.items():
            (to / path).parent.mkdir(parents=True, exist_ok=True)
            (to / path).write_bytes(data)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_false_finding_and_no_election_that_was_none(tmp_path: Path, seed: int) -> None:
    """With eligible leader replicas and all faults, no promise is broken.

    The audit lists the elections that may have lost records, as the controllers decided them.
    """
    drawn = draw_schedule(seed)
    keepers: list[KeepsMetadata] = []

    def keeper(world: SwarmWorld) -> KeepsMetadata:
        keepers.append(KeepsMetadata(world))
        return keepers[-1]

    outcome = run(replace(drawn, shape=replace(drawn.shape, elr=True)), watchers=[keeper])
    assert outcome.broken is None, outcome.broken
    keepers[0].write(tmp_path)
    kinds = kinds_of(elections_of(tmp_path))
    assert kinds
    unmarked = {kind for kind in kinds if kind in MARKS and not outcome.marks.get(MARKS[kind])}
    assert unmarked == set(), kinds
