"""DescribeUserScramCredentials: users and their mechanisms, never a key."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from protocol.metadata.user_scram_credential_record import UserScramCredentialRecord
from testkit.memory.broker import Harness


@pytest.fixture
async def h() -> Harness:
    harness = Harness()
    for user, mechanism in (("b", 2), ("a", 2), ("a", 1)):
        harness.replay(
            UserScramCredentialRecord(
                name=user,
                mechanism=mechanism,
                salt=b"salt",
                stored_key=b"stored",
                server_key=b"server",
                iterations=4096 + mechanism,
            )
        )
    return harness


def described(h: Harness, users: list[str] | None) -> list[tuple[str, int, list[tuple[int, int]]]]:
    named = (
        None
        if users is None
        else [DescribeUserScramCredentialsRequest.UserName(name=user) for user in users]
    )
    response = h.body(DescribeUserScramCredentialsRequest(users=named))
    assert (response.error_code, response.error_message) == (0, "")
    return [
        (each.user, each.error_code, [(i.mechanism, i.iterations) for i in each.credential_infos])
        for each in response.results
    ]


@pytest.mark.parametrize("users", [None, []])
async def test_all_users(h: Harness, users: list[str] | None) -> None:
    assert described(h, users) == [("a", 0, [(1, 4097), (2, 4098)]), ("b", 0, [(2, 4098)])]


async def test_named_users(h: Harness) -> None:
    assert described(h, ["b"]) == [("b", 0, [(2, 4098)])]
    assert described(h, ["nobody", "b"]) == [
        ("nobody", ErrorCode.RESOURCE_NOT_FOUND, []),
        ("b", 0, [(2, 4098)]),
    ]
    assert described(h, ["a", "a"]) == [("a", ErrorCode.DUPLICATE_RESOURCE, [])]
