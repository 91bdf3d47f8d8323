"""Records that a new active controller writes first, before it decides anything else.

They are those of Apache Kafka 4.4.0 (KIP-868, KIP-1170). A log without a `metadata.version` gets
the first records from formatting, enclosed in a metadata transaction: a controller that ends
between two batches leaves an open transaction, which the next one aborts before it writes all of
them again. Below level 13 there are no metadata transactions. If the records need several
batches there, `metadata.version` is the last one, so that the next controller repeats the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.decision import RECORDS_PER_OPERATION_MAX
from metalog.image.features import METADATA_TRANSACTION_LEVEL, METADATA_VERSION
from protocol.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from protocol.schema import MetadataRecord

_FAILOVER = "Controller failover"
_NAME = "Bootstrap records"


def activation_records(
    first_records: Sequence[MetadataRecord], *, has_metadata: bool, in_transaction: bool
) -> Sequence[MetadataRecord]:
    """Return the records to append, in order; they may need several batches.

    Args:
        first_records: what an empty log begins with (`metalog/first_records.py`).
        has_metadata: whether the log has a finalised `metadata.version`.
        in_transaction: whether the log ends inside a metadata transaction of an earlier leader.
    """
    abort = [AbortTransactionRecord(reason=_FAILOVER)] if in_transaction else []
    if has_metadata:
        return abort
    if _first_level(first_records) >= METADATA_TRANSACTION_LEVEL:
        begin = BeginTransactionRecord(name=_NAME)
        return [*abort, begin, *first_records, EndTransactionRecord()]
    if len(first_records) > RECORDS_PER_OPERATION_MAX:
        first_records = sorted(first_records, key=_sets_metadata_version)
    return [*abort, *first_records]


def _first_level(first_records: Sequence[MetadataRecord]) -> int:
    """Return the level that the records set."""
    levels = [record for record in first_records if isinstance(record, FeatureLevelRecord)]
    return next(record.feature_level for record in levels if record.name == METADATA_VERSION)


def _sets_metadata_version(record: MetadataRecord) -> bool:
    return isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION
