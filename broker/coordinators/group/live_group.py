"""Live state of a group: the running protocol. Soft: lost with leadership.

A `LiveGroup` has its members, their protocols and their waiting requests. It makes no decisions
about *when* something happens (`rebalance.py` does). It changes neither timers nor records, except
that it can be built from hard state and written as hard state.

Counts that every JoinGroup needs (waiting joins, members that support a protocol) are kept up to
date rather than computed: a rebalance of n members would otherwise cost n squared.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NamedTuple

from broker.coordinators.group.records import GroupMetadata, PersistedMember
from broker.coordinators.group.states import GroupEvent, GroupState, next_state
from broker.coordinators.group.subscription import topics_of_group
from runtime.errors import invariant

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
NO_ASSIGNMENT: Final = b""

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) in the member's order of preference."""


class Caller(NamedTuple):
    """The client that sent a request. The ticket identifies the request in later answers."""

    ticket: int
    version: int
    client_id: str
    client_host: str


class LiveMember:
    """One member. `joining` and `syncing` hold the caller of a request that waits."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "joining",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = NO_ASSIGNMENT,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        self.joining: Caller | None = None
        self.syncing: Caller | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for `protocol`; empty if it does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: Container[str]) -> str:
        """Return the member's first choice among `candidates`, which contain at least one of its
        own."""
        return next(name for name, _ in self.protocols if name in candidates)

    def renamed(self, member_id: str) -> LiveMember:
        """Return the same member under another id, with no request waiting."""
        return LiveMember(
            member_id=member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            protocols=self.protocols,
            assignment=self.assignment,
        )


class LiveGroup:
    """One group.

    - `pending`: member ids given out with MEMBER_ID_REQUIRED and not used yet.
    - `unsynced`: members that joined this generation and did not send SyncGroup yet.
    - `incarnation`: distinguishes group objects of one name; set by `Core.adopt`.
    - `assignment_under_way`: the leader's assignment of this generation is appended and not
      committed yet.
    """

    __slots__ = (
        "_protocol_counts",
        "_subscribed",
        "assignment_under_way",
        "generation",
        "group_id",
        "incarnation",
        "initial_delay_left_ms",
        "joining_count",
        "leader",
        "members",
        "new_member_joined",
        "pending",
        "previous_state",
        "protocol",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "unsynced",
    )

    def __init__(self, group_id: str, wall_ms: int) -> None:
        self.group_id = group_id
        self.incarnation = 0
        self.assignment_under_way = False
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.state_timestamp_ms = wall_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, LiveMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending: set[str] = set()
        self.unsynced: set[str] = set()
        self.joining_count = 0
        self.new_member_joined = False
        self.initial_delay_left_ms = 0
        self._protocol_counts: dict[str, int] = {}
        self._subscribed: frozenset[str] | None = frozenset()

    # -- state

    def transition(self, event: GroupEvent, wall_ms: int) -> None:
        """Change the state by the transition table. Raises InvalidTransition for a pair not in the
        table."""
        self.previous_state, self.state = self.state, next_state(self.state, event)
        self.state_timestamp_ms = wall_ms

    @property
    def is_initial_rebalance(self) -> bool:
        """True in the first rebalance of an empty group, which waits longer for more members."""
        return (
            self.state is GroupState.PREPARING_REBALANCE and self.previous_state is GroupState.EMPTY
        )

    @property
    def all_joined(self) -> bool:
        """True if every member waits in JoinGroup and there is no unused member id."""
        return self.joining_count == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # -- members

    def add_member(self, member: LiveMember, protocol_type: str) -> None:
        """Add a new member; the first one becomes leader."""
        invariant(member.member_id not in self.members, f"duplicate member {member.member_id}")
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.pending.discard(member.member_id)
        self._count_protocols(member, 1)

    def remove_member(self, member_id: str) -> LiveMember:
        """Remove a member whose waiting requests have been answered."""
        member = self.members.pop(member_id)
        invariant(
            member.joining is None and member.syncing is None,
            f"member {member_id} is removed while its request waits",
        )
        instance_id = member.group_instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        self._count_protocols(member, -1)
        self.unsynced.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace_member(self, old: LiveMember, new: LiveMember) -> None:
        """Put `new` into the place of `old`: same instance id, same order, leader if `old` was."""
        self._count_protocols(old, -1)
        self.members = {
            (new.member_id if member_id == old.member_id else member_id): (
                new if member_id == old.member_id else member
            )
            for member_id, member in self.members.items()
        }
        assert new.group_instance_id is not None, "a dynamic member has no place"
        self.static_members[new.group_instance_id] = new.member_id
        if old.member_id in self.unsynced:
            self.unsynced.remove(old.member_id)
            self.unsynced.add(new.member_id)
        if self.leader == old.member_id:
            self.leader = new.member_id
        self._count_protocols(new, 1)

    def update_member(
        self,
        member: LiveMember,
        *,
        caller: Caller,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Apply the values of a member's new JoinGroup."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        member.client_id, member.client_host = caller.client_id, caller.client_host

    def set_joining(self, member: LiveMember, caller: Caller) -> None:
        """Note a waiting JoinGroup of the member. The caller has removed an earlier one."""
        invariant(
            member.joining is None, f"member {member.member_id} has two waiting JoinGroup requests"
        )
        member.joining = caller
        self.joining_count += 1

    def take_joining(self, member: LiveMember) -> Caller | None:
        """Remove and return the caller whose JoinGroup waits, to be answered."""
        caller, member.joining = member.joining, None
        if caller is not None:
            self.joining_count -= 1
        return caller

    def elect_joined_leader(self) -> bool:
        """Make one of the joined members the leader if the present one has not joined; False
        without any."""
        if self.leader is not None and self.members[self.leader].joining is not None:
            return True
        for member in self.members.values():
            if member.joining is not None:
                self.leader = member.member_id
                return True
        return False

    # -- protocols and subscriptions

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a client with these protocols can be a member."""
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        count = len(self.members)
        return any(self._protocol_counts.get(name) == count for name, _ in protocols)

    def select_protocol(self) -> str:
        """Return the protocol that most members prefer, among those that all support. A tie goes to
        the alphabetically first name, so that the choice does not depend on the order of joins."""
        count = len(self.members)
        candidates = [name for name, has in self._protocol_counts.items() if has == count]
        invariant(bool(candidates), f"group {self.group_id} has no common protocol")
        votes = dict.fromkeys(candidates, 0)
        for member in self.members.values():
            votes[member.vote(votes)] += 1
        return min(votes, key=lambda name: (-votes[name], name))

    def is_subscribed(self, topic: str) -> bool:
        """Return whether offsets of `topic` are in use. A consumer group whose subscriptions cannot
        be parsed (no protocol chosen yet, foreign bytes) counts as using every topic."""
        if self._subscribed is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self._subscribed

    @property
    def knows_subscriptions(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE and self._subscribed is not None

    def begin_generation(self) -> None:
        """Increment the generation and choose its protocol. The caller changes the state."""
        self.generation = self.generation + 1 if self.generation < 2**31 - 1 else 0
        self.protocol = self.select_protocol() if self.members else None
        if not self.members:
            self.leader = None
        self.assignment_under_way = False
        self.unsynced.clear()
        self.refresh_subscriptions()

    def refresh_subscriptions(self) -> None:
        """Parse the members' subscriptions under the chosen protocol."""
        if not self.members:
            self._subscribed = frozenset()
        elif self.protocol_type != CONSUMER_PROTOCOL_TYPE or self.protocol is None:
            self._subscribed = None
        else:
            protocol = self.protocol
            self._subscribed = topics_of_group(
                member.metadata(protocol) for member in self.members.values()
            )

    def _count_protocols(self, member: LiveMember, by: int) -> None:
        for name in {name for name, _ in member.protocols}:
            count = self._protocol_counts.get(name, 0) + by
            if count:
                self._protocol_counts[name] = count
            else:
                del self._protocol_counts[name]

    # -- hard state

    def persisted(self, assignments: dict[str, bytes] | None = None) -> GroupMetadata:
        """Return the group's record, with `assignments` in place of those in force."""
        return GroupMetadata(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(
                self._persisted_member(member, assignments) for member in self.members.values()
            ),
        )

    def _persisted_member(
        self, member: LiveMember, assignments: dict[str, bytes] | None
    ) -> PersistedMember:
        assignment = member.assignment
        if assignments is not None:
            assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
        return PersistedMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.session_timeout_ms,
            subscription=member.metadata(self.protocol),
            assignment=assignment,
        )

    @classmethod
    def from_persisted(cls, group_id: str, record: GroupMetadata) -> LiveGroup:
        """Return the live group of a loaded record: Stable with its members, or Empty."""
        group = cls(group_id, record.state_timestamp_ms)
        group.generation = record.generation
        group.protocol_type = record.protocol_type or None
        for member in record.members:
            live = LiveMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                protocols=((record.protocol or "", member.subscription),),
                assignment=member.assignment,
            )
            group.add_member(live, record.protocol_type)
        if record.members:
            group.state = group.previous_state = GroupState.STABLE
            group.protocol = record.protocol
            group.leader = record.leader if record.leader in group.members else group.leader
        group.refresh_subscriptions()
        return group
