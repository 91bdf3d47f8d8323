"""AlterConfigs (API key 33), versions 0-2.

Replaces the whole dynamic configuration of a resource: keys that the request omits return to their
default. IncrementalAlterConfigs replaces it; old clients still send it.

Behaviour
- Forwarded to the active controller; a broker's own resources are first checked by that broker.
- Resources fail one by one. Authorisation: ALTER_CONFIGS on the topic, group or cluster.

Versions
- 2 flexible.
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


class AlterConfigsResponse(Response, api_key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    responses: list[AlterConfigsResourceResponse] = field(
        array("AlterConfigsResourceResponse"), "0+", default=FRESH
    )

    class AlterConfigsResourceResponse(Struct):
        # INVALID_CONFIG: unknown key, bad value, or a key that cannot change at run time.
        # INVALID_REQUEST: a resource or key named twice, or a null value.
        # UNKNOWN_TOPIC_OR_PARTITION. POLICY_VIOLATION. NOT_CONTROLLER: forward again.
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default="")
        resource_type: int = field(int8, "0+", default=0)
        resource_name: str = field(string, "0+", default="")


class AlterConfigsRequest(
    Request[AlterConfigsResponse],
    api_key=33,
    versions="0-2",
    flexible="2+",
    listeners=("broker", "controller"),
):
    resources: list[AlterConfigsResource] = field(
        array("AlterConfigsResource"), "0+", default=FRESH
    )
    validate_only: bool = field(boolean, "0+", default=False)

    class AlterConfigsResource(Struct):
        # As in DescribeConfigs.
        resource_type: int = field(int8, "0+", default=0)
        resource_name: str = field(string, "0+", default="")
        configs: list[AlterConfigsRequest.AlterableConfig] = field(
            array("AlterableConfig"), "0+", default=FRESH
        )

    class AlterableConfig(Struct):
        name: str = field(string, "0+", default="")
        # Null is INVALID_REQUEST.
        value: str | None = field(string, "0+", nullable="0+", default="")
