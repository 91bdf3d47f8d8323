"""The promises of consumer groups (G1, G2, G6 to G9), by what members were told.

A generation exists once its leader's assignment was answered: then it is replicated, and no
coordinator may forget it. Before that a new coordinator may give the same number to another leader.
Offsets are a register: a fetch gives the last commit that was acknowledged before it, or one that
was under way meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from protocol.codec import decode
from protocol.internal import decode_versioned
from protocol.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from simulation.judges.compacted import KeyTable
from simulation.world.invariants import Key, require

OFFSET_COMMIT = 1
"""The type of record, the first two bytes of a key."""
Share = frozenset[tuple[str, int]]


def committed_offsets(table: KeyTable, group: str) -> dict[tuple[str, int], int]:
    """G10: a group's offsets by topic and partition, as replaying `__consumer_offsets` gives
    them."""
    found: dict[tuple[str, int], int] = {}
    for key, at in table.newest.items():
        record = table.records[at]
        if int.from_bytes(key[:2], "big") != OFFSET_COMMIT or record.value is None:
            continue
        where, _ = decode(OffsetCommitKey, key, 0, 2)
        if where.group == group:
            value, _ = decode_versioned(OffsetCommitValue, record.value)
            found[where.topic, where.partition] = value.offset
    return found


@dataclass(eq=False)
class Commit:
    """One offset that a member has asked to commit; `end_s` is inf until it is acknowledged."""

    offset: int
    generation: int
    begin_s: float
    end_s: float = inf


@dataclass
class GroupTruth:
    """One group. `members` are the generations that its members are in now, -1 for none."""

    name: str
    members: dict[str, int] = field(default_factory=dict)
    plans: dict[int, list[Mapping[str, Share]]] = field(default_factory=dict)
    owned: dict[int, dict[str, Share]] = field(default_factory=dict)
    synced_s: dict[int, float] = field(default_factory=dict)
    commits: dict[Key, list[Commit]] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    """By member id."""
    asked: int = 0
    """How often an offset was asked for, and judged."""

    def planned(self, generation: int, shares: Mapping[str, Share]) -> None:
        """A leader is about to say who gets what."""
        self.plans.setdefault(generation, []).append(shares)

    def synced(
        self, member: str, member_id: str, generation: int, share: Share, at_s: float
    ) -> None:
        """A member was told what it gets. G1, G2: by one plan, and nothing twice. G6: never an
        older generation."""
        where = f"{self.name}, generation {generation}"
        newest = self.newest.get(member_id, -1)
        require(generation >= newest, f"G6: {where}: {member_id} was in {newest} before")
        self.newest[member_id] = generation
        owned = self.owned.setdefault(generation, {})
        owned[member] = share
        told = set(owned.values())
        plans = self.plans.get(generation, [])
        require(
            any(told <= {*plan.values(), frozenset()} for plan in plans),
            f"G1: {where}: {owned} is no leader's assignment: {plans}",
        )
        every = [one for each in owned.values() for one in each]
        require(len(every) == len(set(every)), f"G2: {where}: {owned}")
        self.synced_s.setdefault(generation, at_s)
        self.members[member] = generation

    def committing(self, key: Key, offset: int, generation: int, at_s: float) -> Commit:
        """A commit is about to be sent."""
        one = Commit(offset, generation, at_s)
        self.commits.setdefault(key, []).append(one)
        return one

    def committed(self, commit: Commit, at_s: float) -> None:
        """It is acknowledged. G8: not with a generation that was over before it was sent."""
        commit.end_s = at_s
        newer = [g for g, s in self.synced_s.items() if g > commit.generation]
        late = [g for g in newer if self.synced_s[g] < commit.begin_s]
        require(
            not late,
            f"G8: {self.name}: a commit of generation {commit.generation} is accepted, "
            f"generation {late} had its assignments before",
        )

    def fetched(self, key: Key, offset: int, begin_s: float, end_s: float) -> None:
        """G9: a group's offset, -1 for none, as its coordinator told it."""
        self.asked += 1
        commits = self.commits.get(key, [])
        before = [one for one in commits if one.end_s < begin_s]
        if offset == -1:
            require(not before, f"G9: {self.name}: no offset, {before[-1:]} was acknowledged")
            return
        last_begin_s = max((one.begin_s for one in before), default=-inf)
        possible = [one.offset for one in commits if one.begin_s < end_s]
        require(offset in possible, f"G9: {self.name}: {offset} was never committed")
        current = [
            one.offset for one in commits if one.begin_s < end_s and one.end_s >= last_begin_s
        ]
        require(offset in current, f"G9: {self.name}: {offset} is older than one of {current}")

    @property
    def acked(self) -> int:
        """How many commits are acknowledged."""
        return sum(one.end_s < inf for each in self.commits.values() for one in each)

    def unsettled(self) -> str | None:
        """G7: all members are in one generation."""
        if len(set(self.members.values())) > 1 or -1 in self.members.values():
            return f"G7: {self.name}: generations {self.members}"
        return None
