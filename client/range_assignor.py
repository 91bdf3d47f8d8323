"""Kafka's range assignor of partitions to the members of a group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence


def assign_range(
    wanted: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> dict[str, dict[str, list[int]]]:
    """Return the assigned partitions by member and topic.

    For each topic, members in the order of their IDs get consecutive partitions. If the division
    leaves a remainder, the first members get one more.

    Args:
        wanted: topics by member ID.
        counts: numbers of partitions by topic.
    """
    shares: dict[str, dict[str, list[int]]] = {member: {} for member in wanted}
    takers: dict[str, list[str]] = defaultdict(list)
    for member in sorted(wanted):
        for name in wanted[member]:
            takers[name].append(member)
    for name, members in takers.items():
        each, extra = divmod(counts[name], len(members))
        first = 0
        for at, member in enumerate(members):
            size = each + (1 if at < extra else 0)
            if size:
                shares[member][name] = list(range(first, first + size))
            first += size
    return shares
