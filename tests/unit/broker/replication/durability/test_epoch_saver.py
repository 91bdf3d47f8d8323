"""P18: a record becomes visible once leader-epoch-checkpoint contains its epoch."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest

from broker.replication.durability import epoch_saver
from broker.replication.durability.epoch_saver import EpochSaver
from broker.replication.partition.effects import NOTHING, Effects
from storage.files import MemoryFiles
from storage.log.epoch_file import TOGETHER, EpochWrite
from storage.log.epoch_history import EpochHistory
from testkit.memory.replicas import Broker, Cluster

PATH = "/data/t-0/leader-epoch-checkpoint"


class Workers(MemoryFiles):
    """Workers that wait until the test releases them."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.calls: list[int] = []
        self.error: OSError | None = None

    async def run(self, function: Any, *args: Any) -> Any:
        self.calls.append(len(args[1]))
        await self.go.wait()
        return [self.error for _ in args[1]] if self.error else function(*args)


def save_in_workers(broker: Broker) -> Workers:
    """Let waiting workers save this broker's epochs from now on."""
    workers = Workers()
    workers._inodes, workers._children = broker.files._inodes, broker.files._children  # type: ignore[attr-defined]
    saver = EpochSaver(
        workers, broker.supervisor, broker.replicas.storage_failed, broker.replicas.carry_out
    )
    broker.connect(save_epochs=saver.want)
    return workers


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_high_watermark_waits_until_the_leader_epoch_is_in_its_file() -> None:
    cluster = Cluster(1)
    workers = save_in_workers(cluster[1])
    cluster.create(1)
    await turns()
    assert workers.calls == [], "an idle partition that changed its leader costs nothing"
    answer = cluster[1].append(b"a", acks=-1)
    await turns()
    cluster[1].append(b"b")
    await turns()
    assert (cluster[1].high_watermark, workers.calls) == (0, [1])
    assert not answer.done() and not workers.exists(PATH)
    workers.go.set()
    await turns()
    assert workers.read(PATH) == b"0\n1\n0 0\n"
    assert cluster[1].high_watermark == 2 and answer.done()
    cluster[1].append(b"c")
    await turns()
    assert (cluster[1].high_watermark, workers.calls) == (3, [1]), "once per epoch"


async def test_new_leader_of_a_partition_with_records_saves_its_epoch_at_once() -> None:
    """The first record of the new leader then need not wait for the disk."""
    cluster = Cluster(2)
    cluster.create(1, 2)
    cluster[1].append(b"a")
    cluster.fetch(2, 1)
    await turns()
    workers = save_in_workers(cluster[2])
    workers.go.set()
    assert (cluster[2].high_watermark, cluster[2].log.log_end_offset) == (0, 1)
    cluster.change(leader=2)
    await turns()
    assert workers.calls == [1]
    assert workers.read(PATH) == b"0\n2\n0 0\n1 1\n"
    cluster[2].append(b"b")
    await turns()
    assert workers.calls == [1], "it is in the file already"


async def test_a_follower_shows_it_when_its_own_file_does() -> None:
    cluster = Cluster(2)
    cluster.create(1, 2)
    workers = save_in_workers(cluster[2])
    cluster[1].append(b"a")
    cluster.fetch(2, 1)
    await turns()
    assert workers.calls == [1], "it begins with the record, not with the high watermark"
    cluster.fetch(2, 1)
    assert (cluster[1].high_watermark, cluster[2].high_watermark) == (1, 0)
    workers.go.set()
    await turns()
    assert cluster[2].high_watermark == 1, "without another word of the leader"


async def test_an_epoch_that_begins_while_another_is_saved_is_saved_next() -> None:
    """On a follower nothing else triggers the save before the next record."""
    cluster = Cluster(2)
    cluster.create(1, 2)
    workers = save_in_workers(cluster[2])
    cluster[1].append(b"a")
    cluster.fetch(2, 1)
    await turns()
    assert workers.calls == [1]
    cluster.change(leader=1)
    cluster[1].append(b"b")
    cluster.fetch(2, 1, times=2)
    assert (cluster[1].high_watermark, cluster[2].high_watermark) == (2, 0)
    workers.go.set()
    await turns()
    assert (cluster[2].high_watermark, workers.calls) == (2, [1, 1])


