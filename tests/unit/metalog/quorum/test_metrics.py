from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from metalog.quorum.core.roles import Role
from metalog.quorum.core.voters import ReplicaKey
from metalog.quorum.metrics import quorum_families
from metalog.quorum.peers import Traffic
from metalog.quorum.stats import QuorumStats


def told(stats: QuorumStats, now_ms: float) -> dict[str, Any]:
    """Return the metrics of a follower in epoch 7, without the common prefix of their names."""
    quorum = SimpleNamespace(
        core=SimpleNamespace(role=Role.FOLLOWER, voted=ReplicaKey(3), voters=(1, 2, 3)),
        stats=stats,
        leader=lambda: (2, 7),
        high_watermark=40,
        log_end_offset=50,
        peers=SimpleNamespace(traffic=Traffic()),
    )
    prefix = "kafka_server_raftmetrics_"
    return {
        family.name.removeprefix(prefix): list(family.samples)[0][1]
        for family in quorum_families(cast(Any, quorum), now_ms)
    }


def test_quorum_metrics_of_follower_change():
    stats = QuorumStats()
    for second in range(10):
        stats.observe(Role.FOLLOWER, second * 30, None, second * 1000.0)
    stats.observe(Role.PROSPECTIVE, 270, None, 10_000.0)
    stats.leader_known(False, 10_080.0)
    shown = told(stats, 10_080.0)
    assert shown["fetch_records_rate"] > 1
    assert shown["append_records_rate"] == 0
    assert (shown["election_latency_avg"], shown["election_latency_max"]) == (80.0, 80.0)
    assert (shown["current_leader"], shown["current_epoch"], shown["current_vote"]) == (2, 7, 3)
    assert (shown["high_watermark"], shown["log_end_offset"]) == (40, 50)
    assert shown["kraftbox_quorum_fetched_records_total"] == 270
