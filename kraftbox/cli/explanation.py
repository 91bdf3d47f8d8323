"""Explanations of elections, as `kraftbox elect --explain` and `kraftbox status` show them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from client.admin import Admin, ExplainedPartition
from client.cluster_client import ClusterClient
from client.leaders import TopicPartition
from kraftbox.cli.connect import run
from kraftbox.cli.output import say, say_json, table
from kraftbox.cli.prospects import prospects
from kraftbox.cli.replica_logs import ReplicaLog, Replicas, replicas_of

if TYPE_CHECKING:
    from audit.history import LogEvent

_WAITS = {
    "clean-candidate": "{one_of} to return: no other broker is in the ISR or ELR",
    "last-known": "{brokers} to return: no other replica may have every record",
    "any-replica": "{any_of} to come back",
    "answers": "{brokers} to report their log end offsets",
    "operator": "an operator: kraftbox elect --type ...",
}


class Explained(NamedTuple):
    """The controller's explanation, and what the brokers of the partition report of their logs."""

    found: ExplainedPartition
    replicas: Replicas


async def explain(client: ClusterClient, partition: TopicPartition, timeout_s: float) -> Explained:
    """Request the controller's explanation and the logs of live replicas.

    Raises Refused, ApiError, OSError.
    """
    (found,) = await Admin(client, timeout_s * 1000).explain_elections([partition])
    return Explained(found, await replicas_of(client, partition))


def show(partition: TopicPartition, bootstrap: str, timeout_s: float, *, as_json: bool) -> None:
    """Explain a partition's leadership: who leads and why, the candidates, possible elections.

    Raises CommandFailed.
    """
    found, replicas = run(bootstrap, lambda client: explain(client, partition, timeout_s))
    directory = _directory_of(bootstrap)
    events: list[LogEvent] = []
    if directory is not None:
        from kraftbox.cli.leadership import leadership_events  # the audit's replay

        events = leadership_events(directory, partition)
    if as_json:
        say_json(document(found, replicas, events))
        return
    for line in headlines(found, replicas, events):
        say(line)
    if directory is None:
        say("since when and why it leads: only with --dir, from the cluster's metadata log")
    say("")
    columns = ["BROKER", "IN", "MAY LEAD", "WHY NOT", "LAST EPOCH", "LOG END", "SIZE"]
    rows = [_row(candidate, replicas) for candidate in found.candidates]
    if found.local_log_ms > 0 or found.local_log_bytes > 0:
        columns += ["LOCAL LOG", "OLDEST RECORD", "BYTES", "LAST REPORT"]
        rows = [[*row, *_local_log(one)] for row, one in zip(rows, found.candidates, strict=True)]
    table(columns, rows)
    for line in _silent(replicas):
        say(line)
    say("")
    table(["ELECTION NOW", "RESULT", "MAY BE LOST"], prospects(found, replicas))


def _directory_of(bootstrap: str) -> str | None:
    """Return the directory of the local cluster that a command names, None for another cluster."""
    from kraftbox.cli.clusters import directory_of

    return getattr(bootstrap, "directory", None) or directory_of(bootstrap)


def _silent(replicas: Replicas) -> list[str]:
    """Return a line for each broker that did not report its log."""
    return [
        f"broker {id_} {log}: its log is unknown"
        for id_, log in replicas.logs.items()
        if isinstance(log, str)
    ]


def document(
    found: ExplainedPartition,
    replicas: Replicas | None = None,
    events: Iterable[LogEvent] = (),
) -> dict[str, Any]:
    """Return the explanation as JSON values."""
    known = Replicas((), {}) if replicas is None else replicas
    return {
        "topic": found.topic,
        "partition": found.partition,
        "leader": found.leader,
        "leader_epoch": found.leader_epoch,
        "isr": found.isr,
        "elr": found.elr,
        "last_known_elr": found.last_known_elr,
        "strategy": found.strategy,
        "strategy_key": found.strategy_key,
        "strategy_place": found.strategy_place,
        "recovery_manager": found.manager,
        "local_log_ms": found.local_log_ms,
        "local_log_bytes": found.local_log_bytes,
        "waits": found.waits,
        "waits_for": found.waits_for,
        "waits_since_ms": None if found.since_ms < 0 else found.since_ms,
        "replicas": list(known.assigned),
        "leadership": [
            {"offset": one.offset, "time_ms": one.timestamp_ms, **one.facts} for one in events
        ],
        "elections": [
            {"type": one.kind, "result": one.result, "may_be_lost": one.loss}
            for one in prospects(found, known)
        ],
        "candidates": [
            {
                "broker": one.broker,
                "log": _log_document(known, one.broker),
                "sets": one.sets,
                "eligible": one.eligible,
                "reason": one.reason,
                "answer": None
                if one.answer is None
                else {
                    "epoch": one.answer.last_epoch,
                    "end_offset": one.answer.end_offset,
                    "age_ms": one.answer.age_ms,
                },
                "local_log": None
                if one.local_log is None
                else {
                    "enough": one.local_log.enough,
                    "reason": one.local_log.reason,
                    "start_ms": _known(one.local_log.start_ms),
                    "bytes": _known(one.local_log.size_bytes),
                    "age_ms": _known(one.local_log.age_ms),
                },
            }
            for one in found.candidates
        ],
    }


