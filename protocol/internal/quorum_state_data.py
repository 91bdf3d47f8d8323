"""QuorumStateData, versions 0-1."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import FRESH, Message, Struct, array, field, int32, int64, string, uuid


class QuorumStateData(Message, versions="0-1", flexible="0+"):
    cluster_id: str = field(string, "0", default="")
    leader_id: int = field(int32, "0+", default=-1)
    leader_epoch: int = field(int32, "0+", default=-1)
    voted_id: int = field(int32, "0+", default=-1)
    voted_directory_id: bytes = field(uuid, "1+", default=ZERO_UUID)
    applied_offset: int = field(int64, "0", default=0)
    current_voters: list[Voter] | None = field(array("Voter"), "0", nullable="0", default=FRESH)

    class Voter(Struct):
        voter_id: int = field(int32, "0", default=0)
