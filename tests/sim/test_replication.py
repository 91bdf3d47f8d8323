"""Replication under crashes, cuts, pauses and lost flushes: seeds, and faults that must be found.

`python -m tests.sim.test_replication FIRST LAST` runs more seeds.
"""

from __future__ import annotations

import sys

import pytest

from tests.sim.replicated import Replicated, WorldFailed, calm, lose_everything

pytestmark = pytest.mark.sim


def run(seed: int) -> None:
    result = Replicated(seed).run()
    assert result.virtual_s >= 60
    assert result.operations >= 200
    assert sum(result.took_effect.values()) >= 3, result.took_effect


@pytest.mark.parametrize("seed", range(50))
def test_promises_are_kept(seed: int) -> None:
    run(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(50, 450))
def test_promises_are_kept_for_long(seed: int) -> None:
    run(seed)


def test_what_everybody_loses_is_reported() -> None:
    """Acknowledged records that no replica had flushed are gone with a power cut of all."""
    with pytest.raises(WorldFailed, match="P1|P4|P6|P18"):
        Replicated(1).run(lose_everything)


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        try:
            one = Replicated(number).run(calm if "--calm" in sys.argv else None)
        except WorldFailed as failed:
            print(failed if "-v" in sys.argv else f"{number} {failed.reason!r:.300}", flush=True)
            continue
        print(
            f"{number} {one.virtual_s:.0f} s, {one.operations} operations, {one.acked} acked, "
            f"{one.committed} committed, {one.leader_epochs} leader epochs, {one.checks} looks, "
            f"{one.hints} hints, {one.took_effect} {one.errors} {one.trace.digest()}",
            flush=True,
        )
