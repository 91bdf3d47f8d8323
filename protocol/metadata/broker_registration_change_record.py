"""BrokerRegistrationChangeRecord (record type 17), versions 0-3."""

from __future__ import annotations

from protocol.schema import FRESH, MetadataRecord, array, field, int8, int32, int64, uuid


class BrokerRegistrationChangeRecord(MetadataRecord, record_type=17, versions="0-3", flexible="0+"):
    broker_id: int = field(int32, "0+", default=0)
    broker_epoch: int = field(int64, "0+", default=0)
    fenced: int = field(int8, "0+", tag=0, default=0)
    in_controlled_shutdown: int = field(int8, "1+", tag=1, default=0)
    log_dirs: list[bytes] = field(array(uuid), "2+", tag=2, default=FRESH)
    cordoned_log_dirs: list[bytes] | None = field(
        array(uuid), "3+", nullable="3+", tag=3, default=None
    )
