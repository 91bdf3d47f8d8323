"""Timeouts and backoffs of a replica that follows a leader."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from metalog.quorum.core.patience import LOST_LEADER_TIMEOUT_MS, Patience
from metalog.quorum.core.roles import Role
from tests.unit.metalog.quorum.core.cores import TIMING


@pytest.fixture
def replica() -> Any:
    return SimpleNamespace(timing=TIMING, jitter=lambda bound: 0, epoch=3)


def test_observer_waits_twice_as_long_for_each_loss_of_one_leader(replica: Any) -> None:
    """The nodes that name the leader may not have noticed its loss."""
    patience = Patience(replica)
    waits = []
    for _ in range(5):
        patience.leader_lost(1)
        waits.append(patience.first_timeout_ms(Role.OBSERVER, 1))
    first = LOST_LEADER_TIMEOUT_MS
    assert waits == [first, 2 * first, 4 * first, TIMING.fetch_timeout_ms, TIMING.fetch_timeout_ms]


@pytest.mark.parametrize("change", ["another leader", "another epoch", "a voter"])
def test_whole_timeout_is_given_to_a_leader_that_was_not_lost(replica: Any, change: str) -> None:
    patience = Patience(replica)
    patience.leader_lost(1)
    if change == "another epoch":
        replica.epoch += 1
    role = Role.FOLLOWER if change == "a voter" else Role.OBSERVER
    leader_id = 2 if change == "another leader" else 1
    assert patience.first_timeout_ms(role, leader_id) == TIMING.fetch_timeout_ms
    assert patience.has_lost_leader is (change == "a voter")


def test_refused_connections_in_a_row_delay_the_next_pre_vote(replica: Any) -> None:
    """KAFKA-10527: a pre-vote that voters refuse must not be repeated at once."""
    patience, backoff = Patience(replica), TIMING.retry_backoff_ms
    waits = [patience.refused_wait_ms() for _ in range(3)]
    assert waits == [0, backoff, 3 * backoff]
    assert all(patience.refused_wait_ms() < TIMING.fetch_timeout_ms for _ in range(20))
    patience.leader_answered()
    assert patience.refused_wait_ms() == 0
