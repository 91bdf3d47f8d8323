"""Effects of a partition: the values it returns, and the table that carries them out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from broker.replication.partition import effects as all_effects
from broker.replication.partition.effects import (
    EPOCHS_UNSAVED,
    FLUSH_WANTED,
    NOTHING,
    Effect,
    Effects,
    Elected,
    FlushWanted,
    Followed,
    Propose,
    Resigned,
    Stopped,
)
from broker.replication.partition.followers import follower_fetched
from broker.replication.partition.high_watermark import appended, epochs_saved
from broker.replication.partition.isr import IsrMember, IsrProposal
from broker.replication.partition.leadership import (
    become_deleted,
    become_follower,
    become_leader,
    become_offline,
)
from broker.replication.partition.partition import Partition
from broker.replication.replicas.collaborators import Collaborators
from broker.replication.replicas.effect_table import EffectTable
from broker.replication.subscriptions import notifications
from broker.replication.subscriptions.notifications import (
    Committed,
    Interrupted,
    LowWatermarkMoved,
    Notification,
    Readable,
    Released,
    StableMoved,
)
from broker.replication.subscriptions.subscriptions import NOTIFY, WatchKey
from protocol.errors import ErrorCode
from storage.log.append import AppendInfo
from testkit.memory.broker import NODE, OTHER, Harness, batch, topic_id

PROPOSAL = IsrProposal(0, 0, (IsrMember(1, 1),))


class Ports:
    """A recorder of all effects that are carried out."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.table = EffectTable(lambda partition: self.asked.append("local logs"))
        self.table.to = Collaborators(
            flush=lambda partition: self.asked.append("flush"),
            save_epochs=lambda partition: self.asked.append("save epochs"),
            propose=lambda partition, proposal: self.asked.append(f"propose {proposal}"),
            fetchers=self,
            tier=self,  # type: ignore[arg-type]
        )
        self.table.listeners["t"] = [self]

    def follow(self, partition: Partition) -> None:
        self.asked.append("fetch")

    def unfollow(self, partition: Partition) -> None:
        self.asked.append("fetch no more")

    def restate(self, partition: Partition) -> None:
        self.asked.append("restate")

    def elected(self, partition: int, leader_epoch: int) -> None:
        self.asked.append(f"coordinator elected in {leader_epoch}")

    def resigned(self, partition: int, leader_epoch: int | None) -> None:
        self.asked.append(f"coordinator resigned for {leader_epoch}")

    def __getattr__(self, name: str) -> Any:
        return lambda partition: self.asked.append(f"tier {name}")


class Heard:
    """A reader, and a waiting request."""

    def __init__(self, *, replica: bool = False, committed: bool = False) -> None:
        self.replica = replica
        self.committed = committed
        self.told: list[Any] = []

    def touched(self, key: WatchKey, size_bytes: int) -> None:
        self.told.append(size_bytes)

    def interrupted(self, key: WatchKey) -> None:
        self.told.append("interrupted")

    def resolved(self, slot: Any, error: ErrorCode) -> None:
        self.told.append(slot)


def alone(h: Harness) -> Partition:
    """Return a partition without a role."""
    return Partition("t", topic_id(1), 0, node_id=NODE, log=h.partition().log)


def lead(partition: Partition, epoch: int = 5, *, isr: tuple[int, ...] = (NODE,)) -> Effects:
    return become_leader(
        partition,
        leader_epoch=epoch,
        partition_epoch=epoch,
        replicas=(NODE, OTHER),
        isr=isr,
        now_ms=0,
    )


def follow(partition: Partition, epoch: int, leader: int = OTHER) -> Effects:
    return become_follower(
        partition,
        leader_id=leader,
        leader_epoch=epoch,
        partition_epoch=epoch,
        replicas=(NODE, OTHER),
        isr=(),
    )


def append(partition: Partition) -> AppendInfo:
    return partition.log.append_as_leader(bytearray(batch(b"a")), partition.leader_epoch, 0)


@pytest.fixture
async def partition() -> Partition:
    h = Harness()
    h.create_topic()
    return alone(h)


async def test_each_kind_of_effect_has_its_row(partition: Partition) -> None:
    follow(partition, 1)
    kinds = get_args(Effect)
    assert {
        one
        for module in (all_effects, notifications)
        for one in vars(module).values()
        if isinstance(one, type)
    } - {IsrProposal, ErrorCode} == set(kinds)
    assert set(NOTIFY) == set(get_args(Notification))
    given: dict[type, Any] = {
        Propose: Propose(PROPOSAL),
        Resigned: Resigned(7),
        Released: Released(ErrorCode.KAFKA_STORAGE_ERROR),
        LowWatermarkMoved: LowWatermarkMoved(3),
        Readable: Readable(1),
        Committed: Committed(1, 1),
        StableMoved: StableMoved(1),
    }
    for kind in kinds:
        stable = kind is StableMoved
        ports, reader = Ports(), Heard(replica=not stable, committed=stable)
        partition.watch(reader, ("t", 0))
        assert partition.wait_for_low_watermark(3, reader, "low watermark")
        ports.table.carry_out(partition, (given.get(kind) or kind(),))
        assert bool(ports.asked) is not bool(reader.told), kind
        partition.unwatch(reader)
        partition.subscriptions.released(Released(ErrorCode.NONE))
    asked = Ports()
    asked.table.carry_out(partition, (Propose(PROPOSAL), FlushWanted()))
    assert asked.asked == [f"propose {PROPOSAL}", "flush"]


