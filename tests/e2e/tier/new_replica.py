"""A partition on two brokers with a tier-only beginning, and a new replica on a third
(KIP-1023)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from client.admin import Admin, NewTopic
from client.cluster_client import ClusterClient
from client.elections import ElectionType
from protocol.batch.header import iter_batches
from protocol.batch.records import read_batch
from protocol.ids import uuid_to_text
from protocol.metadata import PartitionChangeRecord, PartitionRecord, decode_record
from storage.log.bootstrap import MARKER
from storage.log.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    decode_epochs,
    decode_offsets,
)
from storage.log.epochs import EpochEntry
from testkit.processes.quorum_cluster import NodeProcess, ProcessCluster
from testkit.processes.store_proxy import StoreProxy
from testkit.processes.waiting import until
from tests.e2e.numbers import TIMEOUT_S

TOPIC = "fresh"
SEGMENT_BYTES = 8 << 10
RECORDS = 300
"""Bytes of some segments."""
EARLIEST, EARLIEST_PENDING_UPLOAD = -2, -6
CONFIG = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": str(2 * SEGMENT_BYTES),
    "min.insync.replicas": "1",
}
SLOW_DISK = {
    "kraftbox.fault.files": "slow",
    "kraftbox.fault.files.flush.ms": "300",
    "kraftbox.fault.files.read.ms": "0",
    "kraftbox.fault.files.on.signal": "true",
}
"""Flush time of the new replica's broker: a step stays visible as long as its flush."""

T = TypeVar("T")


