"""Bounds of group keys: a node's key with its keys for the minimum and the maximum."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from runtime.config import keys_group_coordinator as keys
from runtime.config.schema import NodeKey

Bounds: TypeAlias = tuple[NodeKey[int], NodeKey[int] | None, NodeKey[int] | None]
"""A node's key with its minimum and its maximum, which apply to all groups and to single groups."""

PROTOCOLS: Final[tuple[tuple[Bounds, Bounds, Bounds], ...]] = (
    (
        (
            keys.GROUP_CONSUMER_SESSION_TIMEOUT_MS,
            keys.GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
            keys.GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
        ),
        (
            keys.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
            keys.GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
            keys.GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
        ),
        (
            keys.GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
            keys.GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
            keys.GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
        ),
    ),
    (
        (
            keys.GROUP_SHARE_SESSION_TIMEOUT_MS,
            keys.GROUP_SHARE_MIN_SESSION_TIMEOUT_MS,
            keys.GROUP_SHARE_MAX_SESSION_TIMEOUT_MS,
        ),
        (
            keys.GROUP_SHARE_HEARTBEAT_INTERVAL_MS,
            keys.GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS,
            keys.GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS,
        ),
        (
            keys.GROUP_SHARE_ASSIGNMENT_INTERVAL_MS,
            keys.GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS,
            keys.GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS,
        ),
    ),
    (
        (
            keys.GROUP_STREAMS_SESSION_TIMEOUT_MS,
            keys.GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS,
            keys.GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS,
        ),
        (
            keys.GROUP_STREAMS_HEARTBEAT_INTERVAL_MS,
            keys.GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS,
            keys.GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS,
        ),
        (
            keys.GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS,
            keys.GROUP_STREAMS_MIN_ASSIGNMENT_INTERVAL_MS,
            keys.GROUP_STREAMS_MAX_ASSIGNMENT_INTERVAL_MS,
        ),
    ),
)
"""For each group protocol: its session timeout, heartbeat interval and assignment interval."""

OTHER_BOUNDS: Final[tuple[Bounds, ...]] = (
    (
        keys.GROUP_SHARE_DELIVERY_COUNT_LIMIT,
        keys.GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT,
        keys.GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT,
    ),
    (
        keys.GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS,
        keys.GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS,
        keys.GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS,
    ),
    (
        keys.GROUP_SHARE_RECORD_LOCK_DURATION_MS,
        keys.GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS,
        keys.GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS,
    ),
    (keys.GROUP_STREAMS_NUM_STANDBY_REPLICAS, None, keys.GROUP_STREAMS_MAX_STANDBY_REPLICAS),
    (keys.GROUP_STREAMS_NUM_WARMUP_REPLICAS, None, keys.GROUP_STREAMS_MAX_WARMUP_REPLICAS),
    (
        keys.GROUP_STREAMS_TASK_OFFSET_INTERVAL_MS,
        keys.GROUP_STREAMS_MIN_TASK_OFFSET_INTERVAL_MS,
        None,
    ),
)
"""Bounds that no session timeout or heartbeat interval has."""

BOUNDS: Final[dict[NodeKey[Any], Bounds]] = {
    bounds[0]: bounds
    for bounds in (*(each for protocol in PROTOCOLS for each in protocol), *OTHER_BOUNDS)
}
