"""Settings of a node that differ from Kafka's defaults."""

from __future__ import annotations

from kraftbox.launcher.plan import IDENTITY_KEYS
from runtime.config import NodeConfig
from runtime.config.tables import NODE_KEYS


def differences(config: NodeConfig) -> list[str]:
    """`key=value (default)` for every setting that is not Kafka's default.

    Keys that say who and where a node is are no differences.
    """
    found = []
    for name in sorted(config.given):
        key = NODE_KEYS.get(name)
        if key is None or name in IDENTITY_KEYS or config[name] == key.default:
            continue
        default = "none" if key.required else key.format(key.default) or "none"
        shown = "(hidden)" if key.sensitive else config.text(name)
        found.append(f"{name}={shown} (default {default})")
    return found
