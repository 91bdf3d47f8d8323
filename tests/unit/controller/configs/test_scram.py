"""Credentials for SASL/SCRAM."""

from __future__ import annotations

import base64
import hashlib

import pytest

from controller.configs.scram import Deletion, Upsertion, decide_alter_scram
from metalog.scram import Mechanism, derived_keys
from protocol.errors import ApiError, ErrorCode
from testkit.memory.controller import Cluster


def upsertion(user: str = "u", mechanism: int = 1, iterations: int = 4096) -> Upsertion:
    return Upsertion(user, mechanism, iterations, b"salt", b"p" * 32)


def alter(cluster: Cluster, *changes: Deletion | Upsertion) -> dict[str, ErrorCode]:
    deletions = [change for change in changes if isinstance(change, Deletion)]
    upsertions = [change for change in changes if isinstance(change, Upsertion)]
    outcomes = cluster.run(lambda view: decide_alter_scram(view, deletions, upsertions))
    return {user: ErrorCode.NONE if e is None else e.code for user, e in outcomes}


def test_the_keys_are_those_of_the_rfcs_example() -> None:
    # RFC 7677 section 3: user "user", password "pencil".
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    stored, server = derived_keys(salted, "sha256")
    assert base64.b64encode(stored) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(server) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="


def test_write_replace_and_remove() -> None:
    cluster = Cluster()
    assert alter(cluster, upsertion(), upsertion("w", Mechanism.SHA_512)) == {"u": 0, "w": 0}
    credential = cluster.image.scram[(Mechanism.SHA_256, "u")]
    assert (credential.iterations, credential.salt) == (4096, b"salt")
    assert (credential.stored_key, credential.server_key) == derived_keys(b"p" * 32, "sha256")
    assert len(cluster.image.scram[(Mechanism.SHA_512, "w")].stored_key) == 64
    assert alter(cluster, upsertion(iterations=16_384)) == {"u": 0}
    assert cluster.image.scram[(Mechanism.SHA_256, "u")].iterations == 16_384
    assert alter(cluster, Deletion("u", 1)) == {"u": 0}
    assert (Mechanism.SHA_256, "u") not in cluster.image.scram


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion()._replace(salted_password=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (Deletion("", 1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (Deletion("u", 9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (Deletion("u", 1), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
def test_refusals(change: Deletion | Upsertion, code: ErrorCode) -> None:
    cluster = Cluster()
    offset = cluster.next_offset
    assert alter(cluster, change) == {change.user: code}
    assert cluster.next_offset == offset


def test_a_user_named_twice_does_not_stop_the_others() -> None:
    cluster = Cluster()
    outcomes = alter(cluster, upsertion(), upsertion(mechanism=2), upsertion("other"))
    assert outcomes == {"u": ErrorCode.DUPLICATE_RESOURCE, "other": ErrorCode.NONE}
    assert [user for _, user in cluster.image.scram] == ["other"]


def test_an_old_metadata_version_has_no_such_records() -> None:
    cluster = Cluster(metadata_version=10)
    with pytest.raises(ApiError) as refusal:
        alter(cluster, upsertion())
    assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION
