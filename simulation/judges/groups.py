"""The promises of consumer groups (G1 to G9): responses to members, and the state of coordinators.

G3 to G5 are worded as in KIP-848 and applied to the classic protocol here. A member's epoch is its
generation, and the target assignment is the plan of a generation's leader. A partition's epoch is
the generation in which a member was given it.

A generation exists once its leader's SyncGroup was answered: then it is replicated, and no
coordinator may forget it. Before that a new coordinator may give the same number to another leader.

Offsets are a register: a fetch returns the last commit that was acknowledged before it, or one that
was in flight at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from protocol.codec import decode
from protocol.internal import decode_versioned
from protocol.internal.consumer_protocol_assignment import ConsumerProtocolAssignment
from protocol.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from simulation.judges.compacted import KeyTable
from simulation.world.invariants import Key, require

OFFSET_COMMIT = 1
"""The type of record, the first two bytes of a key."""
Share = frozenset[tuple[str, int]]


def committed_offsets(table: KeyTable, group: str) -> dict[tuple[str, int], int]:
    """Return a group's offsets by topic and partition, as a replay of `__consumer_offsets` yields
    them (G10)."""
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


def share_of(assignment: bytes) -> Share:
    """Return the partitions in an assignment; none if it is empty."""
    if not assignment:
        return frozenset()
    found, _ = decode_versioned(ConsumerProtocolAssignment, assignment, newer_as_latest=True)
    return frozenset(
        (topic.topic, index) for topic in found.assigned_partitions for index in topic.partitions
    )


class Holder(NamedTuple):
    """A member as its coordinator holds it. `waits`: one of its requests is unanswered."""

    member_id: str
    static: bool
    share: Share
    waits: bool


@dataclass(eq=False)
class Commit:
    """One offset that a member has sent in a commit; `end_s` is inf until it is acknowledged."""

    offset: int
    generation: int
    begin_s: float
    end_s: float = inf


@dataclass
class GroupTruth:
    """The state of one group. `members` are the present generations of its members, -1 for none."""

    name: str
    members: dict[str, int] = field(default_factory=dict)
    plans: dict[int, list[Mapping[str, Share]]] = field(default_factory=dict)
    owned: dict[int, dict[str, Share]] = field(default_factory=dict)
    synced_s: dict[int, float] = field(default_factory=dict)
    commits: dict[Key, list[Commit]] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    """The newest generation of each member id."""
    names: dict[str, str] = field(default_factory=dict)
    """The member to which each member id belongs."""
    given: dict[tuple[str, int], tuple[int, float]] = field(default_factory=dict)
    """The newest generation in which a partition was given to any member, and the time of that
    response."""
    began_s: float = -inf
    """Time since when this group exists; an earlier group of that name may have ended."""
    asked: int = 0
    """Number of offset fetches that were judged."""

    def planned(self, generation: int, shares: Mapping[str, Share]) -> None:
        """Enter the plan that a leader is about to send."""
        self.plans.setdefault(generation, []).append(shares)

    def synced(
        self,
        member: str,
        member_id: str,
        generation: int,
        share: Share,
        at_s: float,
        *,
        asked_s: float = -inf,
    ) -> None:
        """Judge an assignment: a member requested it at `asked_s` and received it at `at_s`.

        G1, G2: all assignments come from one plan, and no partition is in two. G6: a member never
        gets an older generation. G3: the assignment is compared with the plan for the member's own
        id; a static member that came back may have the share of its earlier ids. G5: the generation
        is compared with that in which any member got one of these partitions before this request.
        """
        self.members[member] = generation
        if asked_s < self.began_s:
            return  # it may be a response of the earlier group
        where = f"{self.name}, generation {generation}"
        newest = self.newest.get(member_id, -1)
        require(generation >= newest, f"G6: {where}: {member_id} was in {newest} before")
        self.newest[member_id] = generation
        self.names[member_id] = member
        owned = self.owned.setdefault(generation, {})
        owned[member] = share
        assigned = set(owned.values())
        plans = self.plans.get(generation, [])
        require(
            any(assigned <= {*plan.values(), frozenset()} for plan in plans),
            f"G1: {where}: {owned} is not a leader's assignment: {plans}",
        )
        every = [one for each in owned.values() for one in each]
        require(len(every) == len(set(every)), f"G2: {where}: {owned}")
        require(
            any(share in self._own(plan, member, member_id) for plan in plans),
            f"G3: {where}: {member_id} gets {sorted(share)}, which {plans} gives to another",
        )
        for one in sorted(share):
            before, given_s = self.given.get(one, (-1, inf))
            require(
                generation >= before or asked_s <= given_s,
                f"G5: {where}: {member_id} gets {one}, which was given in {before} before",
            )
            if generation > before:
                self.given[one] = generation, at_s
        self.synced_s.setdefault(generation, at_s)

    def _own(self, plan: Mapping[str, Share], member: str, member_id: str) -> list[Share]:
        """Return the plan's shares for this member: for its id, or else for ids that are of no
        other member."""
        if member_id in plan:
            return [plan[member_id]]
        return [share for one, share in plan.items() if self.names.get(one, member) == member]

    def confirmed(self, member_id: str, generation: int, begin_s: float) -> None:
        """Judge a successful heartbeat of a generation, from a broker that coordinated all the time
        (G3).

        The generation is compared with those whose assignments were received before the heartbeat
        was sent: a member of an older one owns partitions that they give to others.
        """
        newer = [g for g, told_s in self.synced_s.items() if g > generation and told_s < begin_s]
        require(
            not newer,
            f"G3: {self.name}: {member_id} is confirmed in generation {generation}, "
            f"generation {newer} had its assignments before",
        )

    def held(self, generation: int, leader: str | None, holders: Iterable[Holder]) -> str | None:
        """Return a violation of G4 by a group that its coordinator holds as Stable, else None.

        The members are compared with one plan of the generation: the same ids (a static member that
        came back has another one), and the same shares, all of them assigned. No member waits for a
        response, and the leader is a member.
        """
        found = list(holders)
        ids = {one.member_id for one in found}
        waiting = sorted(one.member_id for one in found if one.waits)
        where = f"G4: {self.name} is Stable in generation {generation}"
        if waiting:
            return f"{where}: {waiting} wait"
        if leader not in ids:
            return f"{where}: {leader} leads, members are {sorted(ids)}"
        dynamic = {one.member_id for one in found if not one.static}
        shares = Counter(one.share for one in found)
        for plan in self.plans.get(generation, []):
            if dynamic <= set(plan) and shares == Counter(plan.values()):
                return None
        return f"{where}: {found} is not a leader's assignment: {self.plans.get(generation)}"

    def expired(self, key: Key, at_s: float) -> None:
        """Enter that an offset has expired: from now on it counts as never committed."""
        self.commits.setdefault(key, []).append(Commit(-1, -1, at_s, at_s))

    def ended(self, at_s: float) -> None:
        """Enter that the group has ended, since it had neither members nor offsets. The next group
        of that name begins with its first generation."""
        self.began_s = at_s
        for one in (self.owned, self.synced_s, self.given, self.newest):
            one.clear()

    def committing(self, key: Key, offset: int, generation: int, at_s: float) -> Commit:
        """Enter a commit that is about to be sent."""
        one = Commit(offset, generation, at_s)
        self.commits.setdefault(key, []).append(one)
        return one

    def committed(self, commit: Commit, at_s: float) -> None:
        """Enter that a commit is acknowledged. Its generation may not have been over before it was
        sent (G8)."""
        commit.end_s = at_s
        newer = [g for g, s in self.synced_s.items() if g > commit.generation]
        late = [g for g in newer if self.synced_s[g] < commit.begin_s]
        require(
            not late,
            f"G8: {self.name}: a commit of generation {commit.generation} is accepted, "
            f"generation {late} had its assignments before",
        )

    def fetched(self, key: Key, offset: int, begin_s: float, end_s: float) -> None:
        """Judge a group's offset, -1 for none, as its coordinator returned it (G9)."""
        self.asked += 1
        commits = self.commits.get(key, [])
        before = [one for one in commits if one.end_s < begin_s]
        if offset == -1 and not before:
            return
        last_begin_s = max((one.begin_s for one in before), default=-inf)
        possible = [one.offset for one in commits if one.begin_s < end_s]
        require(
            offset in possible,
            f"G9: {self.name}: {offset} was never committed, {before[-1:]} was acknowledged",
        )
        current = [
            one.offset for one in commits if one.begin_s < end_s and one.end_s >= last_begin_s
        ]
        require(offset in current, f"G9: {self.name}: {offset} is older than one of {current}")

    @property
    def acked(self) -> int:
        """The number of acknowledged commits."""
        every = [one for each in self.commits.values() for one in each]
        return sum(one.end_s < inf and one.offset >= 0 for one in every)

    def unsettled(self) -> str | None:
        """Return a violation of G7 while members are not in one generation, else None."""
        if len(set(self.members.values())) > 1 or -1 in self.members.values():
            return f"G7: {self.name}: generations {self.members}"
        return None
