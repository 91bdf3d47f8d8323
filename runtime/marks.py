"""Coverage marks: rare branches of the product, each with a name that a simulation can count.

`mark(NAME)` is in a branch that only a rare run takes. In production nothing counts, and a call is
one comparison. A simulated run installs a counter (`counted`), so that a table shows which of these
branches a thousand runs took, and which none did. A mark has no effect: the code around it behaves
the same whether it is counted or not.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Final

MARKS: Final[dict[str, str]] = {
    "quorum.pre-vote-refused-leader-lives": "a pre-vote is refused: this node has a leader",
    "quorum.pre-vote-refused-log-behind": "a pre-vote is refused: the candidate's log is behind",
    "quorum.vote-refused-log-behind": "a vote is refused: the candidate's log is behind",
    "quorum.vote-refused-voted": (
        "a vote is refused: already given to another candidate in this epoch"
    ),
    "quorum.vote-fenced": "a vote is requested for an old epoch",
    "quorum.pre-vote-back-to-leader": (
        "a prospective node follows its leader again: other voters still have it"
    ),
    "quorum.election-lost": "an election can no longer be won; the candidate waits",
    "quorum.leader-resigns-alone": "a leader without fetches from a majority resigns (KIP-595)",
    "quorum.truncation": "a node truncates its metadata log where it diverges from the leader's",
    "quorum.snapshot-fetched": "a node loads the leader's snapshot (KIP-630)",
    "quorum.fetch-fenced": "a leader receives a fetch of an old epoch",
    "quorum.fetch-diverges": "a leader returns the offset where a log diverges",
    "quorum.leader-gone": "a follower finds the leader's port closed",
    "quorum.stands-early": "a resigned leader named this node its first successor",
    "quorum.observer-lost-leader": "a broker searches for another quorum leader",
    "quorum.not-stored": "a disk refuses fetched records",
    "controller.recovery-elected": "an unclean recovery elects the longest log (KIP-966)",
    "controller.recovery-clean-candidate": "an unclean recovery ends with a clean election",
    "controller.recovery-gone-back": "an unclean recovery waits again for a required replica",
    "controller.recovery-overdue": "an unclean recovery times out",
    "controller.recovery-answer-too-old": "a broker has not seen the partition's leader epoch yet",
    "controller.recovery-other-life": "an answer of an earlier broker incarnation is ignored",
    "controller.recovery-behind": (
        "a broker has a newer leader epoch than the controller that queries it"
    ),
    "replication.truncation": "a follower truncates its log where it diverges from the leader's",
    "replication.truncation-shown": "a follower truncates below its high watermark",
    "replication.fetch-diverges": (
        "a leader returns the offset where a follower's log diverges (KIP-595)"
    ),
    "replication.epoch-fenced": "a request with an old leader epoch is refused (KIP-320)",
    "replication.epoch-unknown": "a request with a newer leader epoch is refused (KIP-320)",
    "replication.fetch-of-earlier-life": "a fetch of an earlier follower incarnation (KIP-903)",
    "replication.append-ahead": "a batch waits at a new leader for the batches before it",
    "replication.early-append": "a batch waits for the image in which this broker leads",
    "replication.stale-answer": "an answer from before a partition changed is dropped",
    "replication.isr-shrinks": "a leader proposes to remove followers from the ISR",
    "replication.isr-rolled-back": "the controller refuses a proposed ISR",
    "replication.isr-superseded": "the partition has changed since the ISR was proposed",
    "replication.isr-retried": "a proposed ISR is sent again",
    "replication.log-begins-anew": "a follower empties its log: the leader's starts later",
    "replication.begins-inside-batch": (
        "an empty log starts inside a batch and takes the whole batch"
    ),
    "replication.begins-untiered": (
        "an empty replica starts behind all tiered segments (KIP-1023)"
    ),
    "replication.nothing-tiered": (
        "an empty replica copies the whole log: nothing is tiered (KIP-1023)"
    ),
    "replication.tier-end-unknown": "a leader does not know the end of its tiered log (KIP-1023)",
    "replication.isr-behind-report": (
        "an ISR is proposed again after a report of local logs (KIP-1303)"
    ),
    "replication.report-refused": "a report of local logs is refused, or gets no answer (KIP-1303)",
    "session.evicted": "a fetch session is evicted for another (KIP-227)",
    "session.refused": "no slot is free for a fetch session",
    "session.unknown": "an unknown fetch session is requested",
    "session.epoch-out-of-turn": "a fetch session is requested with another epoch",
    "log.recovery-cuts": "recovery truncates an incomplete batch",
    "log.recovery-hole": "recovery deletes segments behind a hole",
    "log.removals-finished": (
        "segments removed by local retention are back before a hole and are deleted"
    ),
    "log.marked-clean-is-not": "a cleanly closed log ends with an incomplete batch",
    "log.bootstrap-unfinished": (
        "a log with part of its tiered segments missing starts from scratch (KIP-405)"
    ),
    "producer.fenced": "a batch of an older producer epoch is refused",
    "controller.elr-election": "an eligible leader replica leads (KIP-966)",
    "controller.last-known-leader": "the last known leader leads (KIP-966)",
    "controller.unclean-election": "a replica leads that may lack records",
    "controller.preferred-election": "the preferred replica leads again",
    "controller.local-log-passed-over": "an election skips a replica because of its local log",
    "controller.duplicate-broker": "a second process with a live broker's id is refused",
    "controller.broker-epoch-stale": "a broker sends an epoch that is not its current one",
    "controller.wiped-disk": "records on a broker's former disk are counted for it",
    "controller.isr-epoch-fenced": "an ISR of an old leader epoch is refused",
    "controller.isr-version-stale": "an ISR of an old partition epoch is refused",
    "controller.isr-past-report": (
        "an ISR from before a report of local logs is accepted (KIP-1303)"
    ),
    "controller.isr-behind": "a leader has a newer epoch than this controller (KAFKA-14154)",
    "controller.isr-ineligible": "an ISR with a fenced or restarted broker is refused",
    "controller.isr-ends-leadership": "an ISR completes a reassignment that removes the leader",
    "controller.reassignment-cancelled": "a reassignment is cancelled (KIP-455)",
    "controller.shutdown-waits": "a stopping broker waits until others know the new leaders",
    "controller.connection-lost": "the connection of a broker's heartbeats closes",
    "controller.process-gone": "a broker's port was closed before the takeover",
    "controller.resigns-with-writes": "a controller resigns with uncommitted writes",
}
"""Every mark with the event that it stands for."""

_count: MutableMapping[str, int] | None = None


def mark(name: str) -> None:
    """Record that a rare branch is taken.

    While marks are counted, an unknown name raises KeyError.
    """
    if _count is not None:
        _count[name] += 1


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Count marks until the end of the block; of nested blocks only the innermost counts."""
    global _count
    before, mine = _count, dict.fromkeys(MARKS, 0)
    _count = mine
    try:
        yield mine
    finally:
        _count = before
