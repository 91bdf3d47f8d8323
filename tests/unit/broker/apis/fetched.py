"""What tests of Fetch read in an answer."""

from __future__ import annotations

from typing import Any

from protocol.batch.records import read_records


def values(data: Any) -> list[bytes | None]:
    """The records' values of one partition's data."""
    return [record.value for record in read_records(bytes(data.records))]
