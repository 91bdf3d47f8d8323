"""The purgatory on a loop: a wait belongs to its connection, whenever that goes."""

from __future__ import annotations

import pytest

from broker.replication.waits import DeleteRecordsWait, FetchWait, ProduceWait
from broker.replication.waits_driver import WaitsDriver
from runtime.clock import ManualClock
from tests.unit.broker.harness import Peer

FOR_EVER_MS = 2**31 - 1


def _waits(given_up: list[str]) -> list[ProduceWait | FetchWait]:
    def give_up() -> None:
        given_up.append("given up")

    return [
        ProduceWait(lambda slot, error: None, lambda: None, give_up),
        DeleteRecordsWait(lambda slot, error: None, lambda: None, give_up),
        FetchWait(1, lambda wait: None, give_up),
    ]


@pytest.mark.parametrize("kind", range(3))
async def test_a_wait_that_begins_after_its_connection_has_gone_ends_at_once(kind: int) -> None:
    given_up: list[str] = []
    driver = WaitsDriver(ManualClock())
    peer = Peer(7)
    peer.close("gone")
    for count in (1, 2):
        wait = _waits(given_up)[kind]
        driver.hold(wait, FOR_EVER_MS, peer)
        assert not wait.waiting
        assert given_up == ["given up"] * count
    assert (len(driver.purgatory), driver.purgatory.next_deadline_ms()) == (0, None)
    assert not driver._peers, "nobody would take it out again"


@pytest.mark.parametrize("kind", range(3))
async def test_a_wait_ends_with_its_connection_and_is_given_up(kind: int) -> None:
    given_up: list[str] = []
    driver = WaitsDriver(ManualClock())
    peer, other = Peer(7), Peer(8)
    mine, others = _waits(given_up)[kind], _waits(given_up)[kind]
    driver.hold(mine, FOR_EVER_MS, peer)
    driver.hold(others, FOR_EVER_MS, other)
    peer.close("gone")
    assert (mine.waiting, others.waiting) == (False, True)
    assert given_up == ["given up"]
    assert len(peer.callbacks) == 0
    driver.close()
