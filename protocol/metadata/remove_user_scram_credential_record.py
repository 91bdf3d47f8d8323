"""RemoveUserScramCredentialRecord (record type 22), version 0."""

from __future__ import annotations

from protocol.schema import MetadataRecord, field, int8, string


class RemoveUserScramCredentialRecord(MetadataRecord, record_type=22, versions="0", flexible="0+"):
    name: str = field(string, "0+", default="")
    mechanism: int = field(int8, "0+", default=0)
