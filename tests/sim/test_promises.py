"""The judge of replication, given replicas that silently break a promise."""

from __future__ import annotations

from errno import ENOSPC
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map

from broker.replication.partition.leadership import become_offline
from metalog.image.values import EMPTY_IMAGE, ConfigResourceType
from simulation.judges.partitions import Promises
from simulation.judges.shown_records import ReplicaState
from simulation.world.invariants import Violation
from testkit.memory.replicas import Cluster, answer

pytestmark = pytest.mark.sim


def life_of(node_id: int) -> Any:
    loop = SimpleNamespace(time=lambda: 0.0)
    machine = SimpleNamespace(node_id=node_id, cluster=SimpleNamespace(loop=loop))
    return SimpleNamespace(machine=machine)


class Watched:
    """A leader and a follower; `look` shows the judge their current state."""

    def __init__(self, *values: bytes, min_isr: int = 1) -> None:
        self.cluster = Cluster(2, min_insync_replicas=str(min_isr))
        self.cluster.create(1, 2)
        self.promises = Promises()
        configs = EMPTY_IMAGE.configs.set(
            (ConfigResourceType.TOPIC, "t"), Map({"min.insync.replicas": str(min_isr)})
        )
        self.promises.metadata.image = EMPTY_IMAGE._replace(configs=configs)
        self.seen: dict[int, Any] = {}
        self.look()
        for value in values:
            self.append(value)
            self.fetch()
            self.fetch()

    def append(self, value: bytes) -> None:
        self.cluster[1].append(value)
        self.look()

    def fetch(self) -> None:
        """Process one request of the follower and its answer."""
        self.cluster.fetch(2)
        self.look()

    def look(self) -> None:
        for node_id in (1, 2):
            one = self.cluster[node_id].partition()
            state = ReplicaState.of(one)
            old = self.seen.get(node_id)
            if state != old:
                self.seen[node_id] = state
                self.promises._look(life_of(node_id), one, old, state)


async def test_p17_follower_that_truncates_shown_records_is_found() -> None:
    """P17: the follower increases no counter, and its high watermark fell with its log."""
    w = Watched(b"a", b"b", b"c")
    follower = w.cluster[2].partition()
    assert follower.log.high_watermark == 3
    follower.log.truncate_to(1)
    assert not follower.counters.truncations_below_high_watermark
    with pytest.raises(Violation, match="P17: .* was cut to 1, it had shown 3"):
        w.look()


@pytest.mark.parametrize("empty", [True, False])
async def test_an_empty_log_has_shown_nothing_whatever_its_high_watermark_is(empty: bool) -> None:
    """P17, seed 6260: the log was to begin inside a batch, which arrived damaged."""
    w = Watched(b"a", b"b", b"c")
    w.promises.may_shrink.add("t")
    follower = w.cluster[2].partition()
    if empty:
        follower.log.truncate_fully_and_start_at(3)
        w.look()
    follower.log.truncate_fully_and_start_at(2)
    if empty:
        w.look()
    else:
        with pytest.raises(Violation, match="P17"):
            w.look()


async def test_p17_follower_may_truncate_records_that_it_has_not_shown() -> None:
    w = Watched(b"a", b"b", b"c")
    w.append(b"d")
    w.fetch()
    follower = w.cluster[2].partition()
    assert (follower.log.high_watermark, follower.log.log_end_offset) == (3, 4)
    follower.log.truncate_to(3)
    w.look()


async def test_a_leader_that_forgets_the_end_of_what_was_committed_is_found() -> None:
    """P1, P17: a leader never truncates its log; its high watermark covers records it has."""
    w = Watched(b"a", b"b", b"c")
    w.cluster[1].partition().log.truncate_to(2)
    with pytest.raises(Violation, match="P1"):
        w.look()


async def a_leader_that_waits_for_the_metadata(*, fetches: int) -> Watched:
    """Return a leader whose ISR has grown to the minimum of two by the controller's answer."""
    w = Watched(min_isr=2)
    w.cluster.change(isr=[1])
    w.fetch()
    w.append(b"a")
    for _ in range(fetches):
        w.fetch()
    assert not answer(w.cluster)
    w.look()
    leader = w.cluster[1].partition()
    assert (sorted(leader.isr), leader.partition_epoch) == ([1, 2], 2)
    assert leader.log.high_watermark == 0
    return w


async def test_a_leader_may_take_over_its_isr_and_lose_it_at_once() -> None:
    """P12: in between the ISR had the minimum, and all its members the visible records."""
    w = await a_leader_that_waits_for_the_metadata(fetches=2)
    w.cluster.change(isr=[1, 2])
    w.cluster.change(isr=[1])
    leader = w.cluster[1].partition()
    assert (sorted(leader.isr), leader.log.high_watermark) == ([1], 1)
    w.look()


