from __future__ import annotations

import itertools

import pytest

from metalog.quorum.core.roles import TRANSITIONS, Cause, Progress, Role, transition
from runtime.errors import InvariantViolated


@pytest.mark.parametrize(("role", "cause"), list(itertools.product(Role, Cause)))
def test_only_pairs_of_the_table_lead_anywhere(role: Role, cause: Cause) -> None:
    if (role, cause) in TRANSITIONS:
        assert transition(role, cause) is TRANSITIONS[role, cause]
    else:
        with pytest.raises(InvariantViolated, match=f"{role.value}.*{cause.value}"):
            transition(role, cause)


def test_only_a_candidate_becomes_leader_and_only_a_prospective_a_candidate() -> None:
    assert {r for (r, _), to in TRANSITIONS.items() if to is Role.LEADER} == {Role.CANDIDATE}
    assert {r for (r, _), to in TRANSITIONS.items() if to is Role.CANDIDATE} == {Role.PROSPECTIVE}


def test_a_resigned_leader_does_not_lead_its_epoch_again() -> None:
    assert TRANSITIONS[Role.RESIGNED, Cause.ELECTION_TIMEOUT] is Role.PROSPECTIVE


def test_caught_up_is_when_it_had_what_the_leader_had() -> None:
    progress = Progress()
    progress.fetched(5, leader_end=10, now_ms=100.0)
    assert progress.caught_up_ms is None
    progress.fetched(10, leader_end=20, now_ms=200.0)
    assert progress.caught_up_ms == 100.0
    progress.fetched(20, leader_end=20, now_ms=300.0)
    assert progress.caught_up_ms == 300.0
