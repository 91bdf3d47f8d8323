"""ApiVersions (API key 18), versions 0-5.

Requests the APIs, versions and features of a node. It is the first request on every connection.

Behaviour
- The response header is version 0 in every version. A request in an unknown version gets a response
  in version 0 with UNSUPPORTED_VERSION and the range of this API, so that the client can retry.
- The response lists exactly the APIs that the listener's handlers serve, except Produce from 0
  (KAFKA-18659).
- Supported features whose minimum is 0 are left out before version 4: older Java clients fail on
  them (KAFKA-17011).
- From 5 on a client may name the cluster and the node that it expects (KIP-1242). Only one of both
  gives INVALID_REQUEST. A broker that is another one answers with REBOOTSTRAP_REQUIRED; a
  controller does not compare. Either answer has an empty list of APIs.
- Authorisation: none.

Versions
- 3 flexible; name and version of the client software (KIP-511); features (KIP-584). 4 see above.
  5 cluster and node.
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
    int16,
    int32,
    int64,
    string,
)


class ApiVersionsResponse(Response, api_key=18, versions="0-5", flexible="3+"):
    # UNSUPPORTED_VERSION, INVALID_REQUEST, REBOOTSTRAP_REQUIRED.
    error_code: int = field(int16, "0+", default=0)
    api_keys: list[ApiVersion] = field(array("ApiVersion"), "0+", default=FRESH)
    throttle_time_ms: int = field(int32, "1+", ignorable=True, default=0)
    supported_features: list[SupportedFeatureKey] = field(
        array("SupportedFeatureKey"), "3+", tag=0, ignorable=True, default=FRESH
    )
    # Metadata offset of the features below; -1 when unknown.
    finalized_features_epoch: int = field(int64, "3+", tag=1, ignorable=True, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field(
        array("FinalizedFeatureKey"), "3+", tag=2, ignorable=True, default=FRESH
    )
    # Obsolete; always false.
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
    versions="0-5",
    flexible="3+",
    listeners=("broker", "controller"),
):
    # Letters, digits, dots and dashes, beginning and ending with a letter or digit; else
    # INVALID_REQUEST. Same for the version.
    client_software_name: str = field(string, "3+", ignorable=True, default="")
    client_software_version: str = field(string, "3+", ignorable=True, default="")
    # Both or none: null and -1 stand for none.
    cluster_id: str | None = field(string, "5+", nullable="5+", ignorable=True, default=None)
    node_id: int = field(int32, "5+", ignorable=True, default=-1)
