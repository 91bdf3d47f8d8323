"""Uuids and their textual form."""

from __future__ import annotations

import random

import pytest

from protocol.ids import (
    METADATA_TOPIC_ID,
    RESERVED_UUIDS,
    ZERO_UUID,
    random_uuid,
    uuid_from_text,
    uuid_to_text,
)


def test_text_is_what_kafka_prints() -> None:
    assert uuid_to_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_to_text(bytes(range(240, 256))) == "8PHy8_T19vf4-fr7_P3-_w"


def test_text_and_back() -> None:
    rng = random.Random(5)
    for _ in range(200):
        value = random_uuid(rng)
        text = uuid_to_text(value)
        assert uuid_from_text(text) == value == uuid_from_text(text + "==")


@pytest.mark.parametrize(
    "text", ["", "AAAA", "A" * 21, "A" * 23, "A" * 24, "*" * 22, "\u00e4" * 22, "=" * 22]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="uuid|base64"):
        uuid_from_text(text)


def test_other_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes, not 15"):
        uuid_to_text(bytes(15))


def test_random_uuids_are_of_version_4_and_no_option() -> None:
    rng = random.Random(6)
    for _ in range(500):
        value = random_uuid(rng)
        assert value[6] >> 4 == 4
        assert value[8] >> 6 == 2
        assert value not in RESERVED_UUIDS
        assert not uuid_to_text(value).startswith("-")


def test_one_seed_gives_one_uuid() -> None:
    assert random_uuid(random.Random(7)) == random_uuid(random.Random(7))
