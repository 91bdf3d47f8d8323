"""Roles of a replica, and all transitions between them.

A pair that is not in `TRANSITIONS` is a bug of this program: metadata is validated before it gets
here.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class ReplicaRole(Enum):
    """This broker's role for a partition."""

    FOLLOWER = auto()
    LEADER = auto()
    OFFLINE = auto()  # its log failed: nothing is read or written until the node restarts
    DELETED = auto()


TRANSITIONS: Final = frozenset(
    {
        (ReplicaRole.FOLLOWER, ReplicaRole.FOLLOWER),
        (ReplicaRole.FOLLOWER, ReplicaRole.LEADER),
        (ReplicaRole.FOLLOWER, ReplicaRole.OFFLINE),
        (ReplicaRole.FOLLOWER, ReplicaRole.DELETED),
        (ReplicaRole.LEADER, ReplicaRole.LEADER),
        (ReplicaRole.LEADER, ReplicaRole.FOLLOWER),
        (ReplicaRole.LEADER, ReplicaRole.OFFLINE),
        (ReplicaRole.LEADER, ReplicaRole.DELETED),
        (ReplicaRole.OFFLINE, ReplicaRole.OFFLINE),
        (ReplicaRole.OFFLINE, ReplicaRole.DELETED),
    }
)
