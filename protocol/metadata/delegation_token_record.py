"""DelegationTokenRecord (record type 10), version 0."""

from __future__ import annotations

from protocol.schema import FRESH, MetadataRecord, array, field, int64, string


class DelegationTokenRecord(MetadataRecord, record_type=10, versions="0", flexible="0+"):
    owner: str = field(string, "0+", default="")
    requester: str = field(string, "0+", default="")
    renewers: list[str] = field(array(string), "0+", default=FRESH)
    issue_timestamp: int = field(int64, "0+", default=0)
    max_timestamp: int = field(int64, "0+", default=0)
    expiration_timestamp: int = field(int64, "0+", default=0)
    token_id: str = field(string, "0+", default="")
