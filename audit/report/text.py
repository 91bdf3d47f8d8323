"""The result as lines for a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from audit.checks.log.log_start import LogStart

FINDINGS_SHOWN = 200
ELECTIONS_SHOWN = 200
FACTS_SHOWN = 50
LOSSES_SHOWN = 5


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
    """Return the verdict of the audit as a sentence."""
    counts = summary["findings"]
    if summary["verdict"] == "not-judged":
        levels = ", ".join(
            f"{one['feature']} at level {one['level']} (this release knows up to {one['known']})"
            for one in summary["not_judged"]
        )
        return f"not judged: the log uses {levels}"
    if summary["verdict"] == "holds":
        warned = f", warnings: {counts['warning']}" if counts["warning"] else ""
        known = LogStart.name not in summary["findings_by_check"]
        begin = "" if known else f" from offset {summary['start_offset']} on"
        return f"every promise holds and nothing was lost{begin}{warned}"
    if summary["verdict"] == "may-be-lost":
        return f"{losses(summary)}; every promise holds"
    text = f"BROKEN: a promise was broken; findings that say so: {counts['error']}"
    return f"{text}; {losses(summary)}" if summary["losses"] else text


def losses(summary: Mapping[str, Any]) -> str:
    """Return the partitions whose elections may have lost records, and the known number."""
    found = summary["losses"]
    count = sum(one["elections"] for one in found)
    named = [f"{one['topic']}-{one['partition']}" for one in found[:LOSSES_SHOWN]]
    more = f" and {len(found) - LOSSES_SHOWN} more" if len(found) > LOSSES_SHOWN else ""
    text = (
        f"records may be lost: {count} election{'s' if count > 1 else ''} of leaders that may "
        f"lack some, in {', '.join(named)}{more}"
    )
    proven = [one for one in found if one["offsets"]]
    if not proven:
        return text
    offsets = sum(one["offsets"] for one in proven)
    places = ", ".join(f"{one['topic']}-{one['partition']}" for one in proven[:LOSSES_SHOWN])
    are = "1 offset is" if offsets == 1 else f"{offsets} offsets are"
    return f"{text}; at least {are} lost in {places}: another replica's log has them"


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
