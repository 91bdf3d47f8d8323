"""Transactions appended to a log directly, since no handler accepts them."""

from __future__ import annotations

import struct

from protocol.batch.records import Producer, Record, build_batch
from storage.log.log import Log
from storage.log.producers import Origin
from testkit.memory.broker import batch


def transact(log: Log, producer_id: int) -> None:
    """Append one record in a transaction."""
    producer = Producer(producer_id, 0, 0, transactional=True)
    log.append_as_leader(bytearray(batch(b"t%d" % producer_id, producer=producer)), 0, 0)
    log.update_high_watermark(log.log_end_offset)


def end(log: Log, producer_id: int, *, abort: bool) -> None:
    """Append the marker that ends the transaction."""
    key, value = struct.pack(">hh", 0, 0 if abort else 1), struct.pack(">hi", 0, 0)
    marker = build_batch(
        [Record(0, 1_700_000_000_000, key, value)],
        producer=Producer(producer_id, 0, -1, transactional=True),
        control=True,
    )
    log.append_as_leader(bytearray(marker), 0, 0, Origin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)
