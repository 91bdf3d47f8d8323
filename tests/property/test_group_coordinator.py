"""Random histories of a group coordinator, judged after every step (G8-G10).

The world itself checks that memory is the replay of the log and that each group is consistent. This
module adds checks of the history. Generations never go back, and each has one assignment in the
log. A fetch returns the acknowledged offset, also from the next coordinator, and no offset outlives
its topic. A coordinator can begin with any prefix of the log. Once all clients fall silent, every
group comes to rest.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.coordinators.group.config import GroupConfig
from broker.coordinators.group.records import GroupRecord, parse_entry
from broker.coordinators.group.states import GroupState
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.sync_group import SyncGroupResponse
from testkit.memory.group_shard import ShardWorld, subscription

GROUPS = st.sampled_from(["g", "h"])
INSTANCES = [None, None, "i1", "i2"]
WHO = st.integers(0, len(INSTANCES) - 1)
PROTOCOLS = st.sampled_from(
    [
        (("range", subscription("a")),),
        (("range", subscription("a", "b")), ("rr", b"")),
        (("rr", b""), ("range", subscription("b"))),
        (("range", subscription("a")), ("other", b"")),
        (("other", b""),),
    ]
)
AT = st.sampled_from([("a", 0), ("a", 1), ("b", 0)])


class Client:
    """The state of one consumer, which follows no protocol but tries random operations."""

    def __init__(self, instance: str | None) -> None:
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.leads: list[str] = []


class Coordinator(RuleBasedStateMachine):
    @initialize(
        delay_ms=st.sampled_from([0, 3_000]),
        max_size=st.sampled_from([2, 100]),
    )
    def begin(self, delay_ms: int, max_size: int) -> None:
        config = GroupConfig(
            initial_rebalance_delay_ms=delay_ms,
            max_size=max_size,
            new_member_join_timeout_ms=30_000,
            offsets_retention_ms=10**12,
        )
        self.world = ShardWorld(config)
        self.clients = {
            (group, who): Client(INSTANCES[who])
            for group in ("g", "h")
            for who, _ in enumerate(INSTANCES)
        }
        self.asked: dict[int, tuple[str, int]] = {}
        self.commits: dict[int, tuple[str, tuple[str, int], int, bytes | None]] = {}
        self.oldest = {"a": 0, "b": 0}
        self.topic_count = 0
        self.acknowledged: dict[tuple[str, tuple[str, int]], int] = {}
        self.generations: dict[str, tuple[object, int]] = {}
        self.seen: set[int] = set()

    # -- clients

    @rule(
        group=GROUPS,
        who=WHO,
        anew=st.booleans(),
        protocols=PROTOCOLS,
        version=st.sampled_from([0, 3, 8, 9]),
    )
    def join(self, group: str, who: int, anew: bool, protocols: Any, version: int) -> None:
        client = self.clients[group, who]
        instance = client.instance if version >= 5 else None
        ticket = self.world.join(
            "" if anew else client.member_id,
            instance=instance,
            protocols=protocols,
            version=version,
            group=group,
            session_ms=6_000 + 1_000 * who,
            rebalance_ms=9_000,
        )
        self.asked[ticket] = (group, who)
        self.read_answers()

    @rule(group=GROUPS, who=WHO, stale=st.integers(0, 4))
    def sync(self, group: str, who: int, stale: int) -> None:
        client = self.clients[group, who]
        ticket = self.world.sync(
            client.member_id,
            client.generation - (stale == 4),
            {
                member_id: f"{member_id} of {self.world.last_ticket}".encode()
                for member_id in client.leads
            },
            instance=client.instance,
            group=group,
            version=3,
        )
        self.asked[ticket] = (group, who)
        self.read_answers()

    @rule(group=GROUPS, who=WHO)
    def heartbeat(self, group: str, who: int) -> None:
        client = self.clients[group, who]
        code = self.world.heartbeat(client.member_id, client.generation, client.instance, group)
        live = self.world.shard.core.groups.get(group)
        if code is ErrorCode.NONE:
            assert live is not None
            assert client.member_id in live.members
            assert live.generation == client.generation

    @rule(group=GROUPS, who=WHO, by_instance=st.booleans(), version=st.sampled_from([1, 5]))
    def leave(self, group: str, who: int, by_instance: bool, version: int) -> None:
        client = self.clients[group, who]
        member_id = "" if by_instance and client.instance else client.member_id
        self.world.leave((member_id, client.instance), group=group, version=version)

    @rule(group=GROUPS, who=WHO, tries_again=st.booleans(), another=st.booleans())
    def a_member_gives_up(self, group: str, who: int, tries_again: bool, another: bool) -> None:
        """The member leaves while its JoinGroup waits, and may join again with its old id."""
        protocols = (("range", subscription("a")),)
        for fresh in (True, False):
            self.join(group, who, fresh, protocols, 9)
        self.leave(group, who, False, 5)
        if tries_again:
            self.join(group, who, False, protocols, 9)
        if another:
            self.join(group, who, True, protocols, 9)

    @rule(group=GROUPS, who=WHO, at=AT, outsider=st.booleans())
    def commit(self, group: str, who: int, at: tuple[str, int], outsider: bool) -> None:
        client = self.clients[group, who]
        offset = self.world.last_ticket + 1
        how: dict[str, Any] = {}
        if not outsider:
            how = {
                "member_id": client.member_id,
                "generation": client.generation,
                "instance": client.instance,
            }
        ticket = self.world.commit({at: offset}, group=group, **how)
        self.commits[ticket] = (group, at, offset, self.world.topics.topic_id(at[0]))
        self.read_answers()

    @rule(group=GROUPS, some=st.sets(WHO, min_size=2), times=st.integers(1, 3))
    def the_leader_repeats_itself(self, group: str, some: set[int], times: int) -> None:
        """Send SyncGroup while an earlier one of the generation is not committed."""
        self.replication_lags_or_not(False)
        self.world.refuse_appends = None
        for who in sorted(some) * 2:
            self.join(group, who, False, (("range", subscription("a")),), 9)
        self.time_passes(9_000)
        live = self.world.shard.core.groups.get(group)
        self.world.hold_commits = True
        for who in sorted(some) * times:
            client = self.clients[group, who]
            if live is not None and live.leader == client.member_id:
                self.sync(group, who, 0)

    @rule(topic=st.sampled_from("ab"))
    def a_topic_goes_or_comes(self, topic: str) -> None:
        world = self.world
        if world.topics.topic_id(topic) is None:
            self.topic_count += 1
            world.topics.topics[topic] = bytes([self.topic_count]) * 16, 2
            return
        world.delete_topics(topic)
        self.oldest[topic] = world.last_ticket + 1
        self.acknowledged = {
            (group, at): offset
            for (group, at), offset in self.acknowledged.items()
            if at[0] != topic
        }

    @rule()
    def offsets_of_deleted_topics_go(self) -> None:
        self.world.forget()

    @rule()
    def an_append_takes_too_long(self) -> None:
        if self.world.in_flight:
            self.world.time_out_next(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self.read_answers()

    @rule(group=GROUPS, at=AT)
    def delete_offset(self, group: str, at: tuple[str, int]) -> None:
        self.replication_lags_or_not(False)
        self.world.delete_offsets([at], group)
        self.forget_deleted()

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        self.replication_lags_or_not(False)
        self.world.delete_group(group)
        self.forget_deleted()

    @rule(group=GROUPS)
    def everybody_behaves(self, group: str) -> None:
        """Let members join and sync by their answers, as far as appends are committed."""
        for _ in range(4):
            live = self.world.shard.core.groups.get(group)
            if live is None or live.state in (GroupState.EMPTY, GroupState.STABLE):
                return
            for who, client in enumerate(list(self.clients.values())[: 2 * len(INSTANCES)]):
                who %= len(INSTANCES)
                if self.clients[group, who] is not client or client.member_id not in live.members:
                    continue
                member = live.members[client.member_id]
                if live.state is GroupState.PREPARING_REBALANCE and member.joining is None:
                    ticket = self.world.join(
                        client.member_id,
                        instance=client.instance,
                        protocols=member.protocols,
                        group=group,
                    )
                    self.asked[ticket] = (group, who)
                elif live.state is GroupState.COMPLETING_REBALANCE and member.syncing is None:
                    self.sync(group, who, 0)
            self.time_passes(3_000)

    @rule(group=GROUPS, some=st.sets(WHO, min_size=1))
    def a_group_forms(self, group: str, some: set[int]) -> None:
        self.replication_lags_or_not(False)
        self.world.refuse_appends = None
        protocols = (("range", subscription("a")),)
        for who in sorted(some):
            for _ in range(2):
                self.join(group, who, False, protocols, 9)
        self.time_passes(3_000)
        self.everybody_behaves(group)

    # -- the world

    @rule(by_ms=st.sampled_from([1, 500, 3_000, 6_000, 9_000, 30_000]))
    def time_passes(self, by_ms: int) -> None:
        self.world.advance(by_ms)
        self.read_answers()

    @rule(hold=st.booleans())
    def replication_lags_or_not(self, hold: bool) -> None:
        self.world.hold_commits = hold
        if not hold:
            while self.world.in_flight:
                self.world.commit_next()
        self.read_answers()

    @rule()
    def one_commit(self) -> None:
        if self.world.in_flight:
            self.world.commit_next()
            self.read_answers()

    @rule(code=st.sampled_from([None, None, ErrorCode.COORDINATOR_NOT_AVAILABLE]))
    def appends_are_refused_or_not(self, code: ErrorCode | None) -> None:
        self.world.refuse_appends = code

    @rule(lost=st.integers(0, 3))
    def the_coordinator_moves(self, lost: int) -> None:
        """Uncommitted appends may be lost, the last ones first."""
        lost = min(lost, len(self.world.in_flight))
        self.world.run(self.world.shard.abandon(ErrorCode.NOT_COORDINATOR))
        self.read_answers()
        answers, ticket = self.world.answers, self.world.last_ticket
        now_ms = self.world.now_ms
        for _, _, open_ticket in list(self.world.in_flight)[: len(self.world.in_flight) - lost]:
            # Not acknowledged, and yet it will be visible.
            self.acknowledge(open_ticket)
        self.world = self.world.restarted(lost)
        self.world.answers, self.world.last_ticket, self.world.now_ms = answers, ticket, now_ms
        for group, record in self.world.shard.appended.groups.items():
            assert self.world.group(group).generation == record.generation

    # -- clients' answers

    def read_answers(self) -> None:
        for ticket in sorted(self.world.answers.keys() - self.seen):
            self.seen.add(ticket)
            answer = self.world.answers[ticket]
            if ticket in self.asked:
                self.learn(self.clients[self.asked[ticket]], answer)
            elif ticket in self.commits and self.world.commit_codes(ticket) == {ErrorCode.NONE}:
                self.acknowledge(ticket)

    def acknowledge(self, ticket: int) -> None:
        """An offset counts as long as its topic exists."""
        if ticket in self.commits:
            group, at, offset, topic_id = self.commits[ticket]
            if topic_id is not None and topic_id == self.world.topics.topic_id(at[0]):
                self.acknowledged[group, at] = offset

    def learn(self, client: Client, answer: Any) -> None:
        if isinstance(answer, JoinGroupResponse):
            if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                client.member_id = answer.member_id
            if answer.error_code == ErrorCode.NONE:
                client.generation = answer.generation_id
                client.leads = [member.member_id for member in answer.members]
        else:
            assert isinstance(answer, SyncGroupResponse)

    def forget_deleted(self) -> None:
        for group, (topic, partition) in list(self.acknowledged):
            if self.world.fetch(topic, partition, group) == -1:
                del self.acknowledged[group, (topic, partition)]

    # -- laws

    @invariant()
    def generations_never_go_back(self) -> None:
        for group_id, group in self.world.shard.core.groups.items():
            # A group that was removed, or lost before it was first stored, starts from scratch.
            same, before = self.generations.get(group_id, (group, 0))
            assert same is not group or group.generation >= before
            self.generations[group_id] = group, group.generation

    @invariant()
    def acknowledged_offsets_are_fetched(self) -> None:
        if self.world.in_flight:
            return
        for (group, (topic, partition)), offset in self.acknowledged.items():
            assert self.world.fetch(topic, partition, group) >= offset

    @invariant()
    def no_offset_outlives_its_topic(self) -> None:
        for group in ("g", "h"):
            for topic, oldest in self.oldest.items():
                for partition in range(2):
                    offset = self.world.fetch(topic, partition, group)
                    assert offset == -1 or offset >= oldest
                    assert offset == -1 or self.world.topics.topic_id(topic) is not None

    def each_generation_has_one_assignment(self) -> None:
        """A returning static member has another id and the same assignment."""
        found: dict[tuple[str, int], list[bytes]] = {}
        for entry in self.world.log:
            record = parse_entry(entry)
            if not isinstance(record, GroupRecord):
                continue
            if record.value is None:
                found = {at: one for at, one in found.items() if at[0] != record.group_id}
            elif record.value.members:
                assignment = sorted(member.assignment for member in record.value.members)
                at = record.group_id, record.value.generation
                assert found.setdefault(at, assignment) == assignment

    def any_prefix_of_the_log_can_be_loaded(self) -> None:
        log = self.world.log
        for end in range(0, len(log), 1 + len(log) // 8):
            ShardWorld(self.world.config, log[:end], self.world.topics)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.refuse_appends = None
        self.replication_lags_or_not(False)
        self.acknowledged_offsets_are_fetched()
        # All clients are silent from now on: groups must not stay in a rebalance.
        self.world.advance(600_000)
        self.read_answers()
        for group in self.world.shard.core.groups.values():
            assert group.state is GroupState.EMPTY, f"{group.group_id} is in {group.state}"
        for ticket in self.asked:
            assert ticket in self.world.answers, f"request {ticket} was never answered"
        self.world.forget()
        for group_id, offsets in self.world.shard.appended.offsets.items():
            for at, committed in offsets.items():
                assert not self.world.shard.core.is_stale(group_id, at, committed)
        assert self.world.restarted().shard.appended == self.world.shard.appended
        self.each_generation_has_one_assignment()
        self.any_prefix_of_the_log_can_be_loaded()


TestCoordinator = Coordinator.TestCase
TestCoordinator.settings = settings(
    max_examples=60,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
