"""BrokerRegistration (API key 62), versions 0-4.

A broker registers with the active controller at every start, and gets a broker epoch.

Behaviour
- The broker begins fenced and stays so until its heartbeats show that it has caught up with the
  metadata. A second process with the same id is refused while the first one's session lives; the
  same incarnation may register again.
- The epoch is the offset of the registration's record: larger than any before.
- Authorisation: CLUSTER_ACTION on the cluster.

Versions
- 1 migration flag (obsolete, always false). 2 log directories (KIP-858).
- 3 previous broker epoch, which distinguishes a clean shutdown from a crash (KIP-966). 4 features
  with minimum 0 may be included (KAFKA-17011).
"""

from __future__ import annotations

from protocol.ids import ZERO_UUID
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
    uint16,
    uuid,
)


class BrokerRegistrationResponse(Response, api_key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    # DUPLICATE_BROKER_REGISTRATION: another live process has the id, retry later.
    # INCONSISTENT_CLUSTER_ID: another cluster, fatal. UNSUPPORTED_VERSION: the finalised features
    # do not fit the ranges. INVALID_REGISTRATION: inconsistent fields. NOT_CONTROLLER: find the
    # active one.
    error_code: int = field(int16, "0+", default=0)
    broker_epoch: int = field(int64, "0+", default=-1)


class BrokerRegistrationRequest(
    Request[BrokerRegistrationResponse],
    api_key=62,
    versions="0-4",
    flexible="0+",
    listeners=("controller",),
):
    broker_id: int = field(int32, "0+", default=0)
    cluster_id: str = field(string, "0+", default="")
    # New in each process; distinguishes two starts of a broker.
    incarnation_id: bytes = field(uuid, "0+", default=ZERO_UUID)
    listeners: list[Listener] = field(array("Listener"), "0+", default=FRESH)
    features: list[Feature] = field(array("Feature"), "0+", default=FRESH)
    rack: str | None = field(string, "0+", nullable="0+", default="")
    is_migrating_zk_broker: bool = field(boolean, "1+", default=False)
    log_dirs: list[bytes] = field(array(uuid), "2+", ignorable=True, default=FRESH)
    # From the clean-shutdown file; -1 after a crash. If the controller knows the same epoch, the
    # replicas stay eligible as leaders.
    previous_broker_epoch: int = field(int64, "3+", ignorable=True, default=-1)

    class Listener(Struct):
        name: str = field(string, "0+", default="")
        host: str = field(string, "0+", default="")
        port: int = field(uint16, "0+", default=0)
        # 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
        security_protocol: int = field(int16, "0+", default=0)

    class Feature(Struct):
        name: str = field(string, "0+", default="")
        min_supported_version: int = field(int16, "0+", default=0)
        max_supported_version: int = field(int16, "0+", default=0)
