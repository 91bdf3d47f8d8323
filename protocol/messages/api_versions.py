"""ApiVersions (API key 18), versions 0-4."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    boolean,
    field,
    int16,
    int32,
    int64,
    string,
)


class ApiVersionsResponse(Response, api_key=18, versions="0-4", flexible="3+"):
    error_code: int = field(int16, "0+", default=0)
    api_keys: list[ApiVersion] = field(array("ApiVersion"), "0+", default=FRESH)
    throttle_time_ms: int = field(int32, "1+", ignorable=True, default=0)
    supported_features: list[SupportedFeatureKey] = field(
        array("SupportedFeatureKey"), "3+", tag=0, ignorable=True, default=FRESH
    )
    finalized_features_epoch: int = field(int64, "3+", tag=1, ignorable=True, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field(
        array("FinalizedFeatureKey"), "3+", tag=2, ignorable=True, default=FRESH
    )
    zk_migration_ready: bool = field(boolean, "3+", tag=3, ignorable=True, default=False)

    class ApiVersion(Struct):
        api_key: int = field(int16, "0+", default=0)
        min_version: int = field(int16, "0+", default=0)
        max_version: int = field(int16, "0+", default=0)

    class SupportedFeatureKey(Struct):
        name: str = field(string, "3+", default="")
        min_version: int = field(int16, "3+", default=0)
        max_version: int = field(int16, "3+", default=0)

    class FinalizedFeatureKey(Struct):
        name: str = field(string, "3+", default="")
        max_version_level: int = field(int16, "3+", default=0)
        min_version_level: int = field(int16, "3+", default=0)


class ApiVersionsRequest(
    Request[ApiVersionsResponse],
    api_key=18,
    versions="0-4",
    flexible="3+",
    listeners=("broker", "controller"),
):
    client_software_name: str = field(string, "3+", ignorable=True, default="")
    client_software_version: str = field(string, "3+", ignorable=True, default="")
