"""Partition of a group id; hashes are those of java.lang.String.hashCode."""

from __future__ import annotations

import pytest

from broker.coordinators.partitioner import java_string_hash, partition_for


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
