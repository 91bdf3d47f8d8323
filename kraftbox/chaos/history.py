"""Shell: Client histories: every send, poll and fault, with its time.

A history is written by `kraftbox chaos` and by the fault tests, and judged by whoever reads it; the
file format is in docs/chaos.md. Times are microseconds since the epoch, taken from one monotonic
clock that was set once at the start: within a history they can be compared, whatever the wall clock
did meanwhile.

An operation is OK, FAILED (it certainly has no effect) or UNKNOWN (no answer, or one that does not
say): a timeout is always unknown (reliability H1-H12).
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from runtime.sealed import SealBroken, seal, unseal

MAGIC = b"KBXH"
VERSION = 1

NO_OFFSET = -1
NO_TRANSACTION = 0
UNKNOWN_DRAW = -1
SEQUENCE_BITS = 32

PartitionNumber: TypeAlias = tuple[int, int]
"""Index of the topic in `History.topics`, number of the partition."""


class HistoryError(ValueError):
    """The bytes are no history of this version; the message says why."""


class Outcome(IntEnum):
    """What is known of an operation's effect."""

    UNKNOWN = 0
    OK = 1
    FAILED = 2


class Topic(NamedTuple):
    """A topic under test. `topic_id` has 16 bytes."""

    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int
    min_insync_replicas: int


class Process(NamedTuple):
    """A client: one thing after another, except for pipelined sends. `role` is producer, consumer
    or reader (who reads everything at the end); `client` names library and version."""

    process: int
    role: str
    client: str


class Send(NamedTuple):
    """One record offered to one partition. `value` is unique in the history (`value_id`).

    `offset` is NO_OFFSET unless OK (and for acks=0); `order` counts the sends of one process to one
    partition in the order in which they were handed over; `producer_id` -1 without idempotence.
    """

    process: int
    topic: int
    partition: int
    value: int
    begin_us: int
    end_us: int
    outcome: int
    offset: int
    order: int
    acks: int = -1
    error: str = ""
    transaction: int = NO_TRANSACTION
    producer_id: int = -1


class Poll(NamedTuple):
    """Records that one fetch of one partition brought, in the order in which they came.

    `offsets` and `values` are parallel; a value that is none of this history's is -1. `final` says
    that faults were over and the reader went from the log's start to its end.
    """

    process: int
    topic: int
    partition: int
    begin_us: int
    end_us: int
    offsets: list[int]
    values: list[int]
    final: bool = False
    transaction: int = NO_TRANSACTION


class Assign(NamedTuple):
    """A consumer's place in a partition was set; polls before and after do not connect."""

    process: int
    topic: int
    partition: int
    at_us: int
    offset: int


class End(NamedTuple):
    """The log's end as a consumer of committed records was told it (ListOffsets, latest)."""

    process: int
    topic: int
    partition: int
    begin_us: int
    end_us: int
    offset: int
    final: bool = False


class Transaction(NamedTuple):
    """A transaction of one process; `transaction` is from 1 on and unique in the history."""

    transaction: int
    process: int
    begin_us: int
    end_us: int
    outcome: int


class Fault(NamedTuple):
    """What was done to the cluster, from when to when it was undone. `nodes` are node ids; `draw`
    chose them, and the fault was to last `length_ms` (both unknown in older histories)."""

    kind: str
    nodes: list[int]
    begin_us: int
    end_us: int
    detail: str = ""
    draw: int = UNKNOWN_DRAW
    length_ms: int = 0


@dataclass
class History:
    """Everything that is known of a run. `about` holds what a person wants to know (seed, command,
    versions): strings, integers, booleans and lists of them."""

    about: dict[str, Any] = field(default_factory=dict)
    topics: list[Topic] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    assigns: list[Assign] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


_TABLES: dict[str, Any] = {
    "topics": Topic,
    "processes": Process,
    "sends": Send,
    "polls": Poll,
    "assigns": Assign,
    "ends": End,
    "transactions": Transaction,
    "faults": Fault,
}


def value_id(process: int, number: int) -> int:
    """The value of the `number`-th send (from 0) of a process."""
    return process << SEQUENCE_BITS | number


def value_bytes(value: int, size_bytes: int = 0) -> bytes:
    """A record's value: the id in decimal, a vertical bar, filled up to the size."""
    return b"%d|" % value + b"." * (size_bytes - len(str(value)) - 1)


def value_of(data: bytes | None) -> int:
    """The id in a record's value; -1 for a value of somebody else."""
    head, bar, _ = (data or b"").partition(b"|")
    return int(head) if bar and head.isdigit() and len(head) <= 19 else -1


def encode(history: History) -> bytes:
    """The bytes of a file: `magic, version, body, crc32c`."""
    body: dict[str, Any] = {"about": history.about}
    body.update({name: list(map(tuple, getattr(history, name))) for name in _TABLES})
    return seal(MAGIC, VERSION, body)


def decode(data: bytes) -> History:
    """Raises HistoryError. Tables and columns that this version does not know are passed over."""
    try:
        body = unseal(MAGIC, VERSION, data)
        history = History(about=body["about"])
        for name, row_type in _TABLES.items():
            width = len(row_type._fields)
            rows = [row_type(*row[:width]) for row in body.get(name, ())]
            setattr(history, name, rows)
    except SealBroken as error:
        raise HistoryError(f"no history: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise HistoryError(f"the body cannot be read: {error!r}") from None
    return history


def save(path: Path | str, history: History) -> None:
    """Write a file whole or not at all. Raises OSError."""
    target = Path(path)
    fd, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with open(fd, "wb") as file:
            file.write(encode(history))
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def load(path: Path | str) -> History:
    """Raises HistoryError, OSError."""
    return decode(Path(path).read_bytes())
