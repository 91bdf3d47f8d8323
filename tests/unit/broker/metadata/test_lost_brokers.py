"""Brokers lost before the metadata has fenced them: evidence, and its expiry.

Every test begins at `T`, with brokers 1 and 2 alive, and most with 2 lost and unreachable.
"""

from __future__ import annotations

import pytest

from broker.metadata.lost_brokers import HOLD_MAX_MS, LISTED_MS, LostBrokers
from protocol.metadata import FenceBrokerRecord, RegisterBrokerRecord, UnfenceBrokerRecord
from testkit.memory.broker import NODE, OTHER, Harness

SESSION_MS = 9_000.0


class World:
    def __init__(self) -> None:
        self.h = Harness()
        self.lost = LostBrokers(self.h.metadata, SESSION_MS)
        self.now_ms = self.begun_ms = self.h.clock.monotonic_ms()

    def killed(self) -> World:
        self.lost.lost(OTHER, self.now_ms)
        self.lost.unreachable(OTHER)
        return self

    def publish(self, *records: object) -> None:
        self.h.replay(*records)
        self.lost.published(self.now_ms)

    def fence(self) -> None:
        self.publish(FenceBrokerRecord(id=OTHER, epoch=100 + OTHER))

    def seen(self, after_ms: float = 0.0) -> tuple[set[int], set[int], float]:
        """Return the lost brokers, those still listed, and how long an answer about broker 2 is
        held (ms)."""
        now_ms = self.now_ms = self.begun_ms + after_ms
        gone, listed = self.lost.gone(now_ms), self.lost.still_listed(now_ms)
        return set(gone), set(listed), self.lost.hold_ms([NODE, OTHER], now_ms)


NOTHING: tuple[set[int], set[int], float] = (set(), set(), 0.0)


async def test_lost_brokers_without_loss_is_empty() -> None:
    world = World()
    assert not world.lost and world.seen() == NOTHING


async def test_a_loss_alone_is_a_doubt_that_ends_by_itself() -> None:
    world = World()
    world.lost.lost(OTHER, world.now_ms)
    assert world.seen() == (set(), set(), HOLD_MAX_MS)
    assert world.seen(HOLD_MAX_MS - 1) == (set(), set(), 1.0)
    assert world.seen(HOLD_MAX_MS) == NOTHING


async def test_a_broker_that_was_never_reached_is_not_gone() -> None:
    world = World()
    world.lost.unreachable(OTHER)
    assert not world.lost and world.seen() == NOTHING


async def test_lost_and_unreachable_is_gone_for_one_session_from_the_first_loss() -> None:
    world = World().killed()
    assert world.seen() == ({OTHER}, set(), HOLD_MAX_MS)
    world.lost.lost(OTHER, world.begun_ms + 100)
    assert world.seen(HOLD_MAX_MS) == ({OTHER}, set(), 0.0)
    assert world.seen(SESSION_MS - 1) == ({OTHER}, set(), 0.0)
    assert world.seen(SESSION_MS) == NOTHING
    assert not world.lost


async def test_an_answer_about_others_does_not_wait() -> None:
    world = World().killed()
    assert world.lost.hold_ms([NODE], world.now_ms) == 0.0


@pytest.mark.parametrize("ends", ["reached", "withdraw"])
async def test_lost_broker_is_cleared_by_contrary_evidence(ends: str) -> None:
    world = World().killed()
    getattr(world.lost, ends)(OTHER)
    assert not world.lost and world.seen() == NOTHING


async def test_the_metadata_decides_and_the_broker_is_listed_for_a_while() -> None:
    world = World().killed()
    world.seen(120)
    world.fence()
    assert world.seen(120) == (set(), {OTHER}, 0.0)
    assert world.seen(120 + LISTED_MS - 1) == (set(), {OTHER}, 0.0)
    world.lost.withdraw(OTHER)  # its fetcher ends, since broker 2 leads nothing any more
    assert world.seen(120 + LISTED_MS - 1) == (set(), {OTHER}, 0.0)
    assert world.seen(120 + LISTED_MS) == NOTHING
    assert not world.lost


