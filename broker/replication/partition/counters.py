"""Counters of a partition: plain integers, read when metrics are scraped."""

from __future__ import annotations


class PartitionCounters:
    """Counters that are incremented once per batch, read or ISR change."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_isr_updates",
        "failed_produces",
        "fetches",
        "isr_expands",
        "isr_shrinks",
        "messages_in",
        "produces",
        "reassignment_bytes_in",
        "reassignment_bytes_out",
        "replication_bytes_in",
        "replication_bytes_out",
        "truncations_below_high_watermark",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.failed_fetches = 0
        self.failed_isr_updates = 0
        self.failed_produces = 0
        self.fetches = 0
        self.isr_expands = 0
        self.isr_shrinks = 0
        self.messages_in = 0
        self.produces = 0
        self.reassignment_bytes_in = 0
        self.reassignment_bytes_out = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.truncations_below_high_watermark = 0

    def add(self, other: PartitionCounters) -> None:
        """Add another partition's counts to these."""
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.bytes_rejected += other.bytes_rejected
        self.failed_fetches += other.failed_fetches
        self.failed_isr_updates += other.failed_isr_updates
        self.failed_produces += other.failed_produces
        self.fetches += other.fetches
        self.isr_expands += other.isr_expands
        self.isr_shrinks += other.isr_shrinks
        self.messages_in += other.messages_in
        self.produces += other.produces
        self.reassignment_bytes_in += other.reassignment_bytes_in
        self.reassignment_bytes_out += other.reassignment_bytes_out
        self.replication_bytes_in += other.replication_bytes_in
        self.replication_bytes_out += other.replication_bytes_out
        self.truncations_below_high_watermark += other.truncations_below_high_watermark

    def copy(self) -> PartitionCounters:
        copied = PartitionCounters()
        copied.add(self)
        return copied