async def test_epoch_saver_does_not_check_a_held_epoch_file_repeatedly() -> None:
    """S5: the high watermark waits for more than the file, so the saving must not spin."""
    cluster = Cluster(1)
    workers = save_in_workers(cluster[1])
    workers.go.set()
    cluster.create(1)
    looks: list[EpochHistory] = []

    def looked(history: EpochHistory) -> EpochWrite | None:
        looks.append(history)
        assert len(looks) < 10, "for ever"
        return to_write(history)

    to_write = EpochHistory.to_write
    cluster[1].log.epoch_file.hold(0)
    with mock.patch.object(EpochHistory, "to_write", looked):
        cluster[1].append(b"a")
        await turns()
        cluster[1].append(b"b")
        await turns()
    assert (cluster[1].failures, cluster[1].high_watermark, len(looks)) == ([], 0, 1)


async def test_high_watermark_of_a_former_leader_is_not_applied_after_a_change() -> None:
    cluster = Cluster(3)
    cluster.create(1, 2, 3)
    workers = save_in_workers(cluster[2])
    cluster[1].append(b"a")
    for follower in (2, 3, 2, 3, 2):
        cluster.fetch(follower, 1)
    assert (cluster[1].high_watermark, cluster[2].high_watermark) == (1, 0)
    cluster.change(2, leader=3, isr=[2, 3])
    workers.go.set()
    await turns()
    assert cluster[2].high_watermark == 0


async def test_a_disk_that_refuses_takes_the_partition_offline() -> None:
    cluster = Cluster(1)
    workers = save_in_workers(cluster[1])
    cluster.create(1)
    workers.error = OSError(28, "no space left on device")
    workers.go.set()
    cluster[1].append(b"a")
    await turns()
    assert cluster[1].failures == ["log of t-0"]
    assert cluster[1].high_watermark == 0


async def test_epoch_saver_ignores_a_partition_deleted_during_the_write() -> None:
    cluster = Cluster(1)
    workers = save_in_workers(cluster[1])
    cluster.create(1)
    cluster[1].append(b"a")
    await turns()
    cluster[1].logs.delete("t", 0)
    workers.go.set()
    await turns()
    assert cluster[1].failures == []


@pytest.mark.parametrize("count", [3, 200])
async def test_many_share_few_workers(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    under_way = most = 0

    class Counted(MemoryFiles):
        async def run(self, function: Any, *args: Any) -> Any:
            nonlocal under_way, most
            calls.append(len(args[1]))
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1
            return [None for _ in args[1]]

    class Waiting:
        def __init__(self) -> None:
            self.log = self.history = self
            self.closed = self.saved = False

        def to_write(self) -> object:
            return object()

        def written(self, write: object) -> None:
            return

    def saved(one: Any) -> Effects:
        one.saved = True
        return NOTHING

    monkeypatch.setattr(epoch_saver, "epochs_saved", saved)
    cluster = Cluster(1)
    saver = EpochSaver(
        Counted(),
        cluster[1].supervisor,
        lambda partition, error: None,
        cluster[1].replicas.carry_out,
    )
    waiting: list[Any] = [Waiting() for _ in range(count)]
    for one in waiting + waiting:
        saver.want(one)
    await turns()
    await turns()
    assert all(one.saved for one in waiting)
    assert sum(calls) == count and max(calls) <= TOGETHER
    assert most <= 4


async def test_epochs_that_are_saved_by_their_turn_cost_no_worker() -> None:
    """Maintenance of the log manager may have written the file since the save was requested."""
    cluster = Cluster(1)
    workers = save_in_workers(cluster[1])
    cluster.create(1)
    await turns()
    cluster[1].append(b"a")
    cluster[1].log.history.write()
    await turns()
    assert (workers.calls, cluster[1].high_watermark) == ([], 1)
