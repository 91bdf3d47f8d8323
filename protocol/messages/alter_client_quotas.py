"""AlterClientQuotas (API key 49), versions 0-1."""

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
    int16,
    int32,
    string,
)


class AlterClientQuotasResponse(Response, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    entries: list[EntryData] = field(array("EntryData"), "0+", default=FRESH)

    class EntryData(Struct):
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default="")
        entity: list[AlterClientQuotasResponse.EntityData] = field(
            array("EntityData"), "0+", default=FRESH
        )

    class EntityData(Struct):
        entity_type: str = field(string, "0+", default="")
        entity_name: str | None = field(string, "0+", nullable="0+", default="")


class AlterClientQuotasRequest(
    Request[AlterClientQuotasResponse],
    api_key=49,
    versions="0-1",
    flexible="1+",
    listeners=("broker", "controller"),
):
    entries: list[EntryData] = field(array("EntryData"), "0+", default=FRESH)
    validate_only: bool = field(boolean, "0+", default=False)

    class EntryData(Struct):
        entity: list[AlterClientQuotasRequest.EntityData] = field(
            array("EntityData"), "0+", default=FRESH
        )
        ops: list[AlterClientQuotasRequest.OpData] = field(array("OpData"), "0+", default=FRESH)

    class EntityData(Struct):
        entity_type: str = field(string, "0+", default="")
        entity_name: str | None = field(string, "0+", nullable="0+", default="")

    class OpData(Struct):
        key: str = field(string, "0+", default="")
        value: float = field(float64, "0+", default=0.0)
        remove: bool = field(boolean, "0+", default=False)
