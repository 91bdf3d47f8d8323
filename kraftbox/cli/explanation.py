"""Explanations of elections, as `kraftbox elect --explain` and `kraftbox status` show them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from client.admin import Admin, ExplainedPartition
from client.leaders import TopicPartition
from kraftbox.cli.connect import run
from kraftbox.cli.output import say, say_json, table

_WAITS = {
    "clean-candidate": "{one_of} to return: no other broker is in the ISR or ELR",
    "last-known": "{brokers} to return: no other replica may have every record",
    "any-replica": "{any_of} to come back",
    "answers": "{brokers} to report their log end offsets",
    "operator": "an operator: kraftbox elect --type ...",
}


def show(partition: TopicPartition, bootstrap: str, timeout_s: float, *, as_json: bool) -> None:
    """Request the explanation of an election and print it. Raises CommandFailed."""
    (found,) = run(
        bootstrap,
        lambda client: Admin(client, timeout_s * 1000).explain_elections([partition]),
    )
    if as_json:
        say_json(document(found))
        return
    for line in headlines(found):
        say(line)
    columns = ["BROKER", "IN", "MAY LEAD", "WHY NOT", "LAST EPOCH", "LOG END", "ANSWERED"]
    rows = [_row(candidate) for candidate in found.candidates]
    if found.local_log_ms > 0 or found.local_log_bytes > 0:
        columns += ["LOCAL LOG", "SINCE", "BYTES", "REPORTED"]
        rows = [[*row, *_local_log(one)] for row, one in zip(rows, found.candidates, strict=True)]
    table(columns, rows)


def document(found: ExplainedPartition) -> dict[str, Any]:
    """Return the explanation as JSON values."""
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
        "candidates": [
            {
                "broker": one.broker,
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


def headlines(found: ExplainedPartition) -> list[str]:
    """Return lines with the leader, the sets (ISR, ELR), the strategy and the awaited brokers."""
    leader = f"leader {found.leader}" if found.leader >= 0 else "no leader"
    lines = [
        f"{found.topic}-{found.partition}: {leader}, epoch {found.leader_epoch}",
        f"ISR {_ids(found.isr)}   ELR {_ids(found.elr)}   "
        f"last known ELR {_ids(found.last_known_elr)}",
        f"strategy {found.strategy}: {found.strategy_key} of {found.strategy_place}; "
        f"recovery manager {'on' if found.manager else 'off'}",
    ]
    thresholds = [
        f"{name} {value}"
        for name, value in (("ms", found.local_log_ms), ("bytes", found.local_log_bytes))
        if value > 0
    ]
    if thresholds:
        lines.append(f"preferred leaders have this much locally: {' or '.join(thresholds)}")
    if found.waits is not None:
        lines.append(f"waits for {waits(found)}")
    return lines


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


def _row(candidate: Any) -> list[object]:
    answer = candidate.answer
    return [
        candidate.broker,
        ", ".join(candidate.sets) or None,
        "yes" if candidate.eligible else "no",
        candidate.reason,
        *(
            (None, None, None)
            if answer is None
            else (answer.last_epoch, answer.end_offset, f"{answer.age_ms / 1000:.1f} s ago")
        ),
    ]


def _local_log(candidate: Any) -> list[object]:
    """Return the local-log cells: enough (with reason), start time, bytes, age of the report."""
    known = candidate.local_log
    if known is None:
        return [None] * 4
    return [
        f"{'yes' if known.enough else 'no'}: {known.reason}",
        None if known.start_ms < 0 else _time(known.start_ms),
        _known(known.size_bytes),
        None if known.age_ms < 0 else f"{known.age_ms / 1000:.1f} s ago",
    ]


def _known(value: int) -> int | None:
    return None if value < 0 else value


def _time(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _ids(brokers: list[int]) -> str:
    return ",".join(map(str, brokers)) or "-"