async def test_role_changes_call_the_ports_in_the_required_order(partition: Partition) -> None:
    ports = Ports()
    for change in (lambda: lead(partition), lambda: lead(partition, 6)):
        ports.table.carry_out(partition, change())
        ports.asked.append("-")
    for epoch, leader in ((7, OTHER), (8, -1)):
        ports.table.carry_out(partition, follow(partition, epoch, leader))
        ports.asked.append("-")
    assert ports.asked == [
        *("fetch no more", "coordinator elected in 5", "tier led", "-"),
        *("fetch no more", "coordinator elected in 6", "tier led"),
        *("-", "coordinator resigned for 7", "fetch no more", "fetch", "tier followed", "-"),
        *("fetch no more", "tier followed", "-"),
    ]


async def test_role_change_returns_the_effects_of_its_transition() -> None:
    h = Harness()
    h.create_topic()
    partition = alone(h)
    elsewhere = Released(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert follow(partition, 1) == (elsewhere, Followed())
    assert follow(partition, 1) is NOTHING
    assert lead(partition, 2) == (Interrupted(), Elected())
    assert lead(partition, 2) is NOTHING
    assert lead(partition, 3) == (Interrupted(), Elected()), "it led before: coordinators go on"
    assert follow(partition, 4) == (elsewhere, Resigned(4), Followed())
    assert become_deleted(partition) == (elsewhere, Stopped())
    for end, wanted in (
        (become_deleted, (elsewhere, Resigned(None), Stopped())),
        (become_offline, (Released(ErrorCode.KAFKA_STORAGE_ERROR), Stopped())),
    ):
        led = alone(h)
        assert lead(led, 5) == (Interrupted(), Elected())
        assert end(led) == wanted


async def test_an_append_wants_nothing_but_its_epoch_and_its_flush(partition: Partition) -> None:
    lead(partition, 5)
    assert appended(partition, append(partition), 70) == EPOCHS_UNSAVED
    partition.log.history.write()
    assert epochs_saved(partition) is NOTHING
    assert partition.log.high_watermark == 1
    assert appended(partition, append(partition), 70) is NOTHING, "no object is made for it"
    partition.log.configure(replace(partition.log.config, flush_messages=1))
    assert appended(partition, append(partition), 70) == FLUSH_WANTED
    assert partition.log.high_watermark == 2


async def test_waits_are_resolved_by_effects_and_not_by_the_partition(
    partition: Partition,
) -> None:
    lead(partition, 5)
    heard = Heard()
    assert appended(partition, append(partition), 70) == EPOCHS_UNSAVED
    assert partition.wait_for_commit(1, heard, "first")
    partition.log.history.write()
    effects = epochs_saved(partition)
    assert (effects, partition.log.high_watermark) == ((Committed(1, 70),), 1)
    assert heard.told == [], "the partition calls nobody"
    table = Ports().table
    table.carry_out(partition, effects)
    assert heard.told == ["first"]
    follower = Heard(replica=True)
    partition.watch(follower, ("t", 0))
    effects = appended(partition, append(partition), 80)
    assert effects == (Readable(80), Committed(2, 80))
    table.carry_out(partition, effects)
    assert follower.told == [80, 0], "bytes, and then the high watermark"
    assert lead(partition, 6) == (Interrupted(), Elected())
    assert partition.wait_for_low_watermark(1, heard, "deleted")
    partition.isr = frozenset({NODE, OTHER})
    effects = follower_fetched(partition, OTHER, offset=2, log_start=1, broker_epoch=9, now_ms=0)
    assert effects == (LowWatermarkMoved(0),)


async def test_a_follower_that_may_join_is_proposed(partition: Partition) -> None:
    lead(partition, 5)
    asked = {"offset": 0, "log_start": 0, "broker_epoch": 9, "now_ms": 0}
    assert follower_fetched(partition, OTHER, **asked) is NOTHING
    assert partition.proposal is None
    effects = follower_fetched(partition, OTHER, **asked, may_join=True)
    assert partition.proposal is not None
    assert effects == (Propose(partition.proposal),)
    assert partition.proposal.members == (IsrMember(NODE, -1), IsrMember(OTHER, 9))
