"""The result as lines for a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

FINDINGS_SHOWN = 200
ELECTIONS_SHOWN = 200
FACTS_SHOWN = 50


def moment(timestamp_ms: int) -> str:
    """Return the time in UTC with milliseconds; a dash for no time."""
    if timestamp_ms < 0:
        return "-"
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def visible(text: str) -> str:
    """Return a line in which all unprintable characters are escaped.

    Names in a metadata log may be any text, and the report is read on a terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text
    )


def as_text(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines without line ends."""
    return map(visible, _lines(result))


def _lines(result: Mapping[str, Any]) -> Iterator[str]:
    summary = result["summary"]
    yield from _head(summary, result["quorum"])
    facts = [f for f in result["findings"] if f["severity"] == "info"]
    yield ""
    yield from _findings([f for f in result["findings"] if f["severity"] != "info"])
    for check, count in summary["findings_left_out"].items():
        yield f"  and {count:,} more of {check}, counted and not listed"
    yield ""
    counts = ", ".join(f"{count} {kind}" for kind, count in summary["elections"].items())
    yield f"elections: {counts or 'none'}"
    for election in result["elections"][:ELECTIONS_SHOWN]:
        yield f"  {_election(election)}"
    left = sum(summary["elections"].values()) - len(result["elections"][:ELECTIONS_SHOWN])
    if left > 0:
        yield f"  and {left} more"
    if facts:
        yield ""
        yield f"facts ({len(facts)}):"
        for finding in facts[:FACTS_SHOWN]:
            yield f"  {finding['check']}: {finding['message']}"
        if len(facts) > FACTS_SHOWN:
            yield f"  and {len(facts) - FACTS_SHOWN} more"
    yield ""
    yield verdict(summary)


def verdict(summary: Mapping[str, Any]) -> str:
    """Return the verdict of the audit."""
    counts = summary["findings"]
    if not counts["error"] and summary["not_judged"]:
        levels = ", ".join(
            f"{one['feature']} at level {one['level']} (this release knows up to {one['known']})"
            for one in summary["not_judged"]
        )
        return f"not judged: the log uses {levels}"
    if summary["promises_hold"]:
        warned = f", warnings: {counts['warning']}" if counts["warning"] else ""
        return f"every promise holds{warned}"
    return f"BROKEN: a promise was broken; findings that say so: {counts['error']}"


def _head(summary: Mapping[str, Any], quorum: Mapping[str, Any]) -> Iterator[str]:
    cluster = summary["cluster_id"] or "of unknown id"
    yield f"cluster {cluster}, copies of its metadata log: {len(quorum['logs'])}"
    yield (
        f"offsets {summary['start_offset']} to {summary['end_offset']} of {quorum['audited']}: "
        f"{summary['records']} records in {summary['batches']} batches, "
        f"{moment(summary['first_timestamp_ms'])} to {moment(summary['last_timestamp_ms'])} UTC"
    )
    yield (
        f"{summary['topics']} topics, {summary['partitions']} partitions "
        f"({summary['partitions_leaderless']} without leader, "
        f"{summary['partitions_under_min_isr']} under min ISR) where it ends"
    )


def _findings(broken: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"findings ({len(broken)}):" if broken else "findings: none"
    for finding in broken[:FINDINGS_SHOWN]:
        yield f"  {_finding(finding)}"
        for side in ("before", "after"):
            if finding[side] is not None:
                yield f"    {side}: {json.dumps(finding[side])}"
    if len(broken) > FINDINGS_SHOWN:
        yield f"  and {len(broken) - FINDINGS_SHOWN} more"


def _finding(finding: Mapping[str, Any]) -> str:
    where = f" at offset {finding['offset']}" if finding["offset"] >= 0 else ""
    log = f" ({finding['log']})" if finding["log"] else ""
    return f"{finding['severity'].upper()} {finding['check']}{where}{log}: {finding['message']}"


def old_leader(election: Mapping[str, Any]) -> str:
    """Return the old leader for display: `none`, or `?` if damage hides it."""
    before = election["from_leader"]
    if before is None:
        return "?"
    return "none" if before < 0 else str(before)


def _election(election: Mapping[str, Any]) -> str:
    return (
        f"{moment(election['timestamp_ms'])} offset {election['offset']} "
        f"{election['topic']}-{election['partition']} {old_leader(election)} -> "
        f"{election['to_leader']} epoch {election['leader_epoch']} {election['kind']} "
        f"({why(election)})"
    )


def why(election: Mapping[str, Any]) -> str:
    """Return the cause, with the replicas that were passed over for their local logs."""
    passed = ", ".join(map(str, election["passed_over"]))
    return f"{election['cause']}; {passed} passed over, local log" if passed else election["cause"]
