"""DescribeClientQuotas (API key 48), versions 0-1."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    boolean,
    field,
    float64,
    int8,
    int16,
    int32,
    string,
)


class DescribeClientQuotasResponse(Response, api_key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default="")
    entries: list[EntryData] | None = field(array("EntryData"), "0+", nullable="0+", default=FRESH)

    class EntryData(Struct):
        entity: list[DescribeClientQuotasResponse.EntityData] = field(
            array("EntityData"), "0+", default=FRESH
        )
        values: list[DescribeClientQuotasResponse.ValueData] = field(
            array("ValueData"), "0+", default=FRESH
        )

    class EntityData(Struct):
        entity_type: str = field(string, "0+", default="")
        entity_name: str | None = field(string, "0+", nullable="0+", default="")

    class ValueData(Struct):
        key: str = field(string, "0+", default="")
        value: float = field(float64, "0+", default=0.0)


class DescribeClientQuotasRequest(
    Request[DescribeClientQuotasResponse],
    api_key=48,
    versions="0-1",
    flexible="1+",
    listeners=("broker",),
):
    components: list[ComponentData] = field(array("ComponentData"), "0+", default=FRESH)
    strict: bool = field(boolean, "0+", default=False)

    class ComponentData(Struct):
        entity_type: str = field(string, "0+", default="")
        match_type: int = field(int8, "0+", default=0)
        match: str | None = field(string, "0+", nullable="0+", default="")
