"""RemoveDelegationTokenRecord (record type 26), version 0."""

from __future__ import annotations

from protocol.schema import MetadataRecord, field, string


class RemoveDelegationTokenRecord(MetadataRecord, record_type=26, versions="0", flexible="0+"):
    token_id: str = field(string, "0+", default="")
