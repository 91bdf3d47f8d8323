"""Comparison of copies of one log: one task reads the same offsets of every copy.

Batches are replicated byte for byte, so equal logs have equal batches: same offsets, same epoch,
same CRC. `audit.checks.log.logs_agree` checks the results of all tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from audit.checks import REPLAY_CHECKS
from audit.checks.base import BatchContext, Check, CheckTable, DamageContext
from audit.decoding.batches import Batch, BatchIdentity
from audit.findings.sink import Sink
from audit.inputs.metadata_log import Segment
from audit.planning.copies import Comparison, Copy
from audit.reading.segments import floor_position, walk

CONFLICTS_MAX = 20


def compare(comparison: Comparison, sink: Sink) -> None:
    """Compare the copies; report findings about single copies and one event per copy."""
    identities = [_identities(comparison, copy, sink) for copy in comparison.copies]
    first = identities[0]
    for copy, other in zip(comparison.copies[1:], identities[1:], strict=True):
        sink.event("comparison", comparison.start_offset, -1, _differences(copy.log, first, other))


def _differences(
    log: str, mine: dict[int, BatchIdentity], other: dict[int, BatchIdentity]
) -> dict[str, Any]:
    shared = sorted(mine.keys() & other.keys())
    conflicts = []
    diverged = None
    for offset in shared:
        left, right = mine[offset], other[offset]
        if left == right:
            continue
        if left.epoch == right.epoch:
            conflicts.append([offset, left.epoch, list(left), list(right)])
        elif diverged is None:
            diverged = [offset, left.epoch, right.epoch]
    return {
        "log": log,
        "shared": len(shared),
        "conflicts": conflicts[:CONFLICTS_MAX],
        "diverged": diverged,
    }


def _identities(comparison: Comparison, copy: Copy, sink: Sink) -> dict[int, BatchIdentity]:
    """Return the copy's batches by base offset; also check copies other than the primary."""
    checks = CheckTable([] if copy.is_primary else [make() for make in REPLAY_CHECKS])
    identities: dict[int, BatchIdentity] = {}
    expected: int | None = None
    epoch: int | None = None
    damaged = False
    for segment, found, after in _walk(comparison, copy):
        if not isinstance(found, Batch):
            at_end = segment.path == copy.last_path
            damage = DamageContext(
                found.kind,
                segment.path,
                found.position,
                found.size_bytes,
                at_end,
                after - 1,
            )
            for check in checks.damage:
                _report(sink, copy, check, check.on_damage(damage), -1)
            damaged = True
            continue
        header = found.header
        context = BatchContext(found, segment.path, None if damaged else expected, epoch)
        for batch_check in checks.batches:
            complaints = batch_check.on_batch(context)
            _report(sink, copy, batch_check, complaints, header.max_timestamp)
        damaged = not found.crc_ok
        if found.crc_ok:
            identities[header.base_offset] = found.identity
            expected, epoch = header.next_offset, max(epoch or 0, header.leader_epoch)
    return identities


def _walk(comparison: Comparison, copy: Copy) -> Iterator[tuple[Segment, Any, int]]:
    """Yield batches and damage at the comparison's offsets, each with an end offset.

    That is the end offset of the last whole batch before it. Damage has no offset of its own, so
    this offset is used for it.
    """
    start, end = comparison.start_offset, comparison.end_offset
    for segment in copy.segments:
        after = segment.base_offset
        for found in walk(segment.path, floor_position(segment, start)):
            header = found.header if isinstance(found, Batch) and found.crc_ok else None
            offset = after if header is None else header.base_offset
            if end is not None and offset >= end:
                break
            if offset >= start:
                yield segment, found, after
            if header is not None:
                after = header.next_offset


def _report(sink: Sink, copy: Copy, check: Check, complaints: Any, timestamp_ms: int) -> None:
    for complaint in complaints:
        sink.finding(complaint.finding(check.name, check.severity, -1, timestamp_ms, log=copy.log))
