"""SCRAM credentials of a new cluster (RFC 5802), as in `kafka-storage format --add-scram`.

A credential is `SCRAM-SHA-256=[name=alice,password=secret,iterations=4096,salt=c2FsdA==]` or the
same with SCRAM-SHA-512. Instead of the password the salted password may be given in Base64, with
its salt. Without a salt a random one is drawn. The rules are those of Apache Kafka 4.4.0: commas
separate the parts and cannot be quoted, white space is a part of a name or value, and a value in
double quotes loses them. No error message contains a value, which may be a password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import random
import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from protocol.metadata.user_scram_credential_record import UserScramCredentialRecord

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
_SALT_BITS = 130
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_PARTS = ("name", "password", "saltedpassword", "iterations", "salt")


class Mechanism(IntEnum):
    """SCRAM mechanisms by their number in records and on the wire."""

    SHA_256 = 1
    SHA_512 = 2


HASHES: Final[Mapping[int, str]] = {Mechanism.SHA_256: "sha256", Mechanism.SHA_512: "sha512"}
_NAMES = {"SCRAM-SHA-256": Mechanism.SHA_256, "SCRAM-SHA-512": Mechanism.SHA_512}


class BadCredential(ValueError):
    """A credential that cannot be written; the message names the part, never its value."""


def parse_credential(text: str, rng: random.Random) -> UserScramCredentialRecord:
    """Return the record of one credential.

    Args:
        rng: source of the salt, if the text has none. It must be unpredictable.

    Raises:
        BadCredential
    """
    name, equals, given = text.strip().partition("=")
    mechanism = _NAMES.get(name)
    if not equals or mechanism is None:
        raise BadCredential(f"expected {' or '.join(_NAMES)} and = before the credential")
    if not (given.startswith("[") and given.endswith("]") and len(given) > 1):
        raise BadCredential("expected [...] around the parts of the credential")
    parts = _parts(given[1:-1])
    if "name" not in parts:
        raise BadCredential("the credential has no name")
    iterations = _iterations(parts.get("iterations"))
    salt = _decoded("salt", parts["salt"]) if "salt" in parts else _random_salt(rng)
    salted_password = _salted_password(parts, salt, iterations, HASHES[mechanism])
    stored_key, server_key = derived_keys(salted_password, HASHES[mechanism])
    return UserScramCredentialRecord(
        name=parts["name"],
        mechanism=mechanism,
        salt=salt,
        stored_key=stored_key,
        server_key=server_key,
        iterations=iterations,
    )


def derived_keys(salted_password: bytes, digest: str) -> tuple[bytes, bytes]:
    """Return (stored key, server key) of RFC 5802 section 3, with the hash named `digest`."""
    client_key = hmac.digest(salted_password, b"Client Key", digest)
    server_key = hmac.digest(salted_password, b"Server Key", digest)
    return hashlib.new(digest, client_key).digest(), server_key


def _parts(text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    # As in Kafka, commas at the end are without effect.
    for part in (text.rstrip(",") or text[:1]).split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise BadCredential("a part of the credential has no equals sign")
        if name not in _PARTS:
            raise BadCredential(f"a part of the credential is none of {', '.join(_PARTS)}")
        quoted = len(value) > 1 and value.startswith('"') and value.endswith('"')
        parts[name] = value[1:-1] if quoted else value
    return parts


def _iterations(text: str | None) -> int:
    if text is None:
        return ITERATIONS_MIN
    count = int(text) if re.fullmatch(r"[+-]?\d+", text) else 0
    if not ITERATIONS_MIN <= count <= ITERATIONS_MAX:
        raise BadCredential(f"iterations must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return count


def _salted_password(parts: Mapping[str, str], salt: bytes, iterations: int, digest: str) -> bytes:
    password = parts.get("password")
    if password is not None:
        if not password:
            raise BadCredential("the password must not be empty")
        return hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    if "saltedpassword" not in parts:
        raise BadCredential("the credential has neither password nor saltedpassword")
    if "salt" not in parts:
        raise BadCredential("saltedpassword needs the salt that was used")
    salted_password = _decoded("saltedpassword", parts["saltedpassword"])
    if not salted_password:
        raise BadCredential("saltedpassword must not be empty")
    return salted_password


def _decoded(name: str, text: str) -> bytes:
    """Decode Base64, whose padding may be missing as a whole."""
    padded = text if "=" in text else text + "=" * (-len(text) % 4)
    try:
        return base64.b64decode(padded, validate=True)
    except (binascii.Error, ValueError):
        raise BadCredential(f"{name} must be Base64") from None


def _random_salt(rng: random.Random) -> bytes:
    """Return a salt of 130 random bits as text, which is Kafka's form."""
    number, text = rng.getrandbits(_SALT_BITS), ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        text = _DIGITS[digit] + text
    return text.encode()
