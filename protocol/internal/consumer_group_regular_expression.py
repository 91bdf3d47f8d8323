"""ConsumerGroupRegularExpression, key and value (record type 16); value version 0."""

from __future__ import annotations

from protocol.schema import FRESH, CoordinatorRecord, array, field, int64, string


class ConsumerGroupRegularExpressionKey(CoordinatorRecord, record_type=16, versions="0"):
    group_id: str = field(string, "0", default="")
    regular_expression: str = field(string, "0", default="")


class ConsumerGroupRegularExpressionValue(
    CoordinatorRecord, record_type=16, versions="0", flexible="0+"
):
    topics: list[str] = field(array(string), "0+", default=FRESH)
    version: int = field(int64, "0+", default=0)
    timestamp: int = field(int64, "0+", default=0)
