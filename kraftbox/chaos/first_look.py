"""Shell: The look at a cluster before its first fault: a cluster that is not whole is refused.

A fault on an ill cluster breaks promises that it does not cause, and the verdict would accuse it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from client.addresses import Address
from client.cluster_client import ClusterClient
from kraftbox.chaos.target import REPAIRS, Target, TargetError, TargetNode

CONNECT_MS_MAX = 10_000.0


def complaint(members: Sequence[TargetNode]) -> str | None:
    """Return which nodes are not whole, None if all are."""
    ill = [
        f"{'broker' if one.is_broker else 'controller'} {one.node_id} is {one.damage}"
        for one in members
        if one.damage
    ]
    return ", ".join(ill) if ill else None


async def look_first(target: Target, *, start: bool) -> None:
    """Check that all nodes run; with `start`, repair those that do not.

    Raises TargetError with the nodes that are not whole, or if a repair fails.
    """
    members = await target.members()
    if start:
        # Controllers first: a broker becomes ready only if a quorum exists.
        for one in sorted(members, key=lambda one: not one.is_controller):
            if one.damage:
                await target.act(REPAIRS.get(one.damage, "start"), one.node_id)
        members = await target.members()
    found = complaint(members)
    if found is not None:
        hint = "" if start else ": start it, or give --start"
        raise TargetError(f"the cluster is not whole: {found}{hint}")


def free_name(base: str, taken: Collection[str]) -> str:
    """Return `base`, or the first of `base-2`, `base-3`, ... that is not taken."""
    number, name = 1, base
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    return name


async def free_topic(bootstrap: Sequence[Address], base: str) -> str:
    """Return the name of a topic that does not exist; a seed may be repeated. Raises OSError."""
    async with await ClusterClient.connect(bootstrap, "chaos-look", CONNECT_MS_MAX) as client:
        topics = (await client.metadata(None, CONNECT_MS_MAX)).topics
        return free_name(base, {topic.name or "" for topic in topics})
