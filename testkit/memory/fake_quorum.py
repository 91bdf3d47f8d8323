"""A quorum of one that keeps its log in a list and commits on request, or at once."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Protocol

from metalog.image.values import MetadataImage
from metalog.quorum.batches import Batch
from metalog.quorum.node import NotLeader


class Listener(Protocol):
    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None: ...
    def handle_commit(self, batch: Batch) -> None: ...


class FakeQuorum:
    """A quorum for tests. `commit_at_once` delivers a batch inside `append`: the hardest order of
    events."""

    def __init__(self, node_id: int = 100, *, commit_at_once: bool = False) -> None:
        self.node_id = node_id
        self.cluster_id = "5L6g3nShT-eMCtK--X86sw"
        self.log = SimpleNamespace(directory="/logs/__cluster_metadata-0")
        self.commit_at_once = commit_at_once
        self.batches: list[Batch] = []
        self.metadata_versions: list[int] = []
        self.log_end_offset = 0
        self.high_watermark = 0
        self.now_ms = 1_700_000_000_000
        self._leader: tuple[int | None, int] = (None, 0)
        self._listener: Listener | None = None
        self._delivered = 0

    def register(self, listener: Listener) -> None:
        self._listener = listener

    def leader(self) -> tuple[int | None, int]:
        return self._leader

    def append(self, epoch: int, records: Sequence[Any], *, metadata_version: int) -> int:
        if self._leader != (self.node_id, epoch):
            raise NotLeader(epoch, self._leader[0])
        self.metadata_versions.append(metadata_version)
        last_offset = self.add(epoch, records)
        if self.commit_at_once:
            self.commit()
        return last_offset

    def add(self, epoch: int, records: Sequence[Any], *, control_count: int = 0) -> int:
        """Put a batch into the log, as replication from another leader would."""
        count = control_count or len(records)
        base, self.log_end_offset = self.log_end_offset, self.log_end_offset + count
        self.batches.append(
            Batch(base, self.log_end_offset - 1, epoch, self.now_ms, 100, tuple(records))
        )
        return self.log_end_offset - 1

    def commit(self, count: int | None = None) -> None:
        """Deliver the next `count` batches, or all, to the listener."""
        last = len(self.batches) if count is None else self._delivered + count
        while self._delivered < last:
            batch = self.batches[self._delivered]
            self._delivered += 1
            self.high_watermark = batch.last_offset + 1
            assert self._listener is not None
            self._listener.handle_commit(batch)

    def replayed(self, size_bytes: int) -> None:
        """Do nothing: this log takes no snapshots."""

    def snapshot_due(self, image: MetadataImage) -> bool:
        return False

    def truncate(self) -> None:
        """Drop the uncommitted batches of the log."""
        del self.batches[self._delivered :]
        self.log_end_offset = self.high_watermark

    def become_leader(self, epoch: int) -> None:
        """Win an election: append and commit the leader change record, then notify the listener."""
        self._leader = (self.node_id, epoch)
        self.add(epoch, (), control_count=1)
        self.commit()
        assert self._listener is not None
        self._listener.handle_leader_change(self.node_id, epoch)

    def follow(self, leader_id: int | None, epoch: int) -> None:
        self._leader = (leader_id, epoch)
        assert self._listener is not None
        self._listener.handle_leader_change(leader_id, epoch)

    def records(self) -> list[Any]:
        return [record for batch in self.batches for record in batch.records]
