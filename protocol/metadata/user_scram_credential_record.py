"""UserScramCredentialRecord (record type 11), version 0."""

from __future__ import annotations

from protocol.schema import MetadataRecord, bytes_, field, int8, int32, string


class UserScramCredentialRecord(MetadataRecord, record_type=11, versions="0", flexible="0+"):
    name: str = field(string, "0+", default="")
    mechanism: int = field(int8, "0+", default=0)
    salt: bytes = field(bytes_, "0+", default=b"")
    stored_key: bytes = field(bytes_, "0+", default=b"")
    server_key: bytes = field(bytes_, "0+", default=b"")
    iterations: int = field(int32, "0+", default=0)
