"""The rule for topic names, applied wherever a name enters the system.

A name becomes part of a directory name (`<topic>-<partition>`), of a metric label and of log lines.
So no code may build a path from a name before `topic_name_problem` has accepted it, whether it is
from a request, from a record of the metadata log or from a folder on disk.

The alphabet is ASCII letters, digits, `.`, `_` and `-`. The length is 1 to 249, so that the name, a
dash, ten digits of partition and a suffix such as `-delete` with its id fit into the 255 bytes that
file systems allow. `.` and `..` are refused because they are special directories.
"""

from __future__ import annotations

import re
from typing import Final

MAX_TOPIC_NAME_CHARS: Final = 249

CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"

INTERNAL_TOPICS: Final = frozenset(
    {CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC}
)
"""Topics that brokers create for themselves; clients see `is_internal` and may not write to
them."""

NEVER_TIERED: Final = INTERNAL_TOPICS | {CLUSTER_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC}
"""Topics that are never tiered (KIP-405): reading the tier needs them."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_problem(name: str | None) -> str | None:
    """Return why `name` is not a legal topic name; None if it is legal."""
    if not name:
        return "a topic name must not be empty"
    if name in {".", ".."}:
        return "a topic name must not be '.' or '..'"
    if len(name) > MAX_TOPIC_NAME_CHARS:
        return f"a topic name must have at most {MAX_TOPIC_NAME_CHARS} characters, not {len(name)}"
    if _LEGAL.fullmatch(name) is None:
        return "a topic name must contain only ASCII letters, digits, '.', '_' and '-'"
    return None


def collision_key(name: str) -> str:
    """Return a key that two names share if their metric names are the same: there `.` becomes
    `_`."""
    return name.replace(".", "_")


def is_internal_topic(name: str) -> bool:
    """Return whether brokers create this topic for themselves."""
    return name in INTERNAL_TOPICS
