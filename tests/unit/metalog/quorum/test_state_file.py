from __future__ import annotations

import pytest

from metalog.quorum.core.messages import QuorumState
from metalog.quorum.core.voters import ReplicaKey
from metalog.quorum.state_file import format_quorum_state, read_quorum_state
from protocol.ids import uuid_from_text
from runtime.errors import StartupRefused
from storage.files import MemoryFiles

DIRECTORY = uuid_from_text("4xYMnGwTRQWx5cHesM8JZg")

# Written by Apache Kafka 4.3.1.
KAFKA_LEADER = (
    b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,'
    b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
)
KAFKA_STATIC = (
    b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":1}],"data_version":0}'
)


def files_with(data: bytes) -> MemoryFiles:
    files = MemoryFiles()
    files.mkdirs("/d")
    files.write_atomic("/d/quorum-state", data)
    return files


def test_bytes_are_kafkas() -> None:
    state = QuorumState(1, leader_id=1)
    assert format_quorum_state(state, kraft_version=1) == KAFKA_LEADER
    assert format_quorum_state(state, kraft_version=0, voter_ids=(1,)) == KAFKA_STATIC


@pytest.mark.parametrize("data", [KAFKA_LEADER, KAFKA_STATIC])
def test_kafkas_files_are_read(data: bytes) -> None:
    assert read_quorum_state(files_with(data), "/d/quorum-state") == QuorumState(1, leader_id=1)


def test_a_vote_survives_with_its_directory_id() -> None:
    state = QuorumState(9, None, ReplicaKey(3, DIRECTORY))
    files = files_with(format_quorum_state(state, kraft_version=1))
    assert read_quorum_state(files, "/d/quorum-state") == state
    files = files_with(format_quorum_state(state, kraft_version=0))
    assert read_quorum_state(files, "/d/quorum-state") == state._replace(voted=ReplicaKey(3))


def test_no_file_is_no_state() -> None:
    assert read_quorum_state(MemoryFiles(), "/d/quorum-state") is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\x00" * 104,
        KAFKA_LEADER[:-1],
        KAFKA_LEADER.replace(b'"data_version":1', b'"data_version":2'),
        KAFKA_LEADER.replace(b'"leaderEpoch":1', b'"leaderEpoch":"1"'),
        KAFKA_LEADER.replace(b"AAAAAAAAAAAAAAAAAAAAAA", b"short"),
    ],
)
def test_a_corrupt_file_stops_the_start(data: bytes) -> None:
    with pytest.raises(StartupRefused, match="vote twice"):
        read_quorum_state(files_with(data), "/d/quorum-state")