async def test_a_leader_may_take_over_its_isr_and_a_next_epoch_without_it_at_once() -> None:
    """P12: as above; a new controller has fenced the other member, and the leader gets a new
    epoch."""
    w = await a_leader_that_waits_for_the_metadata(fetches=2)
    w.cluster.change(isr=[1, 2])
    w.cluster.change(isr=[1], leader=1)
    leader = w.cluster[1].partition()
    assert (leader.leader_epoch, sorted(leader.isr), leader.log.high_watermark) == (1, [1], 1)
    w.look()


async def test_leader_of_two_alone_in_its_next_epoch_shows_no_uncommitted_record() -> None:
    """P12: the leader waited for no metadata, so that ISR was never in force, whatever both
    have."""
    w = Watched(min_isr=2)
    w.append(b"a")
    w.fetch()
    assert w.cluster[2].partition().log.log_end_offset == 1
    topics = w.cluster[1].replayer.image.topics
    w.promises.metadata.image = w.promises.metadata.image._replace(topics=topics)
    w.cluster.change(isr=[1], leader=1)
    w.cluster[1].partition().log.update_high_watermark(1)
    with pytest.raises(Violation, match=r"P12: .* high watermark 1 with the ISR \[1\]"):
        w.look()


async def test_a_leader_that_shows_what_no_such_isr_had_is_found() -> None:
    """P12: no member of the ISR that the leader went through had all visible records."""
    w = await a_leader_that_waits_for_the_metadata(fetches=1)
    w.cluster[1].append(b"b")
    w.cluster.change(isr=[1, 2])
    w.cluster.change(isr=[1])
    w.cluster[1].partition().log.update_high_watermark(2)
    with pytest.raises(Violation, match=r"P12: .* high watermark 2 with the ISR \[1\]"):
        w.look()


async def shown_in_the_last_turn() -> Watched:
    """Return a record under a high watermark that the judge has not seen, and no other replica
    has."""
    w = Watched(b"a")
    w.append(b"b")
    w.fetch()
    w.cluster.fetch(2)  # reports to the leader that the follower has it
    assert w.cluster[1].partition().log.high_watermark == 2
    (truth,) = w.promises.partitions.values()
    assert truth.end == 1
    return w


async def test_records_shown_in_the_callback_in_which_the_log_fails_are_committed() -> None:
    """Seed 336: a producer has its acknowledgement, and the next append met a full disk."""
    w = await shown_in_the_last_turn()
    leader = w.cluster[1].partition()
    (truth,) = w.promises.partitions.values()
    truth.elected[leader.leader_epoch] = 1
    leader.log.guard.fail(OSError(ENOSPC, "no space left"))
    assert become_offline(leader)
    w.look()
    assert (truth.end, truth.values[1]) == (2, b"b")


async def test_records_shown_in_the_callback_in_which_the_process_ends_are_committed() -> None:
    """Seed 333: the process ends at a file call behind the acknowledgement."""
    w = await shown_in_the_last_turn()
    leader = w.cluster[1].partition()
    life = life_of(1)
    life.node = SimpleNamespace(broker=SimpleNamespace(replicas=[leader]))
    w.promises._seen[leader] = w.seen[1]
    w.promises.ending(life)
    (truth,) = w.promises.partitions.values()
    assert (truth.end, truth.values[1], truth.had[1]) == (2, b"b", 2)


async def test_a_cluster_with_a_backlog_is_not_settled() -> None:
    """P26: a write waits for members of the ISR that are far behind, as long as they need."""
    w = Watched(b"a")
    w.append(b"b")
    w.append(b"c")
    w.promises.metadata.image = w.cluster[1].replayer.image
    assert w.promises.convergence.out_of_sync() is None
    assert w.promises.convergence.backlog() == "t-0: committed is 1 of 3"
    w.append(b"written since then")
    w.fetch()
    w.fetch()
    w.append(b"the last")
    assert w.promises.convergence.backlog() is None


async def test_backlog_covers_all_partitions_at_its_first_query() -> None:
    """The order of the partitions must not matter: it differs with PYTHONHASHSEED."""
    promises: Any = Promises()
    image = SimpleNamespace(leader=1)
    topics = {
        n.encode(): SimpleNamespace(id=n.encode(), name=n, partitions={0: image})
        for n in ("a", "b")
    }
    logs = {key: SimpleNamespace(high_watermark=1, log_end_offset=3) for key in topics}
    promises._open[1] = {(key, 0): SimpleNamespace(log=log) for key, log in logs.items()}
    promises.metadata.image = SimpleNamespace(topics=SimpleNamespace(by_id=topics))
    assert promises.convergence.backlog() == "a-0: committed is 1 of 3"
    logs[b"a"].high_watermark, logs[b"b"].log_end_offset = 3, 9
    assert promises.convergence.backlog() == "b-0: committed is 1 of 3"
    logs[b"b"].high_watermark = 3
    assert promises.convergence.backlog() is None
