"""Dynamic configuration of brokers: the valid stored values, merged with a node's static ones.

Another release may have written a stored value, or a controller that does not know a broker's own
rules. An invalid value alone is ignored, and the next layer with a value applies. Refusing to run
would stop every broker of a cluster at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from runtime.config import keys_log, keys_server
from runtime.config.errors import ConfigError
from runtime.config.node import NodeConfig
from runtime.config.node_values import LISTENER_PREFIX
from runtime.config.schema import UNKNOWN, ConfigKey, Dynamic
from runtime.config.tables import BROKER_DYNAMIC_KEYS, NODE_KEYS

NOT_BUILT = {
    keys_log.CORDONED_LOG_DIRS.name: "log directories cannot be cordoned: only one is supported",
    keys_server.LISTENER_SECURITY_PROTOCOL_MAP.name: (
        "cannot change while a broker runs (it can in Apache Kafka)"
    ),
    keys_server.LISTENERS.name: (
        "cannot change while a broker runs: its listeners are opened at the start"
    ),
}
"""Keys that Kafka can change at run time and Kraftbox cannot, with the reason."""


def broker_key(name: str) -> ConfigKey[Any]:
    """Return the key of a name, also of the form `listener.name.<listener>.<key>`.

    An unknown name belongs to a plug-in: its value is treated as sensitive.
    """
    key = NODE_KEYS.get(name) or BROKER_DYNAMIC_KEYS.get(name)
    if key is not None:
        return key
    inner = NODE_KEYS.get(without_listener(name))
    if inner is None:
        return ConfigKey(name, UNKNOWN, None, sensitive=True)
    return ConfigKey(
        name,
        inner.kind,
        inner.default,
        inner.validator,
        dynamic=inner.dynamic,
        sensitive=inner.sensitive,
    )


def without_listener(name: str) -> str:
    """Return `listener.name.<listener>.<key>` without its prefix, and other names unchanged."""
    if not name.startswith(LISTENER_PREFIX):
        return name
    return name.removeprefix(LISTENER_PREFIX).partition(".")[2]


def level_problem(key: ConfigKey[Any], *, for_all: bool) -> str | None:
    """Return why a key cannot be set while brokers run, for one broker or `for_all`; None if it
    can.
    """
    if key.kind is UNKNOWN or key.name in BROKER_DYNAMIC_KEYS:
        return None
    if key.name in NOT_BUILT:
        return NOT_BUILT[key.name]
    if key.dynamic is Dynamic.READ_ONLY:
        return "cannot change while a broker runs"
    if key.dynamic is Dynamic.PER_BROKER and for_all:
        return "can be set for one broker only, not for all"
    return None


class DynamicLayers:
    """A node's static configuration, overridden by the cluster-wide values and then by its own.

    `cluster` and `broker` are the valid stored values, `merged` is the result, and `refused` has
    the errors of ignored values.
    """

    def __init__(
        self, node: NodeConfig, cluster: Mapping[str, str], broker: Mapping[str, str]
    ) -> None:
        self.node = node
        self.refused: list[ConfigError] = []
        self.cluster = self._fitting(cluster, for_all=True)
        self.broker = self._fitting(broker, for_all=False)
        self.merged = self._merge()

    def _fitting(self, stored: Mapping[str, str], *, for_all: bool) -> dict[str, str]:
        fitting = {}
        for name, text in stored.items():
            key = broker_key(name)
            try:
                problem = level_problem(key, for_all=for_all)
                if problem is not None:
                    raise ConfigError(name, text, problem)
                key.parse(text)
            except ConfigError as error:
                self.refused.append(error)
            else:
                fitting[name] = text
        return fitting

    def _merge(self) -> NodeConfig:
        """Merge the layers.

        Values that break a rule between keys are dropped, the node's own first.
        """
        while self.cluster or self.broker:
            try:
                return self.node.overlaid({**self.cluster, **self.broker})
            except ConfigError as error:
                self.refused.append(error)
                layer = self.broker or self.cluster
                named = {each.key for each in (error, *error.others)}
                for name in [name for name in layer if name in named] or list(layer):
                    del layer[name]
        return self.node


def check_broker_values(names: Iterable[tuple[str, str]], *, for_all: bool) -> None:
    """Raise ConfigError unless each (name, text) may be set for one broker, or `for_all`
    brokers.
    """
    for name, text in names:
        key = broker_key(name)
        problem = level_problem(key, for_all=for_all)
        if problem is not None:
            raise ConfigError(name, text, problem)
        key.parse(text)