class NewReplica:
    """The brokers, the partition, and a producer of it that runs through all faults."""

    def __init__(self, cluster: ProcessCluster, proxy: StoreProxy) -> None:
        self.cluster = cluster
        self.proxy = proxy
        *self.old, self.new = cluster.brokers
        self.sent: dict[int, int] = {}
        """Acknowledged values by offset."""
        self.produced = 0
        self.topic_id = ""
        self._is_slow = False
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "batch.num.messages": 10,
                "enable.idempotence": True,
                "log_level": 0,
            }
        )

    def prepare(self) -> None:
        async def create(client: ClusterClient) -> str:
            replicas = {0: [one.id for one in self.old]}
            await Admin(client).create_topics([NewTopic(TOPIC, -1, -1, CONFIG, replicas)])
            return uuid_to_text((await client.topic(TOPIC, is_new=True)).topic_id)

        self.topic_id = self._asked(create)

    def begin_anew(self) -> None:
        """Reset: all brokers live, no request fails, and the third broker has no replica."""
        self.proxy.heal()
        self.revive()
        self.slow_down(False)
        self.move(*self.old)
        ids = sorted(one.id for one in self.old)
        until(f"an ISR of {ids}", lambda: sorted(self.decided()[1]) == ids)
        until("its folder is gone", lambda: not self._paths(self.new, f"{TOPIC}-0*/*.log"))

    def revive(self) -> None:
        for broker in self.cluster.brokers:
            if broker.process is None:
                broker.start()
                self._is_slow &= broker is not self.new

    def slow_down(self, slow: bool = True) -> None:
        """Slow down the disk of the new replica's broker."""
        if slow is not self._is_slow:
            assert self.new.process is not None
            os.kill(self.new.process.pid, signal.SIGUSR2)
            self._is_slow = slow

    # --- what clients do ------------------------------------------------------------------------

    def _asked(self, ask: Callable[[ClusterClient], Awaitable[T]]) -> T:
        async def run() -> T:
            async with await ClusterClient.connect(self.cluster.bootstrap) as client:
                return await ask(client)

        return asyncio.run(run())

    def offset(self, which: int) -> int:
        async def ask(client: ClusterClient) -> int:
            return (await client.list_offset(TOPIC, 0, which)).offset

        return self._asked(ask)

    def begin_to_send(self, count: int) -> None:
        """Send numbers one after the other through all of the test."""
        for number in range(self.produced, self.produced + count):
            self._producer.produce(TOPIC, b"%0100d" % number, callback=self._delivered)
            self._producer.poll(0)
        self.produced += count

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offset, value = message.offset(), message.value()
        assert offset is not None and value is not None
        self.sent[offset] = int(value)

    def send(self, count: int) -> None:
        self.begin_to_send(count)
        assert self._producer.flush(TIMEOUT_S) == 0

    def acknowledged(self) -> int:
        """Return the number of acknowledged records so far."""
        self._producer.poll(0)
        return len(self.sent)

    def fill(self) -> None:
        """Fill `count` more closed segments, which are soon in the tier; the first offset is on no
        disk."""
        self.send(RECORDS)
        leader = self.leader()
        until(
            "all that is closed is in the tier",
            lambda: (
                self.bases(leader)[0] > 0
                and self.offset(EARLIEST_PENDING_UPLOAD) >= self.bases(leader)[-1]
            ),
            every_s=0.1,
        )

    def move(self, *replicas: NodeProcess) -> None:
        async def ask(client: ClusterClient) -> None:
            await Admin(client).reassign((TOPIC, 0), [one.id for one in replicas])

        self._asked(ask)

    def elect(self, leader: NodeProcess, *others: NodeProcess) -> None:
        """Elect one of the replicas; all of the brokers have one."""
        self.move(leader, *others)

        async def ask(client: ClusterClient) -> None:
            await Admin(client).elect_leaders(ElectionType.PREFERRED, [(TOPIC, 0)])

        self._asked(ask)
        self.until_led_by(leader)

    def delete_records(self, before: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        for future in admin.delete_records([TopicPartition(TOPIC, 0, before)]).values():
            future.result(TIMEOUT_S)

    def read(self) -> dict[int, int]:
        """Read all records of the partition, by offset, as a consumer gets them."""
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap, "group.id": "unused"})
        start, end = self.offset(EARLIEST), max(self.sent) + 1
        consumer.assign([TopicPartition(TOPIC, 0, start)])
        found: dict[int, int] = {}

        def all_of_it() -> bool:
            for message in consumer.consume(10_000, 1):
                assert message.error() is None, message.error()
                offset, value = message.offset(), message.value()
                assert offset is not None and value is not None and offset not in found
                found[offset] = int(value)
            return max(found, default=-1) + 1 >= end

        until(f"all is read up to {end}", all_of_it)
        consumer.close()
        return found

    def serves_all(self) -> None:
        """Assert that each offset from the log start on has its acknowledged record.

        No record is there twice or missing: neither in between nor of those that the producer sent.
        """
        start = self.offset(EARLIEST)
        assert self.read() == {at: one for at, one in self.sent.items() if at >= start}
        assert sorted(self.sent.values()) == list(range(self.produced))
        ordered = [self.sent[at] for at in sorted(self.sent)]
        assert ordered == sorted(ordered)

    # --- what the controller has decided --------------------------------------------------------

    def decided(self) -> tuple[int, list[int]]:
        """Return leader and ISR by the controller's log."""
        (controller,) = self.cluster.controllers
        leader, isr = -1, list[int]()
        for path in sorted(controller.metadata_dir.glob("*.log")):
            data = path.read_bytes()
            for header, at in iter_batches(data):
                if header.is_control:
                    continue
                for one in read_batch(data, at, header):
                    record, _ = decode_record(one.value or b"")
                    if not isinstance(record, PartitionRecord | PartitionChangeRecord):
                        continue
                    if uuid_to_text(record.topic_id) != self.topic_id:
                        continue
                    isr = isr if record.isr is None else record.isr
                    leader = leader if record.leader == -2 else record.leader
        return leader, isr

    def leader(self) -> NodeProcess:
        return self.cluster.nodes[until("a leader", lambda: max(self.decided()[0], 0))]

    def until_led_by(self, leader: NodeProcess) -> None:
        until(f"{leader.id} leads", lambda: self.decided()[0] == leader.id)

    def until_in_sync(self, *wanted: NodeProcess) -> None:
        """Wait until the new replica is in sync; before it has begun, it must be in no ISR."""
        ids = sorted(one.id for one in wanted)

        def there() -> bool:
            isr = sorted(self.decided()[1])
            if not self.has_begun():
                self.not_in_sync(isr)
            return isr == ids

        try:
            until(f"an ISR of {ids}", there)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.decided()}") from None

    def not_in_sync(self, isr: Sequence[int]) -> None:
        assert self.new.id not in isr, f"{isr} while its log has not begun: {self.bases(self.new)}"

    # --- what is on the disks -------------------------------------------------------------------

    def bases(self, broker: NodeProcess) -> list[int]:
        """Return base offsets of its segments; [0] if it has none."""
        return sorted(int(path.stem) for path in self._paths(broker, f"{TOPIC}-0/*.log")) or [0]

    @property
    def has_marker(self) -> bool:
        return (self.new.data / f"{TOPIC}-0" / MARKER).exists()

    def has_begun(self) -> bool:
        """Return whether the log has begun; a new log contains offset 0, which is on no disk."""
        return not self.has_marker and self.bases(self.new)[0] > 0

    def log_start(self, broker: NodeProcess) -> int:
        """Return the log start as it would be after a crash."""
        path = broker.data / LOG_START_CHECKPOINT
        told = decode_offsets(path.read_bytes()) if path.exists() else {}
        return told.get((TOPIC, 0), self.bases(broker)[0])

    def epochs(self, broker: NodeProcess) -> list[EpochEntry]:
        path = broker.data / f"{TOPIC}-0" / LEADER_EPOCH_CHECKPOINT
        return decode_epochs(path.read_bytes()) if path.exists() else []

    def _paths(self, broker: NodeProcess, pattern: str) -> list[Path]:
        """Return the paths in the broker's folder. The listing is repeated if one disappears."""
        while True:
            with suppress(FileNotFoundError):
                return list(broker.data.glob(pattern))

    def _batches(self, broker: NodeProcess) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for data in self._files(broker, f"{TOPIC}-0/*.log").values():
            found |= {h.base_offset: data[at : at + h.size_bytes] for h, at in iter_batches(data)}
        return found

    def _files(self, broker: NodeProcess, pattern: str) -> dict[str, bytes]:
        """Return contents by name, without files that local retention removes at the same time."""
        found: dict[str, bytes] = {}
        for path in self._paths(broker, pattern):
            with suppress(FileNotFoundError):
                found[path.name] = path.read_bytes()
        return found

    def same_history(self) -> None:
        """P17: assert that common data is equal byte for byte.

        That is batches, epochs from the log start on, producers at the start of the new log, and
        the answers about data that is on no disk.
        """
        leader, new = self.leader(), self.new
        assert leader is not new
        start = self.offset(EARLIEST)

        def equal() -> bool:
            theirs, ours = self._batches(leader), self._batches(new)
            first = max(min(theirs), min(ours))
            kept = [{at: one for at, one in of.items() if at >= first} for of in (theirs, ours)]
            return kept[0] == kept[1] and self.epochs(leader) == self.epochs(new)

        until("the same batches and epochs", equal)
        until(f"a log start of {start}", lambda: self.log_start(new) == start)
        theirs, ours = (self._files(broker, f"{TOPIC}-0/*.snapshot") for broker in (leader, new))
        common = theirs.keys() & ours.keys()
        assert common
        assert {name: theirs[name] for name in common} == {name: ours[name] for name in common}
