"""All keys, by resource, indexed by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final, TypeVar

from runtime.config import (
    keys_client_metrics,
    keys_group,
    keys_group_coordinator,
    keys_kraftbox,
    keys_log,
    keys_quorum,
    keys_quotas,
    keys_remote,
    keys_replication,
    keys_security,
    keys_server,
    keys_topic,
    keys_transactions,
)
from runtime.config.errors import OPEN_NAMES
from runtime.config.schema import (
    BrokerDynamicKey,
    ClientMetricsKey,
    ClientQuotaKey,
    ConfigKey,
    GroupKey,
    IpQuotaKey,
    NodeKey,
    TopicKey,
)

K = TypeVar("K", bound=ConfigKey[Any])


def _keys_of(resource: type[K], *modules: ModuleType) -> Mapping[str, K]:
    """Return the keys of a resource among the modules' constants."""
    return {
        key.name: key
        for module in modules
        for key in vars(module).values()
        if type(key) is resource
    }


NODE_KEYS: Final = _keys_of(
    NodeKey,
    keys_server,
    keys_quorum,
    keys_log,
    keys_replication,
    keys_group_coordinator,
    keys_transactions,
    keys_remote,
    keys_security,
    keys_kraftbox,
)
BROKER_DYNAMIC_KEYS: Final = _keys_of(BrokerDynamicKey, keys_quotas)
TOPIC_KEYS: Final = _keys_of(TopicKey, keys_topic)
GROUP_KEYS: Final = _keys_of(GroupKey, keys_group)
CLIENT_METRICS_KEYS: Final = _keys_of(ClientMetricsKey, keys_client_metrics)
CLIENT_QUOTA_KEYS: Final = _keys_of(ClientQuotaKey, keys_quotas)
IP_QUOTA_KEYS: Final = _keys_of(IpQuotaKey, keys_quotas)

_TABLES: Final[tuple[Mapping[str, ConfigKey[Any]], ...]] = (
    NODE_KEYS,
    BROKER_DYNAMIC_KEYS,
    TOPIC_KEYS,
    GROUP_KEYS,
    CLIENT_METRICS_KEYS,
    CLIENT_QUOTA_KEYS,
    IP_QUOTA_KEYS,
)
OPEN_NAMES |= {name for table in _TABLES for name in table}
OPEN_NAMES -= {name for table in _TABLES for name, key in table.items() if key.sensitive}