def _log_document(replicas: Replicas, broker: int) -> dict[str, Any] | None:
    log = replicas.logs.get(broker)
    if not isinstance(log, ReplicaLog):
        return None if log is None else {"error": log}
    return {
        "epoch": log.last_epoch,
        "end_offset": log.end_offset,
        "bytes": _known(log.size_bytes),
    }


def headlines(
    found: ExplainedPartition, replicas: Replicas, events: Iterable[LogEvent]
) -> list[str]:
    """Return lines with the leader, the sets (ISR, ELR), the strategy and the awaited brokers."""
    from kraftbox.cli.leadership import sentence

    first = replicas.assigned[0] if replicas.assigned else -1
    lines = [
        f"{found.topic}-{found.partition}: "
        + sentence(found.leader, found.leader_epoch, first, events),
        f"ISR {_ids(found.isr)}   ELR {_ids(found.elr)}   "
        f"last known ELR {_ids(found.last_known_elr)}",
        _strategy(found),
    ]
    thresholds = [
        f"{value} {name}"
        for value, name in ((found.local_log_ms, "ms"), (found.local_log_bytes, "bytes"))
        if value > 0
    ]
    if thresholds:
        lines.append(
            "preferred leaders hold at least this much locally (KIP-1303): "
            + " or ".join(thresholds)
        )
    if found.waits is not None:
        lines.append(f"waits for {waits(found)}")
    return lines


def _strategy(found: ExplainedPartition) -> str:
    """Return whether the controller elects a replica that may lack records, and what decides it."""
    place = found.strategy_place
    if place.startswith("this controller's properties"):
        place = "the controllers' properties or the default"
    source = f"({found.strategy_key} of {place})"
    if found.manager:
        return f"unclean recovery: {found.strategy} {source}, logs are compared"
    allowed = "on" if found.strategy == "Aggressive" else "off"
    return f"unclean election: {allowed} {source}"


def waits(found: ExplainedPartition) -> str:
    """Return what a partition without leader waits for, and since when."""
    many = len(found.waits_for) != 1
    brokers = f"broker{'s' if many else ''} {_ids(found.waits_for)}"
    kind = found.waits or "nothing"
    text = _WAITS.get(kind, kind).format(
        brokers=brokers,
        one_of=f"one of {brokers}" if many else brokers,
        any_of=f"any of {brokers}" if many else brokers,
    )
    if found.since_ms >= 0:
        text += f" (since {_time(found.since_ms)} UTC)"
    return text


def _row(candidate: Any, replicas: Replicas) -> list[object]:
    """Return a candidate's cells; its log as reported now, else as reported to the controller."""
    log, answer = replicas.logs.get(candidate.broker), candidate.answer
    cells: tuple[object, ...] = (None, None, None)
    if isinstance(log, ReplicaLog):
        cells = log.last_epoch, log.end_offset, _known(log.size_bytes)
    elif answer is not None:
        age = f" ({answer.age_ms / 1000:.1f} s ago)"
        cells = f"{answer.last_epoch}{age}", f"{answer.end_offset}{age}", None
    return [
        candidate.broker,
        ", ".join(name.replace("_", " ") for name in candidate.sets) or None,
        "yes" if candidate.eligible else "no",
        candidate.reason,
        *cells,
    ]


def _local_log(candidate: Any) -> list[object]:
    """Return the local-log cells: enough (with reason), start time, bytes, age of the report."""
    known = candidate.local_log
    if known is None:
        return [None] * 4
    return [
        _enough(known),
        None if known.start_ms < 0 else _time(known.start_ms),
        _known(known.size_bytes),
        None if known.age_ms < 0 else f"{known.age_ms / 1000:.1f} s ago",
    ]


def _enough(local_log: Any) -> str:
    if local_log.enough and local_log.reason == "is unknown":
        return "unknown (counts as enough)"
    return f"{'yes' if local_log.enough else 'no'}: {local_log.reason}"


def _known(value: int) -> int | None:
    return None if value < 0 else value


def _time(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _ids(brokers: list[int]) -> str:
    return ",".join(map(str, brokers)) or "-"
