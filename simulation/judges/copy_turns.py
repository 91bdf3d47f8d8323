"""The moment at which a leader begins to copy a segment (S2, KIP-1241). Pure.

Segments are copied in order: all records before a new copy are in finished copies already. If the
topic has a copy lag in bytes, and none in time within a run, at least that number follows the
segment in the leader's log. The log only grows behind it, so the rule holds when the judge sees the
record of the copy, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from simulation.shapes.tier import COPY_LAG_MS, FOLLOWS_LOCAL
from simulation.world.invariants import require

if TYPE_CHECKING:
    from broker.replication.partition.partition import Partition
    from simulation.judges.tier_truth import Copy
    from simulation.shapes.shape import Shape
    from simulation.world.cluster import NodeLife
    from storage.log.log import Log

LOCAL_BYTES: Final = "local.retention.bytes"
LONGER_THAN_A_RUN_MS: Final = 24 * 3_600_000


def partitions_led(life: NodeLife, copy: Copy) -> Iterator[Partition]:
    """Yield the partition of a copy, if the node still leads it."""
    broker = None if life.node is None else life.node.broker
    for one in () if broker is None else broker.replicas:
        if (one.topic_id, one.index) == copy.key and one.is_leader and not one.log.closed:
            yield one


def judge_turn(
    copy: Copy, life: NodeLife, one: Partition, missing: int | None, shape: Shape
) -> None:
    """Judge a new copy of a partition that `life` leads. Raises Violation.

    `missing` is the first offset before the copy that no finished copy has.
    """
    where = f"S2: {life} copies {copy} of {one.topic}-{one.index}"
    require(missing is None, f"{where}, and no finished copy has {missing}")
    lag = _lag_bytes(life, one, shape)
    following = _bytes_behind(one.log, copy.last)
    require(following >= lag, f"{where}: {following} bytes follow, the copy lag is {lag}")


def copied_end(log: Log) -> int:
    """Return the offset below which every closed segment must have a copy in the end.

    At the end of a run a lag in time has passed, unless it is longer than a run.
    """
    config = log.config
    lag_ms, lag_bytes = config.effective_copy_lag_ms, config.effective_copy_lag_bytes
    if 0 <= lag_ms < LONGER_THAN_A_RUN_MS or lag_bytes == 0:
        return log.segments.active.base_offset
    segments = list(log.segments)
    following = sum(one.size_bytes for one in segments)
    for one in segments[:-1]:
        following -= one.size_bytes
        if not 0 < lag_bytes <= following:
            return one.base_offset
    return segments[-1].base_offset


def _lag_bytes(life: NodeLife, one: Partition, shape: Shape) -> int:
    """Return the copy lag that decides alone; 0 if time may make the segment eligible, or if an
    operator has changed the topic."""
    given = next((topic.configs for topic in shape.topics if topic.name == one.topic), {})
    if given.get(COPY_LAG_MS) != FOLLOWS_LOCAL:
        return 0
    config = one.log.config
    if config.effective_copy_lag_ms < LONGER_THAN_A_RUN_MS or life.machine.clock.jumped:
        return 0
    lag = config.effective_copy_lag_bytes
    return lag if str(lag) == given.get(LOCAL_BYTES) else 0


def _bytes_behind(log: Log, offset: int) -> int:
    return sum(one.size_bytes for one in log.segments if one.base_offset > offset)
