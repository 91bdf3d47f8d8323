"""Partition epochs that reports of local logs have made, as the active controller knows them
(KIP-1303).

A report moves the partition epoch and nothing else that matters to an ISR. So a change of the ISR
that its leader proposed under the epoch before is as good behind the report as before it: nobody
has to wait for the other. This is soft state. A controller that does not know of a report, because
it is new or has noted many since, refuses the change, and its leader proposes it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from metalog.image.values import MetadataImage
from protocol.ids import ZERO_UUID
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.schema import MetadataRecord

EPOCHS_MAX: Final = 4096
"""Partitions of which it is known: a change comes within seconds of the report, if at all."""
NONE: Final = -1


class ReportEpochs:
    """Of each partition the newest, if a report made it."""

    def __init__(self) -> None:
        self._epochs: dict[tuple[bytes, int], int] = {}

    def __len__(self) -> int:
        return len(self._epochs)

    def of(self, topic_id: bytes, index: int) -> int:
        """The partition epoch that the newest known report of that partition has made; -1: none
        is known."""
        return self._epochs.get((topic_id, index), NONE)

    def note(self, image: MetadataImage, records: Iterable[MetadataRecord]) -> None:
        """These are written now; `image` is as they leave it."""
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
        """This node leads no more."""
        self._epochs.clear()


def is_report(record: PartitionChangeRecord) -> bool:
    """Whether it says what replicas have locally, and nothing else. A record of the same ISR that
    says nothing is no report: it is there to end what was proposed under the epoch before."""
    if record.local_logs is None:
        return False
    rest = record.replace(topic_id=ZERO_UUID, partition_id=-1, local_logs=None)
    return rest == type(record)()
