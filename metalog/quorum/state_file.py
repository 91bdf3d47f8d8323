"""The `quorum-state` file: epoch, leader and vote, in Kafka's format (one JSON line).

Data version 0 belongs to kraft.version 0 and has no directory ids; version 1 belongs to
kraft.version 1. A node with an unreadable file refuses to start: with a guessed epoch this replica
could vote twice in it (M3).
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from typing import Any

from metalog.quorum.core.messages import QuorumState
from metalog.quorum.core.voters import NOBODY, ReplicaKey
from protocol.ids import ZERO_UUID, uuid_from_text, uuid_to_text
from runtime.errors import StartupRefused
from storage.files.port import Files

FILE_NAME = "quorum-state"


class QuorumStateFile:
    """The file in the folder of a metadata log."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self.path = posixpath.join(directory, FILE_NAME)

    def read(self) -> QuorumState | None:
        """Return the quorum state, None without a file. Raises StartupRefused for a damaged
        file."""
        return read_quorum_state(self._files, self.path)


def read_quorum_state(files: Files, path: str) -> QuorumState | None:
    """Return the state in the file at `path`, None if there is no file.

    Raises:
        StartupRefused: the file is damaged.
    """
    if not files.exists(path):
        return None
    data = files.read(path)
    try:
        return _parse(json.loads(data))
    except (ValueError, KeyError, TypeError) as error:
        raise StartupRefused(
            f"{path} is corrupt ({type(error).__name__}: {error}); without it this "
            "replica might vote twice in one epoch. Restore the file, or delete the "
            "whole metadata directory and start the replica as a new one"
        ) from error


def _parse(fields: Mapping[str, Any]) -> QuorumState:
    version = fields["data_version"]
    if version not in (0, 1):
        raise ValueError(f"unknown data_version {version}")
    leader_id, epoch, voted_id = fields["leaderId"], fields["leaderEpoch"], fields["votedId"]
    if not all(type(value) is int for value in (leader_id, epoch, voted_id)):
        raise TypeError("ids and epoch must be integers")
    directory_id = uuid_from_text(fields["votedDirectoryId"]) if version else ZERO_UUID
    return QuorumState(
        epoch=epoch,
        leader_id=None if leader_id == NOBODY else leader_id,
        voted=None if voted_id == NOBODY else ReplicaKey(voted_id, directory_id),
    )


def format_quorum_state(
    state: QuorumState, kraft_version: int, voter_ids: tuple[int, ...] = ()
) -> bytes:
    """Return the file's content; it contains `voter_ids` with kraft.version 0 only."""
    voted = state.voted or ReplicaKey(NOBODY)
    fields: dict[str, Any] = {} if kraft_version else {"clusterId": ""}
    fields |= {
        "leaderId": NOBODY if state.leader_id is None else state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": voted.id,
    }
    if kraft_version:
        fields["votedDirectoryId"] = uuid_to_text(voted.directory_id)
    else:
        fields["appliedOffset"] = 0
        fields["currentVoters"] = [{"voterId": voter_id} for voter_id in voter_ids]
    fields["data_version"] = int(kraft_version > 0)
    return json.dumps(fields, separators=(",", ":")).encode()
