"""Valid requests with hostile values, of every API and version, made from the message classes.

The class is the schema: each field of each version gets a value that its wire type allows. A
plausible value (a name, id or epoch that exists) lets the handler get far. A hostile value is an
extreme of its type, a reference to a missing object, or a duplicate. The share of hostile fields is
drawn once per request, so that many requests have one bad value among good ones.

Legitimate administrative requests that would stop the run are left out or restricted: unregistering
a broker, deleting the bystanders' topic, throttling every client. Their effect would reveal nothing
about hostile input.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from crc32c import crc32c

from fuzz.mutate import mutate
from protocol.api_keys import ApiKey
from protocol.batch.records import Producer, Record, build_batch, varint
from protocol.codec import encode
from protocol.compression import Codec
from protocol.errors import EncodeError
from protocol.headers import RequestHeader, encode_request_header
from protocol.messages import request_class
from protocol.schema import Field, Kind, Struct, parse_versions

BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
UNSIGNED_BITS: Final = {"uint16": 16, "uint32": 32}
WEIRD_TEXTS: Final = (
    "", ".", "..", "a/b", "x" * 249, "x" * 250, "x" * 5000, "é" * 70, "\x00", "\n", "a b", "%s%n",
    "__cluster_metadata", "__consumer_offsets", "__transaction_state", "-1", "9" * 40, "\U0001f4a3",
)  # fmt: skip
WEIRD_BYTES: Final = (b"", b"\x00", b"\xff" * 8, b"\x00\x00\xff\xff\xff\xff", bytes(1000))
FLOATS: Final = (0.0, -1.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf"))
NOW_MS: Final = 1_700_000_000_000
VICTIMS: Final = ("walked-zstd", "walked-compacted", "walked-after", "walked-all", "plain")
"""Topics that hostile requests may change and delete."""
BYSTANDER: Final = "bystander"
"""The topic of ordinary clients: hostile requests only produce to it and read it."""
TOPIC_CONFIGS: Final[Mapping[str, Mapping[str, str]]] = {
    "walked-zstd": {"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"},
    "walked-compacted": {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"},
    "walked-after": {
        "message.timestamp.after.max.ms": str(2**63 - 1),
        "message.timestamp.before.max.ms": "1000",
    },
    "walked-all": {"cleanup.policy": "compact,delete", "compression.type": "lz4"},
    "plain": {},
}
GROUPS: Final = ("g1", "g2", "g3")

SKIPPED: Final = frozenset({ApiKey.UNREGISTER_BROKER, ApiKey.UPDATE_FEATURES})
CHANGING: Final = frozenset(
    {
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
        ApiKey.CREATE_TOPICS,
        ApiKey.ALTER_PARTITION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    }
)
"""APIs that may name only the victim topics."""
OF_NODES: Final = frozenset(
    {
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.UPDATE_RAFT_VOTER,
    }
)
"""Requests that a node sends for itself. Without authentication, any sender that knows the id and
epoch of a node can act as that node; hostile requests use neither."""
STRANGERS: Final = (-(2**31), -1, 77, 2**31 - 2, 2**31 - 1)
FAR_EPOCHS: Final = (-(2**31), -1, 0, 2**31 - 2, 2**31 - 1)
FAR_LONG_EPOCHS: Final = (-(2**63), -2, -1, 2**63 - 2, 2**63 - 1)


@dataclass
class Facts:
    """Names and ids of the cluster that hostile requests use; responses add to them."""

    topics: Sequence[str] = (*VICTIMS, BYSTANDER)
    victims: Sequence[str] = VICTIMS
    groups: Sequence[str] = GROUPS
    topic_ids: list[bytes] = field(default_factory=lambda: [bytes(16)])
    victim_ids: list[bytes] = field(default_factory=lambda: [bytes(16)])
    members: list[str] = field(default_factory=lambda: [""])
    sessions: list[int] = field(default_factory=lambda: [0])
    producers: list[int] = field(default_factory=lambda: [-1])
    cluster_id: str | None = None
    now_ms: int = NOW_MS

    def hear(self, kept: list[Any], value: Any) -> None:
        """Remember a name or an id; beyond 12 the second oldest is dropped, the first one stays."""
        if value not in kept:
            kept.append(value)
            if len(kept) > 12:
                del kept[1]


class Hostile:
    """Generator of requests; equal random source and equal facts give equal requests."""

    def __init__(self, rng: random.Random, facts: Facts) -> None:
        self.rng = rng
        self.facts = facts
        self._api = ApiKey.API_VERSIONS
        self._share = 0.0

    def frame(self, api: ApiKey, version: int, correlation_id: int = 0) -> tuple[bytes, bool]:
        """Return a whole frame with its length prefix, and whether a response is due."""
        message = self.message(api, version)
        header = RequestHeader(api, version, correlation_id, self.rng.choice(("poison", "", None)))
        body = encode_request_header(header) + encode(message, version)
        unanswered = api is ApiKey.PRODUCE and getattr(message, "acks", 1) == 0
        return len(body).to_bytes(4, "big") + body, not unanswered

    def message(self, api: ApiKey, version: int) -> Any:
        """Return a request that this version can encode."""
        while True:
            self._api, self._share = api, self.rng.choice((0.03, 0.1, 0.1, 0.3, 0.9))
            made = self._struct(request_class(api), version)
            try:
                encode(made, version)
            except EncodeError:
                continue  # a text longer than its length field can hold
            return made

    # --- by the schema ------------------------------------------------------------------------

    def _struct(self, cls: type[Struct], version: int) -> Any:
        values: dict[str, Any] = {}
        for each in cls.FIELDS:
            if version not in parse_versions(each.versions):
                continue
            if each.tag is not None and self.rng.random() < 0.4:
                continue
            if version in parse_versions(each.nullable) and self.rng.random() < 0.1:
                values[each.name] = None
            else:
                values[each.name] = self._value(cls, each, each.kind, version)
        return cls(**values)

    def _value(self, owner: type[Struct], each: Field, kind: Kind, version: int) -> Any:
        if kind.element is not None:
            return self._list(owner, each, kind.element, version)
        if kind.name == "struct":
            return self._struct(owner.struct_class(kind), version)
        if self._speaks_for_a_node(each.name):
            return self._stranger(each.name, kind.name)
        if self.rng.random() < self._share and not self._is_spared(each.name):
            return self._hostile(kind.name)
        return self._plausible(each.name, kind.name)

    def element(self, owner: type[Struct], each: Field, kind: Kind, version: int) -> Any:
        """A value of a list of a request, with names of what exists."""
        self._share = 0.0
        return self._value(owner, each, kind, version)

    def _list(self, owner: type[Struct], each: Field, kind: Kind, version: int) -> list[Any]:
        rng = self.rng
        count = rng.choice((0, 1, 1, 1, 2, 3))
        if rng.random() < self._share * 0.1:
            count = rng.choice((20, 100))
        values = [self._value(owner, each, kind, version) for _ in range(count)]
        if values and rng.random() < 0.15:
            values.append(values[rng.randrange(len(values))])
        return values

    def _hostile(self, kind: str) -> Any:
        rng = self.rng
        if kind in BITS:
            half = 1 << (BITS[kind] - 1)
            return rng.choice(
                (-half, -half + 1, -2, -1, 0, 1, half - 2, half - 1, rng.randint(-half, half - 1))
            )
        if kind in UNSIGNED_BITS:
            top = (1 << UNSIGNED_BITS[kind]) - 1
            return rng.choice((0, 1, top - 1, top))
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "float64":
            return rng.choice(FLOATS)
        if kind == "uuid":
            return rng.choice((bytes(16), b"\xff" * 16, rng.randbytes(16)))
        if kind == "string":
            return rng.choice(WEIRD_TEXTS)
        if kind == "records":
            return self.batch()
        return rng.choice((*WEIRD_BYTES, rng.randbytes(rng.randrange(200))))

    def _plausible(self, name: str, kind: str) -> Any:
        rng = self.rng
        make = _PLAUSIBLE.get(name)
        if make is not None:
            value = make(self)
            if _fits(value, kind):
                return value
        if kind in BITS:
            return rng.choice((-1, 0, 0, 1, 1, 2, 3))
        if kind == "string":
            return rng.choice(("range", "consumer", "client", self.topic(), rng.choice(GROUPS)))
        if kind == "uuid":
            return self.topic_id()
        if kind == "records":
            return self.batch()
        return self._hostile(kind)

    # --- who is spared ------------------------------------------------------------------------

    def _speaks_for_a_node(self, name: str) -> bool:
        return self._api in OF_NODES and (
            name.endswith(("broker_id", "controller_id", "leader_id", "replica_id", "candidate_id"))
            or name.endswith("epoch")
        )

    def _stranger(self, name: str, kind: str) -> int:
        if not name.endswith("epoch"):
            return self.rng.choice(STRANGERS)
        return self.rng.choice(FAR_LONG_EPOCHS if kind == "int64" else FAR_EPOCHS)

    def _is_spared(self, name: str) -> bool:
        return self._api in CHANGING and name in (
            "resource_type",
            "resource_name",
            "name_of_config",
        )

    # --- values that exist --------------------------------------------------------------------

    def topic(self) -> str:
        changing = self._api in CHANGING
        return self.rng.choice(self.facts.victims if changing else self.facts.topics)

    def topic_id(self) -> bytes:
        changing = self._api in CHANGING
        return self.rng.choice(self.facts.victim_ids if changing else self.facts.topic_ids)

    def name(self) -> str:
        """Return a value for a field called just `name`, whose meaning depends on the API."""
        if self._api in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
            return self.rng.choice(tuple(_CONFIG_VALUES))
        if self._api is ApiKey.JOIN_GROUP:
            return self.rng.choice(("range", "roundrobin"))
        return self.topic()

    def value(self) -> str:
        return self.rng.choice(self.rng.choice(tuple(_CONFIG_VALUES.values())))

    def batch(self) -> bytes:
        """Return records for a Produce request: good, good with a hostile header, or torn."""
        rng = self.rng
        kind = rng.random()
        if kind < 0.3:
            return hostile_batch(rng)
        count = rng.choice((1, 1, 2, 5, 600))
        stamp = rng.choice((self.facts.now_ms, self.facts.now_ms, NOW_MS, -1, 2**63 - 1))
        records = [Record(n, stamp, rng.choice((b"k", b"", None)), b"v" * 20) for n in range(count)]
        producer = Producer(rng.choice(self.facts.producers), rng.choice((-1, 0, 1)), 0)
        if producer.id < 0:
            producer = Producer()
        good = build_batch(records, compression=rng.choice(tuple(Codec)), producer=producer)
        return good if kind < 0.85 else mutate([good], rng)


def _fits(value: object, kind: str) -> bool:
    if kind in BITS:
        return isinstance(value, int) and -(1 << BITS[kind] - 1) <= value < 1 << BITS[kind] - 1
    kinds = {"string": str, "uuid": bytes, "bytes": bytes, "records": bytes, "bool": bool}
    wanted = kinds.get(kind)
    return wanted is not None and isinstance(value, wanted)


def hostile_batch(rng: random.Random, count: int | None = None) -> bytes:
    """Return a batch with a valid CRC and possibly false values in header and records."""
    extremes = (-(2**63), -1, 0, NOW_MS, 2**63 - 1)
    count = rng.choice((1, 3, 600, 2000)) if count is None else count
    delta = rng.choice((-(2**63), -1, 0, 1, 2**63 - 1))
    body = b"\0" + varint(delta)
    records = b"".join(
        varint(len(one)) + one
        for one in (
            body + varint(n if rng.random() < 0.999 else -1) + varint(1) + b"k" + varint(-1) + b"\0"
            for n in range(count)
        )
    )
    claimed = count if rng.random() < 0.9 else rng.choice((-1, 0, 1, 2**31 - 1))
    tail = struct.pack(
        ">hiqqqhii",
        rng.choice((0, 0, 0, 1, 2, 3, 4, 5, 8, 16, 32, 64, 0x7FFF)),
        claimed - 1 if claimed > -(2**31) else claimed,
        rng.choice(extremes),
        rng.choice(extremes),
        rng.choice((-1, -1, -1, 0, 2**63 - 1)),
        rng.choice((-1, 0, 2**15 - 1)),
        rng.choice((-1, 0, 2**31 - 1)),
        claimed,
    )
    tail += records
    head = struct.pack(
        ">qiibI", rng.choice((0, 0, 0, 2**63 - 1)), 9 + len(tail), -1, 2, crc32c(tail)
    )
    return head + tail


Made = Callable[[Hostile], Any]

_CONFIG_VALUES: Final[Mapping[str, Sequence[str]]] = {
    "cleanup.policy": ("compact", "delete", "compact,delete", ""),
    "compression.type": ("zstd", "lz4", "producer", "none"),
    "retention.ms": ("-1", "0", "1", str(2**63 - 1)),
    "retention.bytes": ("-1", "0", str(2**63 - 1)),
    "segment.ms": ("1", str(2**63 - 1)),
    "segment.bytes": ("1048576", "2147483647"),
    "message.timestamp.type": ("LogAppendTime", "CreateTime"),
    "message.timestamp.after.max.ms": ("0", str(2**63 - 1)),
    "max.message.bytes": ("0", "2147483647", "1048588"),
    "min.insync.replicas": ("1", "2", "3", "2147483647"),
    "flush.messages": ("1", str(2**63 - 1)),
    "delete.retention.ms": ("0", str(2**63 - 1)),
    "min.compaction.lag.ms": ("0", str(2**63 - 1)),
    "leader.replication.throttled.replicas": ("*", "", "0:1,1:2"),
    "unclean.leader.election.enable": ("true", "false"),
}

_PLAUSIBLE: Final[Mapping[str, Made]] = {
    "topic": Hostile.topic,
    "name": Hostile.name,
    "topic_name": Hostile.topic,
    "topic_names": Hostile.topic,
    "topics": Hostile.topic,
    "topic_id": Hostile.topic_id,
    "group_id": lambda it: it.rng.choice(it.facts.groups),
    "groups": lambda it: it.rng.choice(it.facts.groups),
    "groups_names": lambda it: it.rng.choice(it.facts.groups),
    "key": lambda it: it.rng.choice((*it.facts.groups, "poison")),
    "coordinator_keys": lambda it: it.rng.choice(it.facts.groups),
    "key_type": lambda it: it.rng.choice((0, 0, 0, 1)),
    "member_id": lambda it: it.rng.choice(it.facts.members),
    "group_instance_id": lambda it: it.rng.choice(("i1", "i2", "i3")),
    "protocol_type": lambda it: "consumer",
    "session_timeout_ms": lambda it: it.rng.choice((6000, 10_000)),
    "rebalance_timeout_ms": lambda it: it.rng.choice((0, 1, 1000, 60_000, 2**31 - 1)),
    "generation_id": lambda it: it.rng.choice((-1, 0, 1, 2, 3)),
    "session_id": lambda it: it.rng.choice(it.facts.sessions),
    "session_epoch": lambda it: it.rng.choice((-1, 0, 1, 2)),
    "timeout_ms": lambda it: it.rng.choice((0, 50, 1000)),
    "max_wait_ms": lambda it: it.rng.choice((0, 0, 5, 50)),
    "min_bytes": lambda it: it.rng.choice((0, 1)),
    "max_bytes": lambda it: it.rng.choice((1, 1000, 1 << 20)),
    "partition_max_bytes": lambda it: it.rng.choice((1, 1000, 1 << 20)),
    "replica_id": lambda it: -1,
    "acks": lambda it: it.rng.choice((-1, -1, 0, 1)),
    "transactional_id": lambda it: "tx",
    "num_partitions": lambda it: it.rng.choice((-1, 1, 2, 3)),
    "count": lambda it: it.rng.choice((1, 3, 4)),
    "replication_factor": lambda it: it.rng.choice((-1, 1, 3)),
    "resource_type": lambda it: 2,
    "resource_name": lambda it: it.topic(),
    "value": Hostile.value,
    "values": Hostile.value,
    "config_operation": lambda it: it.rng.choice((0, 1, 2, 3)),
    "timestamp": lambda it: it.rng.choice((-5, -4, -3, -2, -1, 0, it.facts.now_ms)),
    "committed_offset": lambda it: it.rng.choice((0, 1, 100)),
    "fetch_offset": lambda it: it.rng.choice((0, 1, 10, 1000)),
    "cluster_id": lambda it: it.facts.cluster_id,
    "client_software_name": lambda it: "poison",
    "client_software_version": lambda it: "1.0",
    "entity_type": lambda it: "client-id",
    "entity_name": lambda it: "poison-victim",
    "producer_id": lambda it: it.rng.choice(it.facts.producers),
}
