"""SASL/SCRAM credentials of users (RFC 5802, KIP-554): stored and described, not yet used.

A client sends the salted password. The controller stores the two keys derived from it, from which
the password cannot be computed. One request may change a user only once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from controller.decision import ControllerView, Decision, check_record_count
from metalog.image.features import SCRAM_LEVEL
from metalog.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, derived_keys
from protocol.errors import ApiError, ErrorCode
from protocol.metadata.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from protocol.metadata.user_scram_credential_record import UserScramCredentialRecord
from protocol.schema import MetadataRecord


class Deletion(NamedTuple):
    user: str
    mechanism: int


class Upsertion(NamedTuple):
    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class ScramOutcome(NamedTuple):
    user: str
    error: ApiError | None


def decide_alter_scram(
    view: ControllerView, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
) -> Decision[tuple[ScramOutcome, ...]]:
    """Remove and write credentials; each user succeeds or fails independently.

    Raises:
        ApiError: UNSUPPORTED_VERSION, the finalised metadata.version has no such records;
            POLICY_VIOLATION, the request is too large for one operation.
    """
    if view.metadata_version < SCRAM_LEVEL:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"metadata.version {view.metadata_version} does not support SCRAM "
            f"credentials; {SCRAM_LEVEL} does",
        )
    changes: list[Deletion | Upsertion] = [*deletions, *upsertions]
    counts = Counter(change.user for change in changes)
    outcomes: dict[str, ScramOutcome] = {}
    records: list[MetadataRecord] = []
    for change in changes:
        user = change.user
        try:
            if counts[user] > 1:
                raise ApiError(ErrorCode.DUPLICATE_RESOURCE, f"duplicate user {user!r}")
            record = _record(view, change)
        except ApiError as error:
            outcomes[user] = ScramOutcome(user, error.as_value())
        else:
            outcomes[user] = ScramOutcome(user, None)
            records.append(record)
    check_record_count(len(records))
    return Decision(tuple(records), tuple(outcomes.values()))


def _record(view: ControllerView, change: Deletion | Upsertion) -> MetadataRecord:
    if not change.user:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "missing user name")
    digest = HASHES.get(change.mechanism)
    if digest is None:
        raise ApiError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"invalid SCRAM mechanism {change.mechanism}",
        )
    if isinstance(change, Upsertion):
        return _upsert(change, digest)
    if (change.mechanism, change.user) not in view.image.scram:
        raise ApiError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"user {change.user!r} has no credential of this mechanism",
        )
    return RemoveUserScramCredentialRecord(name=change.user, mechanism=change.mechanism)


def _upsert(change: Upsertion, digest: str) -> UserScramCredentialRecord:
    if not ITERATIONS_MIN <= change.iterations <= ITERATIONS_MAX:
        raise ApiError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"iterations must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}, not "
            f"{change.iterations}",
        )
    if not change.salted_password:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salted password must not be empty")
    stored_key, server_key = derived_keys(change.salted_password, digest)
    return UserScramCredentialRecord(
        name=change.user,
        mechanism=change.mechanism,
        salt=change.salt,
        stored_key=stored_key,
        server_key=server_key,
        iterations=change.iterations,
    )
