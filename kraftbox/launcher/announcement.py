"""The text that announces a cluster as ready. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kraftbox.launcher.plan import IDENTITY_KEYS, NodePlan, Shape
from runtime.config import NodeConfig
from runtime.config.tables import NODE_KEYS


def differences(config: NodeConfig) -> list[str]:
    """Return `key=value (default)` for every setting that differs from Kafka's default.

    Keys of a node's identity and addresses are left out.
    """
    found = []
    for name in sorted(config.given):
        key = NODE_KEYS.get(name)
        if key is None or name in IDENTITY_KEYS or config[key] == key.default:
            continue
        default = "none" if key.required else key.format(key.default) or "none"
        shown = "(hidden)" if key.sensitive else config.text(key)
        found.append(f"{name}={shown} (default {default})")
    return found


def of_one_node(
    plan: NodePlan, config: NodeConfig, *, connect_to: str, http: str | None, seconds: float
) -> list[str]:
    """Return the announcement lines of a cluster of one node."""
    lines = [
        f"Node {config.node_id} is ready after {seconds:.2f} s.",
        f"  connect to   {connect_to}",
        f"  data         {config.log_dir}",
        f"  log          {plan.log}",
    ]
    if http is not None:
        lines.append(f"  health       http://{http}/readyz, /healthz, /metrics")
    return lines + _remarks([config])


def of_cluster(
    shape: Shape,
    plans: Iterable[NodePlan],
    configs: Sequence[NodeConfig],
    *,
    connect_to: str,
    root: str,
    seconds: float,
) -> list[str]:
    """Return the announcement lines of a cluster of several nodes."""
    lines = [
        f"Cluster of {shape.text()} is ready after {seconds:.2f} s.",
        f"  connect to   {connect_to}",
    ]
    for plan in plans:
        rack = f", rack {plan.node.rack}" if plan.node.rack else ""
        listeners = plan.properties["listeners"]
        lines.append(f"  node {plan.node.node_id:<7} {plan.node.roles}{rack}: {listeners}")
    lines.append(f"  directory    {root}")
    return lines + _remarks(configs)


def _remarks(configs: Sequence[NodeConfig]) -> list[str]:
    """Return the settings that differ from Kafka's defaults, and warnings, once for all nodes."""
    lines = []
    shown = dict.fromkeys(line for config in configs for line in differences(config))
    if shown:
        lines.append("  changed from Kafka's defaults:")
        lines += [f"    {line}" for line in shown]
    warnings = dict.fromkeys(warning for config in configs for warning in config.warnings)
    return lines + [f"  warning: {warning}" for warning in warnings]
