"""Shell: Writes of leader epochs to their file, before an epoch's first record is visible.

When a log has the first record of an epoch, a worker writes the file with the start offsets of
epochs. The high watermark waits at the epoch's start until that is done (`EpochFile.limit`). So the
epoch of every visible record is in the file. An epoch without records delays nothing: a failover
that moves thousands of idle partitions writes nothing here. `LogChores` writes their files later.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from broker.replication.partition.effects import Effects
from broker.replication.partition.high_watermark import epochs_saved
from broker.replication.partition.partition import Partition
from runtime.tasks import Supervisor
from storage.files import Files
from storage.log.epoch_file import TOGETHER, EpochWrite, write_all

SAVERS_MAX: Final = 4
"""Worker calls at a time: the file system joins their flushes, and other work still finds a
worker."""


class EpochSaver:
    """Writer of the epoch files of partitions, in the order of their requests."""

    def __init__(
        self,
        files: Files,
        supervisor: Supervisor,
        storage_failed: Callable[[Partition, BaseException], None],
        carry_out: Callable[[Partition, Effects], None],
    ) -> None:
        self._files = files
        self._supervisor = supervisor
        self._storage_failed = storage_failed
        self._carry_out = carry_out
        self._wanted: dict[Partition, None] = {}
        self._under_way: set[Partition] = set()
        self._savers = 0

    def want(self, partition: Partition) -> None:
        """Queue a write of the partition's file; its `epochs_saved` is called once the file is up
        to date."""
        if partition in self._under_way or partition in self._wanted:
            return
        self._wanted[partition] = None
        if self._savers < SAVERS_MAX:
            self._savers += 1
            self._supervisor.spawn("save leader epochs", self._save())

    async def _save(self) -> None:
        try:
            while self._wanted:
                partitions = list(islice(self._wanted, TOGETHER))
                for partition in partitions:
                    del self._wanted[partition]
                self._under_way.update(partitions)
                try:
                    await self._save_some(partitions)
                finally:
                    self._under_way.difference_update(partitions)
                for partition in partitions:
                    if not partition.log.closed:
                        self._carry_out(partition, epochs_saved(partition))
        finally:
            self._savers -= 1

    async def _save_some(self, partitions: list[Partition]) -> None:
        writes: dict[Partition, EpochWrite] = {}
        for partition in partitions:
            write = partition.log.history.to_write()
            if write is not None:
                writes[partition] = write
        if not writes:
            return
        errors = await self._files.run(write_all, self._files, list(writes.values()))
        for (partition, write), error in zip(writes.items(), errors, strict=True):
            if partition.log.closed:
                continue  # deleted in the meantime
            try:
                if error is not None:
                    raise error
                partition.log.history.written(write)
            except OSError as failure:
                self._storage_failed(partition, failure)
