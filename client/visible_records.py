"""The records of a fetched record set that a consumer may see.

A record set consists of whole batches: the first may begin below the requested position. Control
batches mark the ends of transactions. With read_committed the batches of aborted transactions are
skipped. An aborted transaction begins at its first offset and ends with the next control batch of
its producer (KIP-98).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from client.leaders import TopicPartition
from protocol.batch.header import iter_checked
from protocol.batch.records import read_batch
from protocol.schema import Buffer


class Received(NamedTuple):
    """A record as a consumer receives it; the timestamp is in ms since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def visible_records(
    partition: TopicPartition,
    records: Buffer,
    position: int,
    aborted: Iterable[tuple[int, int]] = (),
) -> tuple[list[Received], int]:
    """Return the records from `position` on, and the position after the last batch.

    `aborted` transactions are pairs of producer ID and first offset. Raises ProtocolError.
    """
    ahead = sorted((first, producer_id) for producer_id, first in aborted)
    hidden: set[int] = set()
    found: list[Received] = []
    after = position
    for header, at in iter_checked(records):
        while ahead and ahead[0][0] <= header.last_offset:
            hidden.add(ahead.pop(0)[1])
        if header.is_control:
            hidden.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in hidden):
            for record in read_batch(records, at, header):
                if record.offset >= position:
                    found.append(
                        Received(
                            *partition,
                            record.offset,
                            record.timestamp,
                            record.key,
                            record.value,
                            record.headers,
                        )
                    )
        after = max(after, header.next_offset)
    return found, after
