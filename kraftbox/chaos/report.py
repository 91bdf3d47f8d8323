"""The report of a chaos run: timeline of faults and verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from kraftbox.chaos.checks import Finding, is_broken, summary
from kraftbox.chaos.run import Entry, Progress, RunResult

COLUMNS = ("AT", "FAULT", "NODES", "LASTED", "WHOLE AFTER", "GAP", "WHOM")


def progress_line(seen: Progress) -> str:
    """Return the progress line of a run."""
    return (
        f"{seen.now_s:6.0f} s  {seen.ok} acknowledged, {seen.failed} failed, "
        f"{seen.unknown} unknown, {seen.read} read   {seen.doing}"
    )


def timeline_rows(timeline: Sequence[Entry]) -> list[list[str]]:
    """Return the rows of the table, with cells as in COLUMNS."""
    return [
        [
            f"{entry.begin_s:.1f} s",
            entry.kind,
            ",".join(map(str, entry.hit.nodes)) or "-",
            f"{entry.end_s - entry.begin_s:.1f} s",
            "never" if entry.whole_s is None else f"{entry.whole_s - entry.end_s:.1f} s",
            f"{entry.gap_s:.2f} s",
            entry.trouble or entry.hit.detail,
        ]
        for entry in timeline
    ]


def verdict_lines(outcome: RunResult) -> Iterator[str]:
    """Yield the lines of the verdict, with its evidence."""
    counts = summary(outcome.history)
    yield (
        f"{counts['sends']} sends: {counts['ok']} acknowledged, {counts['failed']} failed, "
        f"{counts['unknown']} unknown; {counts['read']} reads; {counts['faults']} faults"
    )
    for finding in outcome.findings:
        yield from _finding_lines(finding)
    for trouble in outcome.trouble:
        yield f"problem: {trouble}"
    yield "PROMISES BROKEN" if is_broken(outcome.findings) else "every promise held"


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield f"{finding.severity.upper()} {finding.rule}: {finding.message} ({finding.total} times)"
    for example in finding.examples:
        yield f"    {example}"


def as_json(outcome: RunResult, path: str | None) -> dict[str, Any]:
    """Return the report as JSON values; `path` is the saved history's."""
    return {
        "about": outcome.history.about,
        "history": path,
        "broken": is_broken(outcome.findings),
        "summary": summary(outcome.history),
        "findings": [finding._asdict() for finding in outcome.findings],
        "trouble": outcome.trouble,
        "timeline": [
            {
                "kind": entry.kind,
                "nodes": entry.hit.nodes,
                "detail": entry.hit.detail,
                "beginS": round(entry.begin_s, 3),
                "endS": round(entry.end_s, 3),
                "wholeS": None if entry.whole_s is None else round(entry.whole_s, 3),
                "gapS": round(entry.gap_s, 3),
                "trouble": entry.trouble,
            }
            for entry in outcome.timeline
        ],
    }


def as_junit(outcome: RunResult) -> str:
    """Return the report as JUnit XML for a CI server.

    Each fault is a case, which fails if the cluster did not become whole again. Each broken rule is
    a failed case; without one there is a single passed case.
    """
    suite = Element("testsuite", name="kraftbox chaos")
    for number, entry in enumerate(outcome.timeline, start=1):
        lasted_s = f"{entry.end_s - entry.begin_s:.3f}"
        case = SubElement(suite, "testcase", name=f"{number} {entry.kind}", time=lasted_s)
        if entry.whole_s is None:
            failure = SubElement(case, "failure", message="the cluster did not recover after it")
            failure.text = entry.trouble or entry.hit.detail
    broken = [finding for finding in outcome.findings if is_broken([finding])]
    for finding in broken:
        case = SubElement(suite, "testcase", name=finding.rule)
        message = f"{finding.message} ({finding.total} times)"
        SubElement(case, "failure", message=message).text = "\n".join(finding.examples)
    if not broken:
        SubElement(suite, "testcase", name="every promise held")
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    indent(suite)
    return tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
