"""IncrementalAlterConfigs (API key 44), versions 0-1.

Changes single keys of the dynamic configuration of resources (KIP-339).

Behaviour
- Forwarded to the active controller; the changes of a resource succeed or fail together.
- Lists (append, subtract) keep their order; appending an existing element changes nothing.
- Resources fail one by one. Authorisation: ALTER_CONFIGS on the topic, group or cluster.

Versions
- 1 flexible.
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


class IncrementalAlterConfigsResponse(Response, api_key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    responses: list[AlterConfigsResourceResponse] = field(
        array("AlterConfigsResourceResponse"), "0+", default=FRESH
    )

    class AlterConfigsResourceResponse(Struct):
        # INVALID_CONFIG: unknown key, bad value, append to a key that is not a list, or a key that
        # cannot change at run time. INVALID_REQUEST: a resource or key twice, an unknown operation.
        # UNKNOWN_TOPIC_OR_PARTITION. POLICY_VIOLATION. NOT_CONTROLLER: forward again.
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default="")
        resource_type: int = field(int8, "0+", default=0)
        resource_name: str = field(string, "0+", default="")


class IncrementalAlterConfigsRequest(
    Request[IncrementalAlterConfigsResponse],
    api_key=44,
    versions="0-1",
    flexible="1+",
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
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig] = field(
            array("AlterableConfig"), "0+", default=FRESH
        )

    class AlterableConfig(Struct):
        name: str = field(string, "0+", default="")
        # 0 set, 1 delete (back to the default), 2 append, 3 subtract; the last two only for list
        # keys.
        config_operation: int = field(int8, "0+", default=0)
        # Null only with delete.
        value: str | None = field(string, "0+", nullable="0+", default="")
