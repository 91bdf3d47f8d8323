"""Lines on standard error about a command that waits: they name the awaited leader or broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from client.leaders import LeaderCache, TopicPartition
from kraftbox.cli.output import say_error

NAMED_MAX = 5
NOTICE_S = 2.0
"""How long a command waits without a word."""


@asynccontextmanager
async def noticed(text: str) -> AsyncIterator[None]:
    """Print `text` on standard error if the block takes longer than NOTICE_S."""
    notice = asyncio.get_running_loop().call_later(NOTICE_S, say_error, text)
    try:
        yield
    finally:
        notice.cancel()


def named(partitions: Sequence[TopicPartition]) -> str:
    """Return the partitions as `TOPIC-PARTITION, ...`; many are cut short."""
    shown = ", ".join(f"{name}-{index}" for name, index in partitions[:NAMED_MAX])
    more = len(partitions) - NAMED_MAX
    return shown if more <= 0 else f"{shown} and {more} more"


def waiting_text(cache: LeaderCache, partition: TopicPartition) -> str:
    """Return for what a request to the leader of a partition waits."""
    leader = cache.leaders.get(partition)
    return _text([partition], -1 if leader is None else leader.node_id)


def say_waiting(partitions: Sequence[TopicPartition], node_id: int) -> None:
    """Print for what a consumer waits; `node_id` is the leader, -1 without one."""
    say_error(_text(partitions, node_id))


def _text(partitions: Sequence[TopicPartition], node_id: int) -> str:
    if node_id < 0:
        return f"waiting for a leader of {named(partitions)}"
    return f"waiting for broker {node_id}, the leader of {named(partitions)}"
