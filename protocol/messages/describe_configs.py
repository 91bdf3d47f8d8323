"""DescribeConfigs (API key 32), versions 1-4.

Returns the effective configuration of topics, brokers, groups and client-metrics resources, with
the source of each value.

Behaviour
- Any broker returns topics and cluster defaults; only the broker itself its own configuration.
- Sensitive values are null. Authorisation: DESCRIBE_CONFIGS on the topic, group or cluster.

Versions
- 1 source and synonyms. 3 type and documentation (KIP-569). 4 flexible.
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


class DescribeConfigsResponse(Response, api_key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    results: list[DescribeConfigsResult] = field(
        array("DescribeConfigsResult"), "0+", default=FRESH
    )

    class DescribeConfigsResult(Struct):
        # UNKNOWN_TOPIC_OR_PARTITION. INVALID_TOPIC_EXCEPTION. INVALID_REQUEST: a name that the
        # type cannot have, or another broker's. TOPIC_AUTHORIZATION_FAILED,
        # CLUSTER_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED.
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default="")
        resource_type: int = field(int8, "0+", default=0)
        resource_name: str = field(string, "0+", default="")
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = field(
            array("DescribeConfigsResourceResult"), "0+", default=FRESH
        )

    class DescribeConfigsResourceResult(Struct):
        name: str = field(string, "0+", default="")
        value: str | None = field(string, "0+", nullable="0+", default="")
        read_only: bool = field(boolean, "0+", default=False)
        # 1 topic, 2 this broker (dynamic), 3 all brokers (dynamic), 4 server.properties, 5 built-
        # in default, 6 broker logger, 7 client metrics, 8 group.
        config_source: int = field(int8, "1+", ignorable=True, default=-1)
        is_sensitive: bool = field(boolean, "0+", default=False)
        # All places that define the value, the effective one first.
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = field(
            array("DescribeConfigsSynonym"), "1+", ignorable=True, default=FRESH
        )
        # 0 unknown, 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9
        # password.
        config_type: int = field(int8, "3+", ignorable=True, default=0)
        documentation: str | None = field(string, "3+", nullable="0+", ignorable=True, default="")

    class DescribeConfigsSynonym(Struct):
        name: str = field(string, "1+", default="")
        value: str | None = field(string, "1+", nullable="0+", default="")
        source: int = field(int8, "1+", default=0)


class DescribeConfigsRequest(
    Request[DescribeConfigsResponse],
    api_key=32,
    versions="1-4",
    flexible="4+",
    listeners=("broker", "controller"),
):
    resources: list[DescribeConfigsResource] = field(
        array("DescribeConfigsResource"), "0+", default=FRESH
    )
    include_synonyms: bool = field(boolean, "1+", default=False)
    include_documentation: bool = field(boolean, "3+", default=False)

    class DescribeConfigsResource(Struct):
        # 2 topic, 4 broker (an empty name: the cluster-wide default), 8 broker logger, 16 client
        # metrics, 32 group.
        resource_type: int = field(int8, "0+", default=0)
        resource_name: str = field(string, "0+", default="")
        # Null: all keys. Unknown names are left out of the response.
        configuration_keys: list[str] | None = field(
            array(string), "0+", nullable="0+", default=FRESH
        )
