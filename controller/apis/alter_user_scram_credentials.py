"""AlterUserScramCredentials (key 51), version 0.

Behaviour: removes and writes credentials for SASL/SCRAM (KIP-554); each user succeeds or fails
alone. The credentials are only stored: no listener authenticates clients with them yet.

Errors per user: UNACCEPTABLE_CREDENTIAL (no name, iterations out of range, no password),
UNSUPPORTED_SASL_MECHANISM, RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE (named twice). For all:
UNSUPPORTED_VERSION (metadata.version is too low), POLICY_VIOLATION, NOT_CONTROLLER.
"""

from __future__ import annotations

from controller.configs.scram import Deletion, ScramOutcome, Upsertion, decide_alter_scram
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

VERSION = 0


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(_context: RequestContext, request: AlterUserScramCredentialsRequest) -> Reply:
        deletions = [Deletion(each.name, each.mechanism) for each in request.deletions]
        upsertions = [
            Upsertion(each.name, each.mechanism, each.iterations, each.salt, each.salted_password)
            for each in request.upsertions
        ]
        users = dict.fromkeys([*(d.user for d in deletions), *(u.user for u in upsertions)])
        return controller.submit(
            lambda view: decide_alter_scram(view, deletions, upsertions),
            _response,
            fail=lambda error: _response(tuple(ScramOutcome(user, error) for user in users)),
        )

    table.register(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, handle, min_version=VERSION, max_version=VERSION
    )


def _response(outcomes: tuple[ScramOutcome, ...]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
                user=user,
                error_code=0 if error is None else error.code,
                error_message=None if error is None else error.text,
            )
            for user, error in outcomes
        ]
    )
