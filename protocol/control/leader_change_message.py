"""LeaderChangeMessage, versions 0-1."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import FRESH, ControlRecord, Struct, array, field, int16, int32, uuid


class LeaderChangeMessage(ControlRecord, control_type=2, versions="0-1", flexible="0+"):
    version: int = field(int16, "0+", default=0)
    leader_id: int = field(int32, "0+", default=0)
    voters: list[Voter] = field(array("Voter"), "0+", default=FRESH)
    granting_voters: list[Voter] = field(array("Voter"), "0+", default=FRESH)

    class Voter(Struct):
        voter_id: int = field(int32, "0+", default=0)
        voter_directory_id: bytes = field(uuid, "1+", default=ZERO_UUID)