async def test_suspected_broker_is_not_listed_after_fencing() -> None:
    """A broker in controlled shutdown leads nothing, so no client misses it."""
    world = World()
    world.lost.lost(OTHER, world.now_ms)
    world.fence()
    assert world.seen() == NOTHING


async def test_a_broker_that_comes_back_is_listed_by_the_metadata_alone() -> None:
    world = World().killed()
    world.fence()
    world.publish(UnfenceBrokerRecord(id=OTHER, epoch=100 + OTHER))
    assert not world.lost and world.seen() == NOTHING


async def test_evidence_is_about_one_registration() -> None:
    """The process was started again before its old session expired."""
    world = World().killed()
    world.publish(
        RegisterBrokerRecord(
            broker_id=OTHER, broker_epoch=500, incarnation_id=b"another".ljust(16), fenced=False
        )
    )
    assert not world.lost and world.seen() == NOTHING
    world.killed()
    assert world.seen() == ({OTHER}, set(), HOLD_MAX_MS)


async def test_fenced_broker_is_not_lost_again() -> None:
    world = World()
    world.fence()
    world.killed()
    assert not world.lost


@pytest.mark.parametrize("change", ["reached", "published"])
async def test_lost_brokers_callback_runs_once(change: str) -> None:
    world, told = World().killed(), []
    world.lost.when_changed(lambda: told.append(1))
    for _ in range(2):
        if change == "reached":
            world.lost.reached(OTHER)
        else:
            world.publish()
    assert told == [1]


async def test_expired_loss_runs_callbacks_with_next_image() -> None:
    """The evidence has expired: waiting requests are called back with the next image."""
    world, told = World().killed(), []
    world.lost.when_changed(lambda: told.append(1))
    assert world.seen(SESSION_MS) == NOTHING
    world.publish()
    assert told == [1]


def registered_anew(epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=OTHER,
        broker_epoch=epoch,
        incarnation_id=epoch.to_bytes(16, "big"),
        fenced=False,
    )


async def test_loss_of_the_next_incarnation_counts_from_its_own_time() -> None:
    """The image has the new registration, which is not processed yet.

    Evidence about the incarnation before must not count against this one.
    """
    world = World().killed()
    world.now_ms += 40
    world.h.replay(registered_anew(500))
    world.lost.lost(OTHER, world.now_ms)
    assert world.seen(40) == (set(), set(), HOLD_MAX_MS), "doubted, not yet unreachable"
    world.lost.unreachable(OTHER)
    world.lost.published(world.now_ms)
    assert world.seen(40 + SESSION_MS - 1) == ({OTHER}, set(), 0.0)
    assert world.seen(40 + SESSION_MS) == NOTHING


async def test_second_loss_of_one_incarnation_does_not_extend_expiry() -> None:
    world = World().killed()
    world.lost.lost(OTHER, world.begun_ms + SESSION_MS - 1)
    assert world.seen(SESSION_MS - 1) == ({OTHER}, set(), 0.0)
    assert world.seen(SESSION_MS) == NOTHING


async def test_loss_after_the_decision_about_the_incarnation_before_is_a_loss() -> None:
    """Broker 2 is fenced, comes back in the next image, and is lost again while it is still
    listed."""
    world = World().killed()
    world.fence()
    assert world.seen() == (set(), {OTHER}, 0.0)
    world.publish(registered_anew(500))
    assert world.seen() == NOTHING
    world.killed()
    assert world.seen() == ({OTHER}, set(), HOLD_MAX_MS)
    world.publish(FenceBrokerRecord(id=OTHER, epoch=500))
    assert world.seen(LISTED_MS - 1) == (set(), {OTHER}, 0.0)
    assert world.seen(LISTED_MS) == NOTHING


async def test_answer_about_two_lost_leaders_waits_for_the_later_one() -> None:
    world = World().killed()
    world.lost.lost(NODE, world.begun_ms + 100)
    assert world.seen(100)[2] == HOLD_MAX_MS
    assert world.lost.hold_ms([OTHER], world.begun_ms + 100) == HOLD_MAX_MS - 100
