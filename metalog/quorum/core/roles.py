"""Roles of a replica and the transitions between them.

The table defines all transitions: a pair that is not in it is a bug and raises with both names. The
state of a role is in one small object that is dropped with the role, so no state of an old role
remains.

    UNATTACHED   knows an epoch, but no leader to follow; a voter waits for its election timeout
    PROSPECTIVE  a voter that requests pre-votes (KIP-996); its epoch does not change
    CANDIDATE    a voter that has voted for itself in a new epoch
    LEADER       has won the election; the only replica that may append
    FOLLOWER     a voter that fetches from a leader
    OBSERVER     a non-voter (a broker, a spare controller) that fetches from a leader
    RESIGNED     led this epoch and will not lead it again (KAFKA-10527)
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from metalog.quorum.core.voters import Endpoints, ReplicaKey
from runtime.errors import InvariantViolated


class Role(Enum):
    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    OBSERVER = "observer"
    RESIGNED = "resigned"


class Cause(Enum):
    HIGHER_EPOCH = "a higher epoch without a known leader"
    LEADER_FOUND = "a leader to follow, as a voter"
    LEADER_OBSERVED = "a leader to follow, as a non-voter"
    VOTE_GRANTED = "voted for another replica"
    ELECTION_TIMEOUT = "no leader within the election timeout"
    FETCH_TIMEOUT = "no answer from the leader within the fetch timeout"
    PRE_VOTE_WON = "a majority would vote for this replica"
    VOTE_WON = "a majority voted for this replica"
    QUORUM_LOST = "no majority fetched within the check-quorum timeout"
    RESIGN = "received a request to step down"
    JOINED_VOTERS = "became a voter"
    LEFT_VOTERS = "is no longer a voter"


_FOLLOWING: Mapping[tuple[Role, Cause], Role] = {
    (role, cause): target
    for role in Role
    for cause, target in (
        (Cause.HIGHER_EPOCH, Role.UNATTACHED),
        (Cause.LEADER_FOUND, Role.FOLLOWER),
        (Cause.LEADER_OBSERVED, Role.OBSERVER),
    )
}

TRANSITIONS: Mapping[tuple[Role, Cause], Role] = {
    **_FOLLOWING,
    (Role.UNATTACHED, Cause.VOTE_GRANTED): Role.UNATTACHED,
    (Role.PROSPECTIVE, Cause.VOTE_GRANTED): Role.UNATTACHED,
    (Role.UNATTACHED, Cause.ELECTION_TIMEOUT): Role.PROSPECTIVE,
    (Role.PROSPECTIVE, Cause.ELECTION_TIMEOUT): Role.PROSPECTIVE,
    (Role.CANDIDATE, Cause.ELECTION_TIMEOUT): Role.PROSPECTIVE,
    (Role.RESIGNED, Cause.ELECTION_TIMEOUT): Role.PROSPECTIVE,
    (Role.FOLLOWER, Cause.FETCH_TIMEOUT): Role.PROSPECTIVE,
    (Role.OBSERVER, Cause.FETCH_TIMEOUT): Role.UNATTACHED,
    (Role.PROSPECTIVE, Cause.PRE_VOTE_WON): Role.CANDIDATE,
    (Role.CANDIDATE, Cause.VOTE_WON): Role.LEADER,
    (Role.LEADER, Cause.QUORUM_LOST): Role.RESIGNED,
    (Role.LEADER, Cause.RESIGN): Role.RESIGNED,
    (Role.OBSERVER, Cause.JOINED_VOTERS): Role.FOLLOWER,
    (Role.FOLLOWER, Cause.LEFT_VOTERS): Role.OBSERVER,
    (Role.PROSPECTIVE, Cause.LEFT_VOTERS): Role.UNATTACHED,
    (Role.CANDIDATE, Cause.LEFT_VOTERS): Role.UNATTACHED,
}


def transition(role: Role, cause: Cause) -> Role:
    """Return the role after `cause` in `role`. Raises InvariantViolated for a pair not in the
    table."""
    target = TRANSITIONS.get((role, cause))
    if target is None:
        raise InvariantViolated(f"a {role.value} cannot change state because of: {cause.value}")
    return target


Deadlines = tuple[float | None, ...]


class PendingFetch:
    """The fetch in flight, by its id, or the time of the next one.

    It ends with the role: a leader that hangs must not delay the fetch from the next one.
    """

    __slots__ = ("id", "retry_ms")

    def __init__(self) -> None:
        self.id: int | None = None
        self.retry_ms: float | None = None


class UnattachedState:
    """State of UNATTACHED.

    deadline_ms: election timeout of a voter, None for a non-voter.
    """

    __slots__ = ("deadline_ms", "fetch")
    role = Role.UNATTACHED

    def __init__(self, deadline_ms: float | None) -> None:
        self.deadline_ms = deadline_ms
        self.fetch = PendingFetch()

    def deadlines(self) -> Deadlines:
        return self.deadline_ms, self.fetch.retry_ms


class ElectionState:
    """A poll of the voters: pre-votes of a Prospective or votes of a Candidate.

    request_again: voters whose request failed; the next request to them is due at
    `request_again_ms`.
    """

    __slots__ = ("answers", "request_again", "request_again_ms", "deadline_ms", "lost", "role")

    def __init__(self, role: Role, deadline_ms: float) -> None:
        self.role = role
        self.deadline_ms = deadline_ms
        self.answers: dict[int, bool] = {}
        self.request_again: set[int] = set()
        self.request_again_ms: float | None = None
        self.lost = False

    def deadlines(self) -> Deadlines:
        return self.deadline_ms, self.request_again_ms

    @property
    def granting_ids(self) -> tuple[int, ...]:
        return tuple(sorted(node_id for node_id, granted in self.answers.items() if granted))

    @property
    def rejecting_count(self) -> int:
        return sum(not granted for granted in self.answers.values())


class FollowerState:
    """State of a voter (FOLLOWER) or non-voter (OBSERVER) with a leader.

    fetched: the leader has answered a fetch in this epoch, and its port has not refused a
    connection since. Only then does a follower refuse pre-votes, because it knows that the leader
    is alive. refused: the leader's port has refused a connection.
    """

    __slots__ = ("deadline_ms", "endpoints", "fetch", "fetched", "leader_id", "refused", "role")

    def __init__(
        self,
        role: Role,
        leader_id: int,
        endpoints: Endpoints,
        deadline_ms: float,
    ) -> None:
        self.role = role
        self.leader_id = leader_id
        self.endpoints = endpoints
        self.deadline_ms = deadline_ms
        self.fetch = PendingFetch()
        self.fetched = False
        self.refused = False

    def deadlines(self) -> Deadlines:
        return self.deadline_ms, self.fetch.retry_ms


class ResignedState:
    """State of RESIGNED; `deadline_ms` is the election timeout."""

    __slots__ = ("deadline_ms",)
    role = Role.RESIGNED

    def __init__(self, deadline_ms: float) -> None:
        self.deadline_ms = deadline_ms

    def deadlines(self) -> Deadlines:
        return (self.deadline_ms,)


class Progress:
    """Progress of a replica, as known to the leader. Times are monotonic milliseconds."""

    __slots__ = ("caught_up_ms", "end_offset", "fetch_ms", "leader_end_at_fetch")

    def __init__(self) -> None:
        self.end_offset = -1
        self.fetch_ms: float | None = None
        self.caught_up_ms: float | None = None
        self.leader_end_at_fetch = -1

    def fetched(self, fetch_offset: int, leader_end: int, now_ms: float) -> None:
        """Note a valid fetch: the replica durably has everything below `fetch_offset`."""
        if fetch_offset >= leader_end:
            self.caught_up_ms = now_ms
        elif self.fetch_ms is not None and fetch_offset >= self.leader_end_at_fetch >= 0:
            self.caught_up_ms = self.fetch_ms
        self.end_offset = fetch_offset
        self.fetch_ms = now_ms
        self.leader_end_at_fetch = leader_end


class LeaderState:
    """State of LEADER.

    fetched_voters: voters that fetched since a majority last did. begin_pending: voters that do not
    know of the epoch yet; the next request to them is due at `begin_at_ms`. epoch_start_offset:
    offset of its LeaderChange record; the high watermark is not exposed before that is committed
    (M9). check_deadline_ms: the leader resigns then unless a majority has fetched; None for a sole
    voter (KAFKA-16144).
    """

    __slots__ = (
        "begin_at_ms",
        "begin_pending",
        "check_deadline_ms",
        "epoch_start_offset",
        "fetched_voters",
        "replicas",
    )
    role = Role.LEADER

    def __init__(self, epoch_start_offset: int, begin_pending: set[int]) -> None:
        self.epoch_start_offset = epoch_start_offset
        self.replicas: dict[ReplicaKey, Progress] = {}
        self.fetched_voters: set[int] = set()
        self.check_deadline_ms: float | None = None
        self.begin_pending = begin_pending
        self.begin_at_ms = 0.0

    def deadlines(self) -> Deadlines:
        return self.check_deadline_ms, self.begin_at_ms if self.begin_pending else None


RoleState = UnattachedState | ElectionState | FollowerState | ResignedState | LeaderState
