"""Readers of Fetch responses for tests."""

from __future__ import annotations

from typing import Any

from protocol.batch.records import read_records


def values(data: Any) -> list[bytes | None]:
    """Return the values of the records in one partition's data."""
    return [record.value for record in read_records(bytes(data.records))]
