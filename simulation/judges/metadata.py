"""The metadata log as all nodes together have committed it, and the laws of its records.

Records that a node reports as committed are compared with those of other nodes (P5, M14). Every
record is replayed once into an image of the judge's own. The judge checks the effect of a record on
a partition or a broker there, before any node acts on it (P9, P10, P13, P15, P16, P21, P22, P23).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from metalog.image.features import METADATA_VERSION
from metalog.image.replay import replay
from metalog.image.values import (
    EMPTY_IMAGE,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from metalog.quorum.batches import read_batches
from metalog.quorum.log import MetadataLog
from protocol.batch.header import iter_batches
from protocol.metadata import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from simulation.judges.election_laws import Election, ElectionLaws
from simulation.judges.election_truth import ElectionTruth, least_isr
from simulation.world.invariants import Key, Violation, require

READ_BYTES = 1 << 20
PRODUCER_IDS = 1000
"""Producer ids in each block (KIP-730)."""


class MetadataTruth:
    """The committed metadata.

    Callbacks: `joined(key, broker id)` for each replica that enters an ISR, `changed(key, old,
    new)` for each change of a partition, `removed(topic)` for each deleted topic.
    `ended(incarnation)` returns whether that process is over. `given_up` may grow. `static` are the
    settings of all nodes, `now_s` returns the virtual time.
    """

    def __init__(
        self,
        *,
        joined: Callable[[Key, int], None],
        changed: Callable[[Key, PartitionImage | None, PartitionImage], None],
        removed: Callable[[TopicImage], None],
        ended: Callable[[bytes], bool],
        given_up: Collection[str] = (),
        static: Mapping[str, str] | None = None,
        now_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.eligible = ElectionTruth(static or {})
        self.elections = ElectionLaws(self.eligible, given_up)
        self._now_s = now_s
        self.image: MetadataImage = EMPTY_IMAGE
        self.end = 0
        self.formatted: int | None = None
        """The metadata.version that the first records set; None: any."""
        self.levels: set[tuple[str, int]] = set()
        """Features and levels that operators have requested."""
        self.moves: dict[tuple[str, int], set[frozenset[int]]] = {}
        """Replica sets that operators have requested, by topic and index."""
        self.records = 0
        self.topic_names: dict[bytes, str] = {}
        """Names of all topics that ever existed, by id."""
        self.addresses: dict[int, set[tuple[str, int]]] = {}
        """All addresses that each broker has ever registered."""
        self.last_change: dict[Key, PartitionRecord | PartitionChangeRecord] = {}
        """The last record of each partition, with the kind and the cause of an election."""
        self.heard: list[Callable[[Election, int], None]] = []
        """Callbacks for each change of an existing partition, with the wall clock time at which its
        controller wrote the record."""
        self._judged = EMPTY_IMAGE
        self._written_ms = 0
        self._batches: dict[int, tuple[int, int]] = {}
        self._stays: dict[Key, int] = {}
        """The replica that stayed alone in a partition's ISR before eligible replicas were enabled.
        With the feature it may stay while it is alone, whatever else changes (a reassignment):
        Kafka removes it only when its broker has ended uncleanly."""
        self._joined = joined
        self._changed = changed
        self._removed = removed
        self._ended = ended

    def committed(self, where: str, log: MetadataLog, begin: int, end: int) -> None:
        """Judge and replay the part [begin, end) of its log that a node has committed."""
        at = max(begin, log.start_offset)
        while at < end:
            data = log.read(at, READ_BYTES)
            before = at
            for header, position in iter_batches(data):
                if header.next_offset > end:
                    break
                whole = data[position : position + header.size_bytes]
                self._take(where, header.base_offset, header.next_offset, whole)
                at = header.next_offset
            require(at > before, f"P5: {where} has no whole batch at {at}, committed is {end}")

    def _take(self, where: str, base: int, end: int, data: bytes) -> None:
        found = (end, zlib.crc32(data))
        known = self._batches.get(base)
        if known is not None or base < self.end:
            require(known == found, f"P5, M14: {where} commits another batch at {base}")
            return
        require(base == self.end, f"{where} commits {base}, known is only up to {self.end}")
        self._batches[base] = found
        self.end = end
        (batch,) = read_batches(data)
        self._written_ms = batch.append_timestamp_ms
        for number, record in enumerate(batch.records):
            self._replay(base + number, record)
        if batch.records:
            self._judge_image(base)

    def _replay(self, offset: int, record: Any) -> None:
        self.records += 1
        before = self.image
        self.image = replay(before, record)
        if isinstance(record, FeatureLevelRecord | ProducerIdsRecord):
            self._judge_without_effect(offset, before, record)
        elif isinstance(record, RegisterBrokerRecord):
            self._judge_registration(offset, before, record.broker_id)
            self._note_addresses(record.broker_id)
        elif isinstance(record, TopicRecord):
            self.topic_names[record.topic_id] = record.name
        elif isinstance(record, RemoveTopicRecord):
            self._removed(before.topics.by_id[record.topic_id])
        elif isinstance(record, PartitionRecord | PartitionChangeRecord):
            key = (record.topic_id, record.partition_id)
            self.last_change[key] = record
            old, new = before.topics.partition(*key), self.image.topics.partition(*key)
            assert new is not None
            where = f"record {offset}, {self.image.topics.by_id[key[0]].name}-{key[1]}"
            if old is not None:
                topic = self.image.topics.by_id[key[0]].name
                self._judge_change(where, old, new)
                self._judge_move(where, (topic, key[1]), old, new)
                now_s, written_ms = self._now_s(), self._written_ms
                change = Election(where, topic, key, before, old, new, record, now_s, written_ms)
                if new.leader not in (old.leader, -1):
                    self.elections.judge(change)
                for tell in self.heard:
                    tell(change, self._written_ms)
            self.eligible.changed(key, old, new, self._now_s(), self._written_ms)
            for broker_id in set(new.isr) - set(old.isr if old else new.isr):
                self._judge_join(where, broker_id)
                self._joined(key, broker_id)
            self._changed(key, old, new)

    def _judge_without_effect(
        self, offset: int, before: MetadataImage, record: FeatureLevelRecord | ProducerIdsRecord
    ) -> None:
        """Judge a record that needs only the image before it."""
        if isinstance(record, ProducerIdsRecord):
            _judge_producer_ids(offset, before, record)
        else:
            self._judge_level(offset, before, record)

    def _judge_level(self, offset: int, before: MetadataImage, record: FeatureLevelRecord) -> None:
        """Judge that the first records are those of formatting, and that no controller writes them
        again (KIP-1170). An operator may request a level that a feature has: Kafka writes it."""
        name, level = record.name, record.feature_level
        asked = (name, level) in self.levels
        require(
            asked or before.features.get(name) != level,
            f"M18: record {offset} sets {name} to {level} again",
        )
        if name == METADATA_VERSION and name not in before.features:
            require(
                self.formatted in (None, level),
                f"M18: record {offset} sets {name} to {level}, formatted is {self.formatted}",
            )

    def _note_addresses(self, broker_id: int) -> None:
        found = {(one.host, one.port) for one in self.image.cluster.brokers[broker_id].endpoints}
        self.addresses.setdefault(broker_id, set()).update(found)

    def _judge_registration(self, offset: int, before: MetadataImage, broker_id: int) -> None:
        old, new = before.cluster.brokers.get(broker_id), self.image.cluster.brokers[broker_id]
        where = f"record {offset}: broker {broker_id}"
        again = old is not None and old.incarnation_id == new.incarnation_id
        same = again and old is not None and new.epoch == old.epoch
        require(same or new.epoch == offset, f"P16: {where} has epoch {new.epoch}")
        if old is not None:
            grown = same or new.epoch > old.epoch
            require(grown, f"P16: {where}: epoch {new.epoch} after {old.epoch}")
            # A session may have expired before the fencing is committed: the new process is alone.
            alone = again or old.fenced or self._ended(old.incarnation_id)
            require(alone, f"P16: {where} registers though another one is alive")

    def _judge_change(self, where: str, old: PartitionImage, new: PartitionImage) -> None:
        require(
            new.partition_epoch == old.partition_epoch + 1,
            f"P15: {where}: partition epoch {new.partition_epoch} after {old.partition_epoch}",
        )
        require(
            new.leader_epoch >= old.leader_epoch,
            f"P15: {where}: leader epoch {new.leader_epoch} after {old.leader_epoch}",
        )
        if new.leader != old.leader:
            require(new.leader_epoch > old.leader_epoch, f"P15: {where}: a leader without an epoch")

    def _judge_move(
        self, where: str, partition: tuple[str, int], old: PartitionImage, new: PartitionImage
    ) -> None:
        """Judge that replicas change only as requested, and that all are in sync at the end (P23).
        A reassignment that needs no replica to catch up begins and ends in one record."""
        if new.adding or new.removing or set(new.replicas) == set(old.replicas):
            return
        target = frozenset(new.replicas)
        if target == frozenset(old.replicas) - frozenset(old.adding):
            return  # cancelled
        asked = target in self.moves.get(partition, ())
        require(asked, f"P23: {where}: replicas {new.replicas} after {old}, without a request")
        require(
            target <= set(new.isr), f"P23: {where}: a move ends in {new.replicas}, ISR {new.isr}"
        )

    def _judge_join(self, where: str, broker_id: int) -> None:
        broker = self.image.cluster.brokers.get(broker_id)
        require(broker is not None, f"P13: {where}: unknown broker {broker_id} joins the ISR")
        assert broker is not None
        usable = not broker.fenced and not broker.in_controlled_shutdown
        require(usable, f"P13: {where}: {broker_id} joins the ISR and is fenced or shutting down")

    def _judge_image(self, offset: int) -> None:
        self.eligible.after_batch(self.image, f"after the batch at {offset}")
        image, judged = self.image, self._judged
        self._judged = image
        same_rules = (
            image.cluster.brokers is judged.cluster.brokers
            and image.features is judged.features
            and image.configs is judged.configs
        )
        if same_rules and image.topics is judged.topics:
            return
        for topic in image.topics.by_id.values():
            before = judged.topics.by_id.get(topic.id) if same_rules else None
            if before is topic:
                continue
            for index, one in topic.partitions.items():
                if before is None or before.partitions.get(index) is not one:
                    self._judge_partition(f"after the batch at {offset}", topic, index, one)

    def _judge_partition(
        self, when: str, topic: TopicImage, index: int, one: PartitionImage
    ) -> None:
        brokers = self.image.cluster.brokers
        with_elr = self.image.elr_enabled
        isr, elr, replicas = set(one.isr), set(one.elr), set(one.replicas)
        sets = (one.elr or one.last_known_elr) and with_elr
        what = f"ISR {one.isr}, ELR {one.elr}, LastKnownELR {one.last_known_elr}"
        where = f"{when}, {topic.name}-{index}"
        require(bool(isr) or with_elr, f"P10: {where}: the ISR is empty")
        if sets and len(isr) >= least_isr(self.image, topic.name, one):
            raise Violation(f"P9: {where} is at its minimum: {what}")
        if not isr <= replicas or len(isr) != len(one.isr):
            raise Violation(f"P9: {where}: {what}, replicas {one.replicas}")
        if isr & elr or not elr <= replicas:
            raise Violation(f"P9: {where}: {what}, replicas {one.replicas}")
        require(one.leader < 0 or one.leader in isr, f"P9: {where}: leader {one.leader}, {what}")
        fenced = [b for b in isr if b not in brokers or brokers[b].fenced]
        alone = len(isr) == 1 and one.leader < 0
        key = (topic.id, index)
        if not alone:
            self._stays.pop(key, None)
        elif not with_elr:
            self._stays[key] = one.isr[0]
        # With the feature, only a replica that was alone before it stays in the ISR.
        if not alone or self._stays.get(key) != one.isr[0]:
            require(not fenced, f"P10: {where}: fenced {fenced} in the ISR {one.isr}")


def _judge_producer_ids(offset: int, before: MetadataImage, record: ProducerIdsRecord) -> None:
    """Check that the blocks of producer ids do not overlap."""
    first, following = max(before.next_producer_id, 0), record.next_producer_id
    require(
        following - first >= PRODUCER_IDS,
        f"T3: record {offset}: {PRODUCER_IDS} producer ids from {first} on are one "
        f"broker's, the next one's begin at {following}",
    )
