"""kafka-metadata-quorum remove-controller: its requests, output and failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraftbox.kafka_tools import main as run_tool
from kraftbox.kafka_tools import quorum
from protocol.errors import ApiError, ErrorCode
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from protocol.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)

DIRECTORY = "AAAAAAAAAAAAAAAAAAAAAQ"
COMMAND = ("--bootstrap-controller", "127.0.0.1:1", "remove-controller", "--controller-id", "3")
VOTER = f"controller 3 with directory id {DIRECTORY}"
NEXT = "kafka-cluster.sh unregister-controller --id 3"


class Quorum:
    """The client of a quorum; it gives these answers and keeps the requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.removing: ErrorCode | ApiError = ErrorCode.NONE
        self.unregistering = ErrorCode.NONE
        self.requests: list[Any] = []
        monkeypatch.setattr(quorum, "run", lambda _, work: asyncio.run(work(self)))

    async def request_any(self, message: Any) -> Any:
        self.requests.append(message)
        if isinstance(message, UnregisterControllerRequest):
            return UnregisterControllerResponse(error_code=self.unregistering)
        if isinstance(self.removing, ApiError):
            raise self.removing
        return RemoveRaftVoterResponse(error_code=self.removing)

    def remove(self, *options: str, directory: str = DIRECTORY) -> int:
        """Run the command; return its exit code."""
        given = [*COMMAND, "--controller-directory-id", directory, *options]
        return run_tool("kafka-metadata-quorum", given)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Quorum:
    return Quorum(monkeypatch)


@pytest.mark.parametrize("unregister", [False, True])
def test_remove_controller_unregisters_only_with_the_option(
    unregister: bool, cluster: Quorum, capsys: pytest.CaptureFixture[str]
) -> None:
    """KIP-1312: the registration of a removed voter stays, unless the operator names the option."""
    assert cluster.remove(*(["--unregister"] if unregister else [])) == 0
    removal, *others = cluster.requests
    assert removal == RemoveRaftVoterRequest(
        cluster_id=None, voter_id=3, voter_directory_id=bytes(15) + b"\1"
    )
    assert others == ([UnregisterControllerRequest(controller_id=3)] if unregister else [])
    lines = [f"Removed KRaft {VOTER}"] + (["Unregistered controller 3"] if unregister else [])
    assert capsys.readouterr().out.splitlines() == lines


def test_dry_run_of_remove_controller_sends_no_request(
    cluster: Quorum, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.remove("--unregister", "--dry-run") == 0
    assert cluster.requests == []
    assert capsys.readouterr().out.splitlines() == [
        f"DRY RUN of removing KRaft {VOTER}",
        "DRY RUN of unregistering controller 3",
    ]


@pytest.mark.parametrize(
    "answer", [ErrorCode.VOTER_NOT_FOUND, ApiError(ErrorCode.UNSUPPORTED_VERSION, "no such API")]
)
def test_refused_removal_keeps_the_registration_and_names_the_next_command(
    answer: ErrorCode | ApiError, cluster: Quorum, capsys: pytest.CaptureFixture[str]
) -> None:
    """The registration of a controller that may still vote stays; a node may lack the API."""
    cluster.removing = answer
    assert cluster.remove("--unregister") == 1
    assert len(cluster.requests) == 1
    said = capsys.readouterr().err
    assert f"failed to remove {VOTER} from the voters: " in said and NEXT in said
    assert cluster.remove() == 1
    assert NEXT not in capsys.readouterr().err


def test_refused_unregistration_after_a_removal_names_the_next_command(
    cluster: Quorum, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.unregistering = ErrorCode.UNSUPPORTED_VERSION
    assert cluster.remove("--unregister") == 1
    assert len(cluster.requests) == 2
    said = capsys.readouterr()
    assert "Removed KRaft controller 3" in said.out
    assert "failed to unregister controller 3: " in said.err and NEXT in said.err


def test_directory_id_that_is_no_uuid_is_refused_before_any_request(
    cluster: Quorum, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.remove(directory="x") == 1
    assert cluster.requests == []
    assert "--controller-directory-id" in capsys.readouterr().err
