"""Partition epochs set by reports of local logs (KIP-1303), as soft state.

A report changes the partition epoch and nothing else that matters to an ISR. An ISR change that the
leader proposed under the epoch before is therefore still valid after the report, and neither has to
wait for the other.

A controller may not know of a report, because it has just become active or has noted many reports
since. It then refuses the ISR change, and the leader proposes it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from metalog.image.values import MetadataImage
from protocol.ids import ZERO_UUID
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.schema import MetadataRecord

EPOCHS_MAX: Final = 4096
"""Limit of partitions whose epoch is kept. An ISR change follows a report within seconds, if at
all."""
NONE: Final = -1


class ReportEpochs:
    """For each partition the newest partition epoch, if a report set it."""

    def __init__(self) -> None:
        self._epochs: dict[tuple[bytes, int], int] = {}

    def __len__(self) -> int:
        return len(self._epochs)

    def of(self, topic_id: bytes, index: int) -> int:
        """Return the partition epoch that the partition's newest change set, if it was a report.

        Returns -1 if the newest change was not a report, or none is known.
        """
        return self._epochs.get((topic_id, index), NONE)

    def note(self, image: MetadataImage, records: Iterable[MetadataRecord]) -> None:
        """Note records that are being appended; `image` is the image with them."""
        for record in records:
            if type(record) is not PartitionChangeRecord:
                continue
            reports = is_report(record)
            if not (reports or self._epochs):
                continue
            key = record.topic_id, record.partition_id
            self._epochs.pop(key, None)
            partition = image.topics.partition(*key) if reports else None
            if partition is not None:
                self._epochs[key] = partition.partition_epoch
                if len(self._epochs) > EPOCHS_MAX:
                    del self._epochs[next(iter(self._epochs))]

    def clear(self) -> None:
        """Forget all epochs: this node is no longer the active controller."""
        self._epochs.clear()


def is_report(record: PartitionChangeRecord) -> bool:
    """Return whether the record only reports local logs.

    A record that repeats the same ISR without them is not a report: it exists to invalidate
    proposals under the previous epoch.
    """
    if record.local_logs is None:
        return False
    rest = record.replace(topic_id=ZERO_UUID, partition_id=-1, local_logs=None)
    return rest == type(record)()
