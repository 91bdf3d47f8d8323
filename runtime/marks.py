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
    "quorum.pre-vote-refused-leader-lives": "a pre-vote is refused: this node hears of the leader",
    "quorum.pre-vote-refused-log-behind": "a pre-vote is refused: the candidate's log is behind",
    "quorum.vote-refused-log-behind": "a vote is refused: the candidate's log is behind",
    "quorum.vote-refused-voted": "a vote is refused: another one has it in this epoch",
    "quorum.vote-fenced": "a vote is asked for an epoch that is over",
    "quorum.pre-vote-back-to-leader": "a prospective node follows its leader again: others hear it",
    "quorum.election-lost": "an election cannot be won any more, and waits",
    "quorum.leader-resigns-alone": "a leader that a majority does not ask resigns (KIP-595)",
    "quorum.truncation": "a node cuts its metadata log where the leader's differs",
    "quorum.snapshot-fetched": "a node loads the leader's snapshot (KIP-630)",
    "quorum.fetch-fenced": "a fetch of an epoch that is over reaches a leader",
    "quorum.fetch-diverges": "a leader says where a log leaves its own",
    "quorum.leader-gone": "a follower finds the leader's port closed",
    "quorum.stands-early": "a leader that resigned has named this node its first successor",
    "quorum.observer-lost-leader": "a broker looks for another quorum leader",
    "quorum.not-stored": "a disk refuses what was fetched",
    "controller.recovery-elected": "an unclean recovery elects the longest log (KIP-966)",
    "controller.recovery-clean-candidate": "an unclean recovery ends with a clean election",
    "controller.recovery-gone-back": "an unclean recovery waits again for a replica that it needs",
    "controller.recovery-overdue": "the timeout of an unclean recovery is over",
    "controller.recovery-answer-too-old": "a broker has not seen the partition's leader epoch yet",
    "controller.recovery-other-life": "an answer of a broker's earlier life does not count",
    "controller.recovery-behind": "a broker knows more than the controller that asks it",
    "replication.truncation": "a follower cuts its log where the leader's differs",
    "replication.truncation-shown": "a follower cuts below its high watermark",
    "replication.fetch-diverges": "a leader tells a follower where the logs part (KIP-595)",
    "replication.epoch-fenced": "a request with an old leader epoch is refused (KIP-320)",
    "replication.epoch-unknown": "a request with a newer leader epoch is refused (KIP-320)",
    "replication.fetch-of-earlier-life": "a fetch from before a follower's restart (KIP-903)",
    "replication.append-ahead": "a batch waited at a new leader for those before it",
    "replication.early-append": "a batch waited for the image that makes this broker the leader",
    "replication.stale-answer": "an answer from before a partition changed is dropped",
    "replication.isr-shrinks": "a leader proposes to leave followers out",
    "replication.isr-rolled-back": "the controller refuses a proposed ISR",
    "replication.isr-superseded": "the partition has changed since the ISR was proposed",
    "replication.isr-retried": "a proposed ISR is sent again",
    "replication.log-begins-anew": "a follower empties its log: the leader's begins later",
    "replication.begins-inside-batch": "an empty log begins inside a batch, and takes all of it",
    "replication.begins-untiered": "an empty replica begins behind all that is tiered (KIP-1023)",
    "replication.nothing-tiered": "an empty replica copies all: nothing is tiered (KIP-1023)",
    "replication.tier-end-unknown": "a leader does not know where its tier ends (KIP-1023)",
    "replication.isr-behind-report": "an ISR is proposed again behind a report (KIP-1303)",
    "replication.report-refused": "a report of local logs is refused, or gets no answer (KIP-1303)",
    "session.evicted": "a fetch session makes room for another (KIP-227)",
    "session.refused": "no slot is free for a fetch session",
    "session.unknown": "a fetch session that is gone is asked for",
    "session.epoch-out-of-turn": "a fetch session is asked with another epoch",
    "log.recovery-cuts": "recovery cuts bytes that are no whole batch",
    "log.recovery-hole": "recovery deletes segments behind a hole",
    "log.removals-finished": "what local retention had removed came back before a hole, and goes",
    "log.marked-clean-is-not": "a log that was closed in good order ends with no whole batch",
    "log.bootstrap-unfinished": "a log with half of what lies before it begins anew (KIP-405)",
    "producer.fenced": "a batch of an older producer epoch is refused",
    "controller.elr-election": "an eligible leader replica leads (KIP-966)",
    "controller.last-known-leader": "the last known leader leads (KIP-966)",
    "controller.unclean-election": "a replica leads that may lack records",
    "controller.preferred-election": "the preferred replica leads again",
    "controller.local-log-passed-over": "an election passes a replica over for its local log",
    "controller.duplicate-broker": "a second process with a live broker's id is refused",
    "controller.broker-epoch-stale": "a broker speaks with an epoch that is not its own now",
    "controller.wiped-disk": "a broker is relied on for what another disk of it has",
    "controller.isr-epoch-fenced": "an ISR of an old leader epoch is refused",
    "controller.isr-version-stale": "an ISR of an old partition epoch is refused",
    "controller.isr-past-report": "an ISR is set that was proposed before a report (KIP-1303)",
    "controller.isr-behind": "a leader knows more than this controller (KAFKA-14154)",
    "controller.isr-ineligible": "an ISR with a fenced or restarted broker is refused",
    "controller.isr-ends-leadership": "an ISR completes a reassignment that leaves the leader out",
    "controller.reassignment-cancelled": "a reassignment is cancelled (KIP-455)",
    "controller.shutdown-waits": "a broker that shuts down waits until others know the new leaders",
    "controller.connection-lost": "the connection of a broker's heartbeats is closed",
    "controller.process-gone": "a broker's port is closed since before the takeover",
    "controller.resigns-with-writes": "a controller resigns while writes wait for commit",
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
