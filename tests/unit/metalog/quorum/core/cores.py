"""Cores of a quorum of five, for tests of single steps."""

from __future__ import annotations

from typing import Any

from metalog.quorum.core import messages as m
from metalog.quorum.core.discovery import Addresses
from metalog.quorum.core.messages import OffsetAndEpoch, QuorumState
from metalog.quorum.core.quorum import QuorumCore
from metalog.quorum.core.replica import Timing
from metalog.quorum.core.roles import Role
from metalog.quorum.core.voters import NOBODY, ReplicaKey, Voter, VoterSet
from protocol.errors import ErrorCode
from testkit.memory.quorum_world import Entry, ModelLog, endpoints_of

KEYS = [ReplicaKey(i, bytes([i]) * 16) for i in range(5)]
TIMING = Timing(election_timeout_ms=1000, fetch_timeout_ms=2000)


def voters(*ids: int) -> VoterSet:
    return VoterSet(Voter(KEYS[i], endpoints_of(i)) for i in ids)


def make(
    node: int,
    ids: tuple[int, ...],
    *,
    log: ModelLog | None = None,
    state: QuorumState = QuorumState(),  # noqa: B008 - an immutable value
    voters_in_log: bool = True,
) -> QuorumCore:
    return QuorumCore(
        node=KEYS[node],
        log=log or ModelLog(),
        state=state,
        voters=voters(*ids),
        voters_in_log=voters_in_log,
        timing=TIMING,
        jitter=lambda bound: 0,
        addresses=Addresses(),
    )


def kinds(effects: list[Any]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def log_of(*epochs: int) -> ModelLog:
    log = ModelLog()
    log.entries = [Entry(epoch, i) for i, epoch in enumerate(epochs)]
    return log


def elect(core: QuorumCore, *, now_ms: float = 1000.0) -> list[Any]:
    """Let the core time out, and win both polls with the vote of node 2."""
    core.step(m.Tick(), now_ms)
    core.step(m.VoteAnswered(2, core.epoch, None, True, pre_vote=True), now_ms)
    return core.step(m.VoteAnswered(2, core.epoch, None, True), now_ms)


def answered(core: QuorumCore, node_id: int, *facts: Any, **more: Any) -> m.FetchAnswered:
    """Return the answer to the fetch that the core waits for."""
    awaited = next(number for number in range(100) if core.awaits(number))
    return m.FetchAnswered(awaited, node_id, *facts, **more)


def follower(log: ModelLog) -> QuorumCore:
    core = make(1, (1, 2, 3), log=log, state=QuorumState(log.last_epoch))
    core.step(m.Start(), 0)
    core.step(answered(core, NOBODY, core.epoch + 1, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER), 1)
    assert core.role is Role.FOLLOWER
    return core


def ask_vote(core: QuorumCore, who: int, epoch: int, last: tuple[int, int], **kwargs: Any) -> Any:
    return core.step(m.VoteRequested(9, KEYS[who], epoch, OffsetAndEpoch(*last), **kwargs), 1)
