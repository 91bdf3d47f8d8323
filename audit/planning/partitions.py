"""Partitions with replicas to audit, with their metadata and acknowledged sends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from audit.inputs.replicas import AcknowledgedSend, ReplicaFiles
from audit.state.elections import LOSSY


class LossyElection(NamedTuple):
    """An election that may have lost records; `offset` is that of its record."""

    offset: int
    timestamp_ms: int
    leader: int
    leader_epoch: int


class PartitionWork(NamedTuple):
    """The audit of one partition's replicas, with its input.

    leader: from the metadata; -1 without a leader, or if it is unknown.
    leader_epochs: epoch to leader in the metadata, None if unknown.
    compacted: cleaning rewrites batches, so they are not compared.
    lossy: the elections that may have lost records, in order.
    """

    topic: str
    partition: int
    replicas: tuple[ReplicaFiles, ...]
    leader: int
    leader_epoch: int | None
    leader_epochs: dict[int, int] | None
    compacted: bool
    sent: tuple[AcknowledgedSend, ...]
    lossy: tuple[LossyElection, ...] = ()


def plan_partitions(
    found: Iterable[ReplicaFiles],
    sent: Mapping[tuple[str, int], Sequence[AcknowledgedSend]],
    result: Mapping[str, Any],
) -> list[PartitionWork]:
    """Return one piece of work per partition with replicas.

    `result` is the result of the metadata audit.
    """
    replicas: dict[tuple[str, int], list[ReplicaFiles]] = {}
    for replica in found:
        replicas.setdefault((replica.topic, replica.partition), []).append(replica)
    known = {(p["topic"], p["partition"]): p for p in result["partitions"]}
    whole = not result["elections_left_out"] and not result["leadership_left_out"]
    epochs = _leader_epochs(result) if whole else {}
    lossy = _lossy(result)
    work = []
    for key in sorted(replicas):
        now = known.get(key)
        here = [r for r in replicas[key] if now is None or r.topic_id in (None, now["topic_id"])]
        if not here:
            continue  # all replicas belong to an older topic of that name
        work.append(
            PartitionWork(
                topic=key[0],
                partition=key[1],
                replicas=tuple(_members(here, now)),
                leader=-1 if now is None else now["leader"],
                leader_epoch=None if now is None else now["leader_epoch"],
                leader_epochs=epochs.get(key) if now and now["leader_epoch"] is not None else None,
                compacted=bool(now and now["compacted"]),
                sent=tuple(sent.get(key, ())),
                lossy=tuple(lossy.get(key, ())),
            )
        )
    return [one for one in work if one.replicas]


def _members(replicas: Sequence[ReplicaFiles], now: Mapping[str, Any] | None) -> list[ReplicaFiles]:
    """Return the replicas in the current assignment: the others are never truncated."""
    if now is None:
        return list(replicas)
    return [replica for replica in replicas if replica.broker in now["replicas"]]


def _lossy(result: Mapping[str, Any]) -> dict[tuple[str, int], list[LossyElection]]:
    found: dict[tuple[str, int], list[LossyElection]] = {}
    for one in result["elections"]:
        if one["kind"] in LOSSY:
            values = (one[name] for name in ("offset", "timestamp_ms", "to_leader", "leader_epoch"))
            found.setdefault((one["topic"], one["partition"]), []).append(LossyElection(*values))
    return found


def _leader_epochs(result: Mapping[str, Any]) -> dict[tuple[str, int], dict[int, int]]:
    """Return the leader of each epoch, from elections and leadership changes."""
    found: dict[tuple[str, int], dict[int, int]] = {}
    for _, _, topic, partition, _, leader, epoch, why in result["leadership"]:
        if why != "deleted":
            found.setdefault((topic, partition), {})[epoch] = leader
    for one in result["elections"]:
        key = (one["topic"], one["partition"])
        found.setdefault(key, {})[one["leader_epoch"]] = one["to_leader"]
    return found
