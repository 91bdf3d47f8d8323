"""Metric families of one quorum replica.

Names are those that Strimzi's JMX rules give Kafka's `raft-metrics`.
"""

from __future__ import annotations

from collections.abc import Iterator

from metalog.quorum.core.voters import NOBODY
from metalog.quorum.node import QuorumNode
from metalog.quorum.peers import Traffic
from runtime.metrics import Family, single

_PREFIX = "kafka_server_raftmetrics_"
_CHANNEL = "kafka_server_raftchannelmetrics_"


def quorum_families(quorum: QuorumNode, now_ms: float) -> Iterator[Family]:
    """Yield the families of a started replica; `now_ms` is monotonic. -1 stands for an unknown
    value."""
    core, stats = quorum.core, quorum.stats
    leader_id, epoch = quorum.leader()
    high_watermark = quorum.high_watermark
    commit_avg, commit_max = stats.commit_times.average_and_max(now_ms)
    election_avg, election_max = stats.election_times.average_and_max(now_ms)
    yield Family(
        _PREFIX + "current_state",
        "1 for the role of this replica",
        "gauge",
        [({"current_state": core.role.value}, 1)],
    )
    for name, text, value in (
        ("current_leader", "Node id of the leader", NOBODY if leader_id is None else leader_id),
        ("current_epoch", "Epoch of the quorum", epoch),
        (
            "current_vote",
            "Node id that this replica voted for in this epoch",
            NOBODY if core.voted is None else core.voted.id,
        ),
        (
            "high_watermark",
            "High watermark: all lower offsets are committed",
            -1 if high_watermark is None else high_watermark,
        ),
        ("log_end_offset", "Log end offset: that of the next record", quorum.log_end_offset),
        ("number_of_voters", "Voters", len(core.voters)),
        ("commit_latency_avg", "Mean time from append to commit in ms", commit_avg),
        ("commit_latency_max", "Maximum time from append to commit in ms", commit_max),
        ("election_latency_avg", "Mean duration of an election in ms", election_avg),
        ("election_latency_max", "Maximum duration of an election in ms", election_max),
        (
            "append_records_rate",
            "Records appended per second",
            stats.append_rate.per_second(now_ms),
        ),
        ("fetch_records_rate", "Records fetched per second", stats.fetch_rate.per_second(now_ms)),
    ):
        yield single(_PREFIX + name, text, value)
    yield from _channel(quorum.peers.traffic)
    for name, text, value in (
        (
            "appended_records_total",
            "Records this replica has appended as the leader",
            stats.appended,
        ),
        ("fetched_records_total", "Records this replica has fetched from a leader", stats.fetched),
        ("elections_total", "Elections in which this replica was a candidate", stats.elections),
    ):
        yield single(f"kraftbox_quorum_{name}", text, value, "counter")


def _channel(traffic: Traffic) -> Iterator[Family]:
    """Yield metrics of requests to other replicas; nothing for a sole voter, which sends none."""
    if not traffic.requests:
        return
    for name, text, value in (
        ("request_total", "Requests sent to other replicas of the quorum", traffic.requests),
        ("response_total", "Responses received", traffic.responses),
        ("outgoing_byte_total", "Bytes of requests sent", traffic.bytes_out),
        ("incoming_byte_total", "Bytes of responses received", traffic.bytes_in),
    ):
        yield single(_CHANNEL + name, text, value, "counter")
