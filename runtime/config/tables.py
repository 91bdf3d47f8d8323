"""All keys, by resource, indexed by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from runtime.config import (
    keys_entities,
    keys_groups,
    keys_kraftbox,
    keys_log,
    keys_quorum,
    keys_remote,
    keys_replication,
    keys_security,
    keys_server,
    keys_topic,
    keys_transactions,
)
from runtime.config.schema import ConfigKey


def _index(*tables: Iterable[ConfigKey]) -> Mapping[str, ConfigKey]:
    return {key.name: key for table in tables for key in table}


NODE_KEYS = _index(
    keys_server.KEYS,
    keys_quorum.KEYS,
    keys_log.KEYS,
    keys_replication.KEYS,
    keys_groups.KEYS,
    keys_transactions.KEYS,
    keys_remote.KEYS,
    keys_security.KEYS,
    keys_kraftbox.KEYS,
)
BROKER_DYNAMIC_KEYS = _index(keys_entities.BROKER_DYNAMIC_KEYS)
TOPIC_KEYS = _index(keys_topic.KEYS)
GROUP_KEYS = _index(keys_entities.GROUP_KEYS)
CLIENT_METRICS_KEYS = _index(keys_entities.CLIENT_METRICS_KEYS)
CLIENT_QUOTA_KEYS = _index(keys_entities.CLIENT_QUOTA_KEYS)
IP_QUOTA_KEYS = _index(keys_entities.IP_QUOTA_KEYS)
