"""Keys of client-metrics subscriptions (KIP-714)."""

from __future__ import annotations

from runtime.config.schema import INT, LIST, ClientMetricsKey
from runtime.config.validators import a_list

INTERVAL_MS = ClientMetricsKey("interval.ms", INT, 300_000)
MATCH = ClientMetricsKey("match", LIST, [], a_list(empty=True))
METRICS = ClientMetricsKey("metrics", LIST, [], a_list(empty=True))
