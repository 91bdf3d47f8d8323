"""Credentials of `storage format --add-scram`. The values are from ScramParser of Kafka 4.4.0."""

from __future__ import annotations

import random
import re

import pytest

from metalog.scram import BadCredential, parse_credential
from protocol.metadata import UserScramCredentialRecord


def parsed(text: str, seed: int = 1) -> UserScramCredentialRecord:
    return parse_credential(text, random.Random(seed))


@pytest.mark.parametrize(
    ("text", "name", "iterations", "salt", "stored_key"),
    [
        ("name=alice,password=secret,iterations=4096,salt=c2FsdA==", "alice", 4096, b"salt", "66"),
        ('name="alice",password="sec=ret",salt=c2FsdA', "alice", 4096, b"salt", "c5ce0c"),
        ("name=a,saltedpassword=c2FsdA==,salt=c2FsdA==", "a", 4096, b"salt", "6bcd05"),
        ("name=a,saltedpassword=!,password=x,salt=c2FsdA==", "a", 4096, b"salt", "26d847"),
        ("name=a,password=x,salt=", "a", 4096, b"", "25b6bf"),
        ("name=,password=x,salt=c2FsdA==", "", 4096, b"salt", "26d847"),
        ("name=x,name=z,password=y,iterations=+4096,salt=c2FsdA==,,", "z", 4096, b"salt", "842b72"),
        ('name=x,password=",salt=c2FsdA==', "x", 4096, b"salt", "008f0e"),
        ("name=x,password=pässwörd,salt=c2FsdA==", "x", 4096, b"salt", "962c74"),
    ],
)
def test_credential_has_the_keys_of_kafka(
    text: str, name: str, iterations: int, salt: bytes, stored_key: str
) -> None:
    """RFC 5802, and the tool of 4.4.0: equal text gives an equal record."""
    record = parsed(f" SCRAM-SHA-256=[{text}] ")
    assert (record.name, record.mechanism, record.iterations) == (name, 1, iterations)
    assert record.salt == salt
    assert record.stored_key.hex().startswith(stored_key)
    assert len(record.stored_key) == len(record.server_key) == 32


def test_sha_512_has_longer_keys() -> None:
    record = parsed("SCRAM-SHA-512=[name=alice,password=secret,iterations=16384,salt=c2FsdA]")
    assert (record.mechanism, record.iterations) == (2, 16384)
    assert record.stored_key.hex().startswith("188e6bf3ab00")
    assert record.server_key.hex().startswith("1ed4cbfbe889")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SCRAM-SHA-256", "expected SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("=[name=x]", "expected SCRAM-SHA-256"),
        ("SCRAM-MD5=[name=x,password=hush]", "expected SCRAM-SHA-256"),
        ("scram-sha-256=[name=x,password=hush]", "expected SCRAM-SHA-256"),
        ("SCRAM-SHA-256=", "expected [...]"),
        ("SCRAM-SHA-256=[", "expected [...]"),
        ("SCRAM-SHA-256=name=x", "expected [...]"),
        ("SCRAM-SHA-256=[name=x", "expected [...]"),
        ("SCRAM-SHA-256=[]", "no equals sign"),
        ("SCRAM-SHA-256=[name=x,,password=hush]", "no equals sign"),
        ('SCRAM-SHA-256=[name="al,ice",password=hush]', "no equals sign"),
        ("SCRAM-SHA-256=[name=x,hush]", "no equals sign"),
        ("SCRAM-SHA-256=[ name=x,password=hush]", "is none of name, password"),
        ("SCRAM-SHA-256=[name=x, password=hush]", "is none of name, password"),
        ("SCRAM-SHA-256=[name=x,password=hush,color=red]", "is none of name, password"),
        ("SCRAM-SHA-256=[password=hush]", "no name"),
        ("SCRAM-SHA-256=[name=x]", "neither password nor saltedpassword"),
        ("SCRAM-SHA-256=[name=x,password=]", "the password must not be empty"),
        ('SCRAM-SHA-256=[name=x,password=""]', "the password must not be empty"),
        ("SCRAM-SHA-256=[name=x,saltedpassword=aHVzaA==]", "saltedpassword needs the salt"),
        ("SCRAM-SHA-256=[name=x,saltedpassword=,salt=aHVzaA==]", "must not be empty"),
        ("SCRAM-SHA-256=[name=x,saltedpassword=!!,salt=aHVzaA==]", "saltedpassword must be Base64"),
        ("SCRAM-SHA-256=[name=x,password=hush,salt=c2F sdA==]", "salt must be Base64"),
        ("SCRAM-SHA-256=[name=x,password=hush,salt=a]", "salt must be Base64"),
        ("SCRAM-SHA-256=[name=x,password=hush,salt=c2FsdA=]", "salt must be Base64"),
        ("SCRAM-SHA-256=[name=x,password=hush,salt=c2Fsd===]", "salt must be Base64"),
        ("SCRAM-SHA-256=[name=x,password=hush,salt=-_==]", "salt must be Base64"),
        ("SCRAM-SHA-256=[name=x,password=hush,iterations=4095]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=x,password=hush,iterations=16385]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=x,password=hush,iterations=99999999999]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=x,password=hush,iterations= 4096]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=x,password=hush,iterations=4_096]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=x,password=hush,iterations=]", "from 4096 to 16384"),
    ],
)
def test_credential_that_kafka_refuses_is_refused_without_its_password(
    text: str, message: str
) -> None:
    with pytest.raises(BadCredential, match=re.escape(message)) as refused:
        parsed(text)
    assert "hush" not in str(refused.value)


def test_salt_is_random_text_without_a_given_one() -> None:
    """ScramFormatter of 4.4.0 draws 130 bits as text."""
    text = "SCRAM-SHA-256=[name=x,password=y]"
    first, second = parsed(text, 1), parsed(text, 2)
    assert first.salt != second.salt and first.stored_key != second.stored_key
    assert re.fullmatch(rb"[0-9a-z]{20,26}", first.salt)
