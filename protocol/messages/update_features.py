"""UpdateFeatures (API key 57), versions 0-2.

Finalises feature levels of the whole cluster, including `metadata.version` (KIP-584, KIP-778).

Behaviour
- All updates succeed or fail together (2); every registered node must support each level. Level 0
  disables a feature. A downgrade needs an upgrade type that allows it.
- Forwarded to the active controller. Authorisation: ALTER on the cluster.

Versions
- 0 a flag allows downgrades. 1 upgrade type, validate only. 2 one error for all updates.
"""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    boolean,
    field,
    int8,
    int16,
    int32,
    string,
)


class UpdateFeaturesResponse(Response, api_key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    # INVALID_UPDATE_VERSION: not supported by a node, a forbidden step, or in conflict with another
    # feature. FEATURE_UPDATE_FAILED. INVALID_REQUEST: a feature twice, or no level. NOT_CONTROLLER:
    # forward again.
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default="")
    results: list[UpdatableFeatureResult] = field(
        array("UpdatableFeatureResult"), "0-1", ignorable=True, default=FRESH
    )

    class UpdatableFeatureResult(Struct):
        feature: str = field(string, "0+", default="")
        # As above, for one feature (0-1).
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default="")


class UpdateFeaturesRequest(
    Request[UpdateFeaturesResponse],
    api_key=57,
    versions="0-2",
    flexible="0+",
    listeners=("broker", "controller"),
):
    timeout_ms: int = field(int32, "0+", default=60000)
    feature_updates: list[FeatureUpdateKey] = field(array("FeatureUpdateKey"), "0+", default=FRESH)
    validate_only: bool = field(boolean, "1+", default=False)

    class FeatureUpdateKey(Struct):
        feature: str = field(string, "0+", default="")
        max_version_level: int = field(int16, "0+", default=0)
        allow_downgrade: bool = field(boolean, "0", default=False)
        # 1 upgrade only, 2 safe downgrade allowed (without loss), 3 unsafe downgrade allowed.
        upgrade_type: int = field(int8, "1+", default=1)
