"""The values of control records. Their keys and batches are in protocol.batch.

KRaft writes and reads them in version 0, although later versions are defined. Kraftbox does the
same, or Kafka could not read its log. The `version` field inside must be 0, too.
"""

from __future__ import annotations

from protocol.codec import decode, encode
from protocol.control.end_txn_marker import EndTxnMarker
from protocol.control.kraft_version_record import KRaftVersionRecord
from protocol.control.leader_change_message import LeaderChangeMessage
from protocol.control.snapshot_footer_record import SnapshotFooterRecord
from protocol.control.snapshot_header_record import SnapshotHeaderRecord
from protocol.control.voters_record import VotersRecord
from protocol.errors import ProtocolError
from protocol.schema import Buffer, ControlRecord

CONTROL_VERSION = 0

CONTROL_CLASSES: dict[int, type[ControlRecord]] = {
    cls.CONTROL_TYPE: cls
    for cls in (
        LeaderChangeMessage,
        SnapshotHeaderRecord,
        SnapshotFooterRecord,
        KRaftVersionRecord,
        VotersRecord,
    )
}


def encode_control_value(record: ControlRecord) -> bytes:
    """Encode the value of a KRaft control record. Raises EncodeError for a value out of range."""
    return encode(record, CONTROL_VERSION)


def decode_control_value(control_type: int, value: Buffer) -> ControlRecord:
    """Decode the value of a KRaft control record of the type in its key.

    Raises ProtocolError for a type that is not KRaft's and for broken bytes.
    """
    cls = CONTROL_CLASSES.get(control_type)
    if cls is None:
        raise ProtocolError("type of a KRaft control record", control_type, "2-6")
    record, _ = decode(cls, value, CONTROL_VERSION)
    return record


__all__ = [
    "CONTROL_CLASSES",
    "CONTROL_VERSION",
    "ControlRecord",
    "EndTxnMarker",
    "KRaftVersionRecord",
    "LeaderChangeMessage",
    "SnapshotFooterRecord",
    "SnapshotHeaderRecord",
    "VotersRecord",
    "decode_control_value",
    "encode_control_value",
]
