"""States of a classic group, and all transitions between them.

All transitions are in TRANSITIONS, and nothing here refers to members, requests or timers. A pair
that is not in the table is a bug in this program, never bad input: other tables decide which
requests a state allows, before any transition.

    Empty --REBALANCE_STARTED--> PreparingRebalance --JOINED--> CompletingRebalance
      ^                              ^   |                            |
      |---------ALL_LEFT-------------+---|     (REBALANCE_STARTED     | ASSIGNED
                                     |         from both)             v
                                     +------------------------------Stable

REMOVED leads from every state to Dead, which no event leaves.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from runtime.errors import InvariantViolated


class GroupState(Enum):
    """States of a group. Values are the names that ListGroups and DescribeGroups return."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(Enum):
    """Cause of a change of state."""

    REBALANCE_STARTED = "rebalance started"
    JOINED = "all members joined or the rebalance timeout expired; members remain"
    ALL_LEFT = "the join phase ended without a member"
    ASSIGNED = "the leader's assignment is committed"
    REMOVED = "deleted, expired, or the coordinator moved"


_EMPTY = GroupState.EMPTY
_PREPARING = GroupState.PREPARING_REBALANCE
_COMPLETING = GroupState.COMPLETING_REBALANCE
_STABLE = GroupState.STABLE
_DEAD = GroupState.DEAD

TRANSITIONS: Final[dict[tuple[GroupState, GroupEvent], GroupState]] = {
    (_EMPTY, GroupEvent.REBALANCE_STARTED): _PREPARING,
    (_COMPLETING, GroupEvent.REBALANCE_STARTED): _PREPARING,
    (_STABLE, GroupEvent.REBALANCE_STARTED): _PREPARING,
    (_PREPARING, GroupEvent.JOINED): _COMPLETING,
    (_PREPARING, GroupEvent.ALL_LEFT): _EMPTY,
    (_COMPLETING, GroupEvent.ASSIGNED): _STABLE,
    (_EMPTY, GroupEvent.REMOVED): _DEAD,
    (_PREPARING, GroupEvent.REMOVED): _DEAD,
    (_COMPLETING, GroupEvent.REMOVED): _DEAD,
    (_STABLE, GroupEvent.REMOVED): _DEAD,
}


class InvalidTransition(InvariantViolated):
    """A (state, event) pair that TRANSITIONS does not have."""


def next_state(state: GroupState, event: GroupEvent) -> GroupState:
    """Return the state after `event`. Raises InvalidTransition for a pair not in the table."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise InvalidTransition(
            f"group state {state.value} does not allow event {event.name}"
        ) from None
