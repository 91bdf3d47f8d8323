"""The voter set: a value in the log (KIP-853), or fixed by `controller.quorum.voters`.

A voter is a replica key: node id and id of its metadata log directory. A node that returns with the
same id on an empty disk has another directory id and is no longer that voter. So it cannot vote on
the basis of a log that it has lost (M15, F22). With static voters (kraft.version 0) directory ids
are unknown and match any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from protocol.ids import ZERO_UUID, uuid_to_text

NOBODY = -1
"""The node id that stands for no node."""


class ReplicaKey(NamedTuple):
    """A replica of the metadata log. A `directory_id` of zeros is unknown."""

    id: int
    directory_id: bytes = ZERO_UUID

    def __str__(self) -> str:
        return f"{self.id}@{uuid_to_text(self.directory_id)}"

    def matches(self, other: ReplicaKey) -> bool:
        """Return whether both may be the same replica: an unknown directory matches any."""
        return self.id == other.id and (
            self.directory_id == other.directory_id
            or ZERO_UUID in (self.directory_id, other.directory_id)
        )


class VoterEndpoint(NamedTuple):
    """The address of a controller listener."""

    host: str
    port: int


Endpoints = tuple[tuple[str, VoterEndpoint], ...]
"""A controller's listeners by name."""


class Voter(NamedTuple):
    """A member of the quorum: its controller listeners by name, and the kraft.version levels that
    it supports (both ends included)."""

    key: ReplicaKey
    endpoints: Endpoints = ()
    kraft_version_min: int = 0
    kraft_version_max: int = 0

    @property
    def id(self) -> int:
        return self.key.id

    def endpoint(self, listener_name: str | None = None) -> VoterEndpoint | None:
        """Return the endpoint of that listener; without a name the first one."""
        for name, endpoint in self.endpoints:
            if listener_name is None or name == listener_name:
                return endpoint
        return None


class VoterSet:
    """An immutable set of voters by id."""

    __slots__ = ("_by_id",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._by_id: Mapping[int, Voter] = {
            voter.id: voter for voter in sorted(voters, key=lambda v: v.id)
        }

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._by_id.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._by_id == other._by_id

    def __hash__(self) -> int:
        return hash(tuple(self._by_id.values()))

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(str(voter.key) for voter in self)})"

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self._by_id)

    @property
    def majority(self) -> int:
        return len(self._by_id) // 2 + 1

    def get(self, node_id: int) -> Voter | None:
        return self._by_id.get(node_id)

    def is_voter(self, key: ReplicaKey) -> bool:
        voter = self._by_id.get(key.id)
        return voter is not None and voter.key.matches(key)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        return len(self._by_id) == 1 and self.is_voter(key)

    def others(self, key: ReplicaKey) -> list[Voter]:
        """Return every voter but that one."""
        return [voter for voter in self if not voter.key.matches(key)]

    def with_voter(self, voter: Voter) -> VoterSet:
        """Return this set with a voter added or replaced."""
        return VoterSet([*(v for v in self if v.id != voter.id), voter])
