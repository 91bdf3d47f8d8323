"""Batches of the metadata log: metadata records, and the control records of KRaft.

A batch is atomic: it is appended, replicated, committed and replayed as a whole. Its partition
leader epoch is the epoch of the leader that wrote it. Metadata records have no key; the key of a
control record contains its type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from metalog.image.snapshot import VersionedRecord
from metalog.quorum.alike import decoded, encoded
from metalog.quorum.core.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from protocol.batch.control import ControlType, build_control_batch, read_control_type
from protocol.batch.header import BatchHeader, Buffer, iter_checked
from protocol.batch.records import Record, build_batch, read_batch, records_payload, scan
from protocol.control import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    decode_control_value,
    encode_control_value,
)
from protocol.errors import ApiError, ProtocolError
from protocol.schema import ControlRecord

MAX_BATCH_BYTES = 8 << 20
"""Limit of a batch in the metadata log; Kafka's readers allocate at most this much."""


class Batch(NamedTuple):
    """A decoded batch of the log. Exactly one of `records` and `control` is non-empty.

    `last_offset` is inclusive. Timestamps are epoch milliseconds.
    """

    base_offset: int
    last_offset: int
    epoch: int
    append_timestamp_ms: int
    size_bytes: int
    records: tuple[Any, ...] = ()
    control: tuple[ControlRecord, ...] = ()


def build_metadata_batch(
    records: Sequence[VersionedRecord], base_offset: int, *, epoch: int, timestamp_ms: int
) -> bytes:
    """Encode (record, version) pairs as one batch. Raises EncodeError if a version cannot carry
    one."""
    return build_batch(
        [Record(timestamp=timestamp_ms, value=value) for value in encoded(records)],
        base_offset,
        leader_epoch=epoch,
    )


def build_kraft_batch(
    records: Iterable[ControlRecord], base_offset: int, *, epoch: int, timestamp_ms: int
) -> bytes:
    """Encode control records as one batch."""
    return build_control_batch(
        [
            (ControlType(type(record).CONTROL_TYPE), encode_control_value(record))
            for record in records
        ],
        base_offset,
        leader_epoch=epoch,
        timestamp_ms=timestamp_ms,
    )


def read_batches(buf: Buffer) -> Iterator[Batch]:
    """Yield every whole batch of `buf`, decoded. Raises ProtocolError (CRC, frame or record
    broken)."""
    for header, position in iter_checked(buf):
        yield _decode(buf, position, header)


def read_control_batches(buf: Buffer) -> Iterator[Batch]:
    """Yield as `read_batches` does, without decoding batches of metadata records."""
    for header, position in iter_checked(buf):
        if header.is_control:
            yield _decode(buf, position, header)


def _decode(buf: Buffer, position: int, header: BatchHeader) -> Batch:
    batch = Batch(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        epoch=header.leader_epoch,
        append_timestamp_ms=header.max_timestamp,
        size_bytes=header.size_bytes,
    )
    try:
        if header.is_control:
            return batch._replace(control=tuple(map(_control, read_batch(buf, position, header))))
        return batch._replace(records=tuple(decoded(_values(buf, position, header))))
    except ApiError as error:
        # For a client's batch this error would be its response; here a log or a snapshot is broken.
        raise ProtocolError(f"batch at offset {header.base_offset}: {error}") from error


def _values(buf: Buffer, position: int, header: BatchHeader) -> Iterator[bytes]:
    """Yield the value of every record; metadata records use nothing else."""
    data = records_payload(buf, position, header)
    for one in scan(data, header.record_count):
        yield data[one.value_at : one.value_at + max(one.value_length, 0)]


def _control(record: Record) -> ControlRecord:
    return decode_control_value(read_control_type(record.key), record.value or b"")


# --- control records of the quorum ------------------------------------------------------------


def leader_change(
    leader_id: int, voter_ids: Iterable[int], granting_ids: Iterable[int]
) -> LeaderChangeMessage:
    voter = LeaderChangeMessage.Voter
    return LeaderChangeMessage(
        leader_id=leader_id,
        voters=[voter(voter_id=i) for i in voter_ids],
        granting_voters=[voter(voter_id=i) for i in granting_ids],
    )


def voters_record(voters: VoterSet) -> VotersRecord:
    return VotersRecord(
        voters=[
            VotersRecord.Voter(
                voter_id=voter.id,
                voter_directory_id=voter.key.directory_id,
                endpoints=[
                    VotersRecord.Endpoint(name=name, host=host, port=port)
                    for name, (host, port) in voter.endpoints
                ],
                kraft_version_feature=VotersRecord.KRaftVersionFeature(
                    min_supported_version=voter.kraft_version_min,
                    max_supported_version=voter.kraft_version_max,
                ),
            )
            for voter in voters
        ]
    )


def voter_set(record: VotersRecord) -> VoterSet:
    return VoterSet(
        Voter(
            ReplicaKey(voter.voter_id, voter.voter_directory_id),
            tuple((e.name, VoterEndpoint(e.host, e.port)) for e in voter.endpoints),
            voter.kraft_version_feature.min_supported_version,
            voter.kraft_version_feature.max_supported_version,
        )
        for voter in record.voters
    )


def kraft_version_record(level: int) -> KRaftVersionRecord:
    return KRaftVersionRecord(kraft_version=level)


def snapshot_header(last_contained_timestamp_ms: int) -> SnapshotHeaderRecord:
    return SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_timestamp_ms)


def snapshot_footer() -> SnapshotFooterRecord:
    return SnapshotFooterRecord()
