"""Shell: Client histories: every send, poll and fault, with its time.

`kraftbox chaos` and the fault tests write histories; docs/chaos.md describes the file format. Times
are microseconds since the epoch, from one monotonic clock that is set once at the start. Within a
history they are comparable, whatever the wall clock did in the meantime.

An operation is OK, FAILED (certainly without effect) or UNKNOWN (no answer, or an ambiguous one). A
timeout is always unknown (reliability H1-H12).
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
"""The topic's index in `History.topics`, and the number of the partition."""


class HistoryError(ValueError):
    """The bytes are not a history of this version; the message has the reason."""


class SendOutcome(IntEnum):
    """The known effect of an operation."""

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
    """A client, sequential except for pipelined sends.

    `role` is producer, consumer or reader (of everything at the end). `client` names library and
    version.
    """

    process: int
    role: str
    client: str


class Send(NamedTuple):
    """One record sent to one partition. `value` is unique in the history (`value_id`).

    `offset` is NO_OFFSET unless the outcome is OK (and for acks=0). `order` counts a process's
    sends to one partition in the order in which it passed them to the producer. `producer_id` is -1
    without idempotence.
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
    """Records that one fetch of one partition returned, in their order.

    `offsets` and `values` are parallel; a value from outside this history is -1. `final`: the
    faults were over, and the reader read from the log's start to its end.
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
    """The position of a consumer was set; polls before and after it are not consecutive."""

    process: int
    topic: int
    partition: int
    at_us: int
    offset: int


class End(NamedTuple):
    """The log end that a consumer of committed records received (ListOffsets, latest)."""

    process: int
    topic: int
    partition: int
    begin_us: int
    end_us: int
    offset: int
    final: bool = False


class Transaction(NamedTuple):
    """A transaction of one process; `transaction` counts from 1 and is unique in the history."""

    transaction: int
    process: int
    begin_us: int
    end_us: int
    outcome: int


class Fault(NamedTuple):
    """A fault, from its begin to its reversal.

    `nodes` are node IDs. `draw` selected them, and `length_ms` is the planned duration; older
    histories lack both.
    """

    kind: str
    nodes: list[int]
    begin_us: int
    end_us: int
    detail: str = ""
    draw: int = UNKNOWN_DRAW
    length_ms: int = 0


@dataclass
class History:
    """Everything recorded in a run.

    `about` describes the run for a reader (seed, command, versions): strings, integers, booleans
    and lists of them.
    """

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
    """Return the value of the `number`-th send (from 0) of a process."""
    return process << SEQUENCE_BITS | number


def value_bytes(value: int, size_bytes: int = 0) -> bytes:
    """Return a record's value: the ID in decimal, a vertical bar, padding up to the size."""
    return b"%d|" % value + b"." * (size_bytes - len(str(value)) - 1)


def value_of(data: bytes | None) -> int:
    """Return the ID in a record's value; -1 for a value from another writer."""
    head, bar, _ = (data or b"").partition(b"|")
    return int(head) if bar and head.isdigit() and len(head) <= 19 else -1


def encode(history: History) -> bytes:
    """Return the bytes of a file: `magic, version, body, crc32c`."""
    body: dict[str, Any] = {"about": history.about}
    body.update({name: list(map(tuple, getattr(history, name))) for name in _TABLES})
    return seal(MAGIC, VERSION, body)


def decode(data: bytes) -> History:
    """Parse a file; unknown tables and columns are ignored. Raises HistoryError."""
    try:
        body = unseal(MAGIC, VERSION, data)
        history = History(about=body["about"])
        for name, row_type in _TABLES.items():
            width = len(row_type._fields)
            rows = [row_type(*row[:width]) for row in body.get(name, ())]
            setattr(history, name, rows)
    except SealBroken as error:
        raise HistoryError(f"not a client history: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise HistoryError(f"cannot read the body of the history: {error!r}") from None
    return history


def save(path: Path | str, history: History) -> None:
    """Write a file atomically. Raises OSError."""
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
    """Read a file. Raises HistoryError, OSError."""
    return decode(Path(path).read_bytes())
