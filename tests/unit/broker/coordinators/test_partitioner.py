"""Partition of a group id; hashes are those of java.lang.String.hashCode."""

from __future__ import annotations

import pytest

from broker.coordinators import partitioner
from broker.coordinators.partitioner import CACHED_CHARS_MAX, java_string_hash, partition_for


@pytest.mark.parametrize(
    ("text", "hashed", "partition"),
    [
        ("", 0, 0),
        ("a", 97, 47),
        ("grp", 102629, 29),
        ("my-group", -1906497762, 12),
        ("grüße", 98768023, 23),
        ("\U0001f600 emoji", -1572615351, 1),
        ("AaAaAaAa zzzzzzzzzzzz", 362994336, 36),
        ("polygenelubricants", -(2**31), 0),
    ],
)
def test_hash_and_partition(text: str, hashed: int, partition: int) -> None:
    assert java_string_hash(text) == hashed
    assert partition_for(text, 50) == partition


def test_long_keys_are_hashed_alike_and_not_kept() -> None:
    """If cached, 4,096 group ids of 32 KB would stay in memory forever."""
    before = partitioner._kept_hash.cache_info().currsize
    for size in (CACHED_CHARS_MAX + 1, 32_767):
        expected = 0
        for char in "x" * size:
            expected = (expected * 31 + ord(char)) & 0xFFFFFFFF
        assert java_string_hash("x" * size) & 0xFFFFFFFF == expected
    assert partitioner._kept_hash.cache_info().currsize == before
