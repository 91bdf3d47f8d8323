"""Words for elections: the kind and cause that a metadata record has, as a sentence for people."""

from __future__ import annotations

from collections.abc import Collection

MAY_LOSE = frozenset({"last-known-leader", "unclean", "unclean-recovery", "designated"})
"""Kinds of elections whose leader may lack committed records (`audit.state.elections.LOSSY`)."""

HOW = {
    "isr": "from the ISR",
    "preferred": "as the preferred leader",
    "elr": "from the ELR",
    "last-known-leader": "as the last known leader",
    "unclean": "from outside of ISR and ELR",
    "unclean-recovery": "for the longest log of the replicas that answered",
    "designated": "because an operator named it",
}

_WHEN = {
    "topic-created": "when the topic was created",
    "partitions-created": "when the partition was created",
    "broker-fenced": "when {old} was fenced",
    "connection-lost": "when the connection of {old} was lost",
    "controlled-shutdown": "when {old} shut down",
    "broker-unfenced": "when {new} came back",
    "broker-registered": "when {old} registered again",
    "broker-unregistered": "when {old} was unregistered",
    "log-directory-failed": "when a log directory of {old} failed",
    "isr-change": "after a change of the ISR",
    "preferred": "",
    "preferred-request": "at an operator's request",
    "preferred-rebalance": "by the automatic rebalance",
    "operator-request": "at an operator's request",
    "unclean-config": "because unclean.leader.election.enable is true",
    "reassignment": "in a reassignment",
    "min-isr": "after a change of min.insync.replicas",
    "unclean-recovery": "by the unclean recovery",
    "unknown": "",
}


def elected(kind: str, cause: str, old_leader: int | None, new_leader: int) -> str:
    """Return how and why a leader was elected: `from the ISR when broker 2 was fenced`.

    A kind or cause of a later release is returned as it is. `old_leader` is None or -1 if the
    partition had none.
    """
    old = f"broker {old_leader}" if old_leader is not None and old_leader >= 0 else "the leader"
    when = _WHEN.get(cause, f"(cause: {cause})").format(old=old, new=f"broker {new_leader}")
    if kind == "designated":
        when = ""
    return f"{HOW.get(kind, f'as {kind}')} {when}".strip()


def passed_over(brokers: Collection[int]) -> str:
    """Return a note about replicas that had too little of the log locally (KIP-1303), or ''."""
    if not brokers:
        return ""
    named = ", ".join(map(str, brokers))
    return f"; broker{'s' if len(brokers) > 1 else ''} {named} passed over: too little local log"
