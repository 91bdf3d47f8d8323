"""BrokerHeartbeat (API key 63), versions 0-2.

A broker reports that it is alive, and its requests; the controller returns the broker's state.

Behaviour
- Sent every broker.heartbeat.interval.ms; without it for broker.session.timeout.ms the broker is
  fenced and loses its leaderships.
- The broker is unfenced once `current_metadata_offset` has reached the offset of its registration.
- Controlled shutdown: with `want_shut_down` the controller moves leaderships away. It sets
  `should_shut_down` once the broker leads no partition and the other brokers know the new leaders.
- Authorisation: CLUSTER_ACTION on the cluster.

Versions
- 1 failed log directories (KIP-858). 2 cordoned log directories.
"""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    array,
    boolean,
    field,
    int16,
    int32,
    int64,
    uuid,
)


class BrokerHeartbeatResponse(Response, api_key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    # STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED: register again. NOT_CONTROLLER: find the active
    # one.
    error_code: int = field(int16, "0+", default=0)
    # True if the controller considers the broker's metadata recent.
    is_caught_up: bool = field(boolean, "0+", default=False)
    is_fenced: bool = field(boolean, "0+", default=True)
    should_shut_down: bool = field(boolean, "0+", default=False)


class BrokerHeartbeatRequest(
    Request[BrokerHeartbeatResponse],
    api_key=63,
    versions="0-2",
    flexible="0+",
    listeners=("controller",),
):
    broker_id: int = field(int32, "0+", default=0)
    # Another one than the present registration's: STALE_BROKER_EPOCH.
    broker_epoch: int = field(int64, "0+", default=-1)
    # The highest offset the broker has applied.
    current_metadata_offset: int = field(int64, "0+", default=0)
    want_fence: bool = field(boolean, "0+", default=False)
    want_shut_down: bool = field(boolean, "0+", default=False)
    # Failed directories: their replicas leave their in-sync sets and leaderships.
    offline_log_dirs: list[bytes] = field(array(uuid), "1+", tag=0, default=FRESH)
    # Directories that accept no new replicas. Null: unchanged.
    cordoned_log_dirs: list[bytes] | None = field(
        array(uuid), "2+", nullable="2+", tag=1, default=None
    )
