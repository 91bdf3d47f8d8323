"""DescribeUserScramCredentials (key 50), version 0 (KIP-554).

Behaviour: users' SCRAM mechanisms with their number of iterations; never the keys. No users, null
or empty, means all of them.

Errors per user: RESOURCE_NOT_FOUND (has no credentials), DUPLICATE_RESOURCE (named twice).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from broker.context import BrokerContext
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

VERSION: Final = 0

_Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_Info = DescribeUserScramCredentialsResponse.CredentialInfo


def register(table: HandlerTable, broker: BrokerContext) -> None:
    def handle(_context: RequestContext, request: DescribeUserScramCredentialsRequest) -> Reply:
        return describe(broker, request)

    table.register(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, handle, min_version=VERSION, max_version=VERSION
    )


def describe(
    broker: BrokerContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Return the credentials of every requested user, with an error per user."""
    stored: dict[str, list[DescribeUserScramCredentialsResponse.CredentialInfo]] = {}
    for (mechanism, user), credential in sorted(broker.metadata.image.scram.items()):
        info = _Info(mechanism=mechanism, iterations=credential.iterations)
        stored.setdefault(user, []).append(info)
    named = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        error_message="",
        results=[_result(stored, user, twice=named[user] > 1) for user in named or sorted(stored)],
    )


def _result(
    stored: Mapping[str, list[DescribeUserScramCredentialsResponse.CredentialInfo]],
    user: str,
    *,
    twice: bool,
) -> DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult:
    if twice:
        return _Result(
            user=user,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"duplicate user {user!r}",
        )
    if user not in stored:
        return _Result(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"{user!r} has no SCRAM credentials",
        )
    return _Result(user=user, error_message="", credential_infos=stored[user])
