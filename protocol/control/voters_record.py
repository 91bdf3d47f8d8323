"""VotersRecord, version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    ControlRecord,
    Struct,
    array,
    field,
    int16,
    int32,
    string,
    struct,
    uint16,
    uuid,
)


class VotersRecord(ControlRecord, control_type=6, versions="0", flexible="0+"):
    version: int = field(int16, "0+", default=0)
    voters: list[Voter] = field(array("Voter"), "0+", default=FRESH)

    class Voter(Struct):
        voter_id: int = field(int32, "0+", default=0)
        voter_directory_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        endpoints: list[VotersRecord.Endpoint] = field(array("Endpoint"), "0+", default=FRESH)
        kraft_version_feature: VotersRecord.KRaftVersionFeature = field(
            struct("KRaftVersionFeature"), "0+", default=FRESH
        )

    class Endpoint(Struct):
        name: str = field(string, "0+", default="")
        host: str = field(string, "0+", default="")
        port: int = field(uint16, "0+", default=0)

    class KRaftVersionFeature(Struct):
        min_supported_version: int = field(int16, "0+", default=0)
        max_supported_version: int = field(int16, "0+", default=0)
