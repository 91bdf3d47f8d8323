"""The document of an audit: the events of all tasks, sorted, added up and checked as a whole.

The result consists of JSON values; `audit.report` renders it, `docs/audit.md` describes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from audit.checks import TOTALS_CHECKS
from audit.checks.data.lost_records import LostRecords
from audit.checks.log.logs_agree import LogsAgree
from audit.checks.totals.base import Lasting, Totals
from audit.findings.finding import Complaint, Finding, Severity
from audit.findings.sink import ELECTION, FINDINGS_LEFT_OUT, FINDINGS_PER_CHECK_MAX
from audit.inputs.metadata_log import LogEnd, MetadataLog
from audit.state.elections import LOSSY, Election, LeaderChange
from metalog.image.features import highest_level

SEVERITY_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


class Verdict(StrEnum):
    """The verdict of an audit.

    A broken promise outweighs a level of a later release, which outweighs elections that may have
    lost records: it was found before that level.
    """

    HOLDS = "holds"
    MAY_BE_LOST = "may-be-lost"
    BROKEN = "broken"
    NOT_JUDGED = "not-judged"


class Merged:
    """Collects events, then builds the result."""

    def __init__(
        self, primary: MetadataLog, logs: Sequence[MetadataLog], ends: Mapping[str, LogEnd]
    ) -> None:
        self.primary, self.logs, self.ends = primary, logs, ends
        self.findings: list[Finding] = []
        self.elections: list[Election] = []
        self.leadership_rows: list[list[Any]] = []
        self.by_kind: dict[str, list[dict[str, Any]]] = {}
        self.left_out: dict[str, int] = {}
        """Findings by check that tasks counted and did not list."""

    def add(self, rows: Iterable[tuple[str, int, int, str]]) -> None:
        for kind, offset, timestamp_ms, body in rows:
            value = json.loads(body)
            if kind == "finding":
                self.findings.append(Finding(**value))
            elif kind == ELECTION:
                election = Election(*value)
                self.elections.append(election._replace(passed_over=tuple(election.passed_over)))
            elif kind == "leadership":
                self.leadership_rows.append(value)
            elif kind == FINDINGS_LEFT_OUT:
                self.left_out = _added((self.left_out, value))
            else:
                event = {"offset": offset, "timestamp_ms": timestamp_ms, **value}
                self.by_kind.setdefault(kind, []).append(event)

    def _complain(self, check: str, severity: Severity, complaint: Complaint) -> None:
        """Add a finding of a check of the whole log."""
        self.findings.append(complaint.finding(check, severity, -1, -1))

    def elections_counted(self) -> int:
        """Return the number of elections, listed or not."""
        return sum(sum(n["elections"].values()) for n in self.by_kind.get("numbers", ()))

    def intervals_above(self, elections: int) -> set[tuple[int, int]]:
        """Return (interval, shard) of those that counted more than `elections` elections."""
        return {
            (n["interval"], n["shard"])
            for n in self.by_kind.get("numbers", ())
            if sum(n["elections"].values()) > elections
        }

    # --- the result ----------------------------------------------------------------------------

    def result(self, elections_max: int) -> dict[str, Any]:
        numbers = sorted(self.by_kind.get("numbers", ()), key=lambda n: (n["interval"], n["shard"]))
        totals = _totals(numbers, self.by_kind.get("quorum", ()))
        self._judge(totals)
        findings = self._sorted_findings()
        elections = sorted(set(self.elections), key=lambda e: (e.offset, e.topic, e.partition))
        counts = _added(n["elections"] for n in numbers)
        return {
            "summary": self._summary(numbers, totals, findings, counts),
            "elections": [e._asdict() for e in elections[:elections_max]],
            "elections_left_out": max(0, sum(counts.values()) - len(elections[:elections_max])),
            "findings": [f._asdict() for f in findings],
            "brokers": self._brokers(totals),
            "quorum": self._quorum(),
            "settings": _by_offset(self.by_kind.get("setting", [])),
            "reassignments": _by_offset(self.by_kind.get("reassignment", [])),
            "leadership": sorted(self.leadership_rows, key=lambda m: (m[0], m[2], m[3])),
            "leadership_left_out": sum(n["leadership_left_out"] for n in numbers),
            "series": series(numbers),
            "partitions": sorted(self.by_kind.get("partition", []), key=_place),
            "data": sorted(self.by_kind.get("data", []), key=_place),
        }

    def _judge(self, totals: Totals) -> None:
        for make in TOTALS_CHECKS:
            check = make()
            complaints = list(check.on_totals(totals))
            # A warning must not be lost after a thousand informational complaints.
            complaints.sort(key=lambda c: SEVERITY_ORDER[c.severity or check.severity])
            for complaint in complaints[:FINDINGS_PER_CHECK_MAX]:
                self._complain(check.name, check.severity, complaint)
            if left_out := len(complaints[FINDINGS_PER_CHECK_MAX:]):
                self.left_out = _added((self.left_out, {check.name: left_out}))
        newest = {
            log.name: max((s.end_offset for s in log.snapshots), default=0) for log in self.logs
        }
        comparisons = _by_offset(self.by_kind.get("comparison", []))
        agree = LogsAgree()
        for complaint in agree.on_comparisons(comparisons, self.primary.name, newest):
            self._complain(agree.name, agree.severity, complaint)

    def _sorted_findings(self) -> list[Finding]:
        unique: dict[tuple[Any, ...], Finding] = {}
        for finding in self.findings:
            key = (finding.check, finding.offset, finding.message, finding.log)
            unique.setdefault(key, finding)
        return sorted(
            unique.values(),
            key=lambda f: (
                SEVERITY_ORDER[Severity(f.severity)],
                f.offset,
                f.check,
                f.log,
                f.message,
            ),
        )

    def _summary(
        self,
        numbers: Sequence[Mapping[str, Any]],
        totals: Totals,
        findings: Sequence[Finding],
        elections: Mapping[str, int],
    ) -> dict[str, Any]:
        severities = {str(s): 0 for s in Severity}
        checks: dict[str, int] = {}
        for finding in findings:
            severities[finding.severity] += 1
            checks[finding.check] = checks.get(finding.check, 0) + 1
        unknown: dict[str, int] = {}
        for one in numbers:
            for name, level in one.get("unknown_levels", {}).items():
                unknown[name] = max(level, unknown.get(name, 0))
        first = [n["first_timestamp_ms"] for n in numbers if n["first_timestamp_ms"] is not None]
        end = totals.end
        losses = self._losses(findings)
        verdict = Verdict.MAY_BE_LOST if losses else Verdict.HOLDS
        if severities[Severity.ERROR]:
            verdict = Verdict.BROKEN
        elif unknown:
            verdict = Verdict.NOT_JUDGED
        return {
            "verdict": str(verdict),
            "losses": losses,
            "promises_hold": severities[Severity.ERROR] == 0 and not unknown,
            "not_judged": [
                {"feature": name, "level": level, "known": highest_level(name)}
                for name, level in sorted(unknown.items())
            ],
            "findings": severities,
            "findings_by_check": checks,
            "findings_left_out": dict(sorted(self.left_out.items())),
            "elections": dict(sorted(elections.items())),
            "causes": dict(sorted(_added(n["causes"] for n in numbers).items())),
            "records": totals.records,
            "batches": sum(n["batches"] for n in numbers),
            "record_types": dict(sorted(_added(n["record_types"] for n in numbers).items())),
            "start_offset": numbers[0]["start_offset"] if numbers else 0,
            "end_offset": totals.end_offset,
            "first_timestamp_ms": min(first, default=-1),
            "last_timestamp_ms": totals.end_timestamp_ms,
            "cluster_id": next((log.cluster_id for log in self.logs if log.cluster_id), None),
            "topics": end.get("topics", 0),
            "partitions": end.get("partitions", 0),
            "partitions_leaderless": end.get("leaderless", 0),
            "partitions_under_min_isr": end.get("under_min_isr", 0),
            "leaders": end.get("leaders", {}),
            "features": end.get("features", {}),
            "isr_shrinks": totals.isr_shrinks,
            "isr_expands": totals.isr_expands,
            "under_min_isr_ms": sum(one.total_ms for one in totals.under_min_isr),
            "leaderless_ms": sum(one.total_ms for one in totals.leaderless),
        }

    def _losses(self, findings: Sequence[Finding]) -> list[dict[str, Any]]:
        """Return the partitions with elections that may have lost records.

        `offsets` is the number that a replica's log proves to be lost, None without such a log.
        """
        found: dict[tuple[str, int], dict[str, Any]] = {}
        for election in sorted(set(self.elections), key=lambda e: (e.topic, e.partition)):
            if election.kind in LOSSY:
                place = {"topic": election.topic, "partition": election.partition}
                loss = found.setdefault(
                    (election.topic, election.partition),
                    {**place, "elections": 0, "kinds": {}, "offsets": None},
                )
                loss["elections"] += 1
                loss["kinds"][election.kind] = loss["kinds"].get(election.kind, 0) + 1
        for finding in findings:
            known = found.get((finding.topic or "", finding.partition or 0))
            if finding.check == LostRecords.name and known is not None:
                # Several elections may have lost the same offsets.
                known["offsets"] = max(known["offsets"] or 0, finding.after["offsets"])
        return list(found.values())

    def _brokers(self, totals: Totals) -> list[dict[str, Any]]:
        brokers: dict[int, dict[str, Any]] = {}
        for event in _by_offset(self.by_kind.get("broker", [])):
            broker = brokers.setdefault(
                event["broker"], {"id": event["broker"], "rack": None, "epochs": [], "events": []}
            )
            if event.get("rack") is not None:
                broker["rack"] = event["rack"]
            if event["epoch"] not in broker["epochs"]:
                broker["epochs"].append(event["epoch"])
            broker["events"].append(
                {name: event[name] for name in ("offset", "timestamp_ms", "event", "epoch")}
                | {"fenced": event.get("fenced", True)}
            )
        now = {broker["id"]: broker for broker in totals.end.get("brokers", ())}
        for broker_id, broker in brokers.items():
            broker["now"] = now.get(broker_id)
        return [brokers[broker_id] for broker_id in sorted(brokers)]

    def _quorum(self) -> dict[str, Any]:
        leaders = _by_offset(self.by_kind.get("quorum", []))
        ends = sorted((end.end_offset for end in self.ends.values()), reverse=True)
        return {
            "leaders": [
                {key: one[key] for key in ("epoch", "leader", "offset", "timestamp_ms")}
                for one in leaders
            ],
            "voters": _by_offset(self.by_kind.get("voters", [])),
            "audited": self.primary.name,
            "on_majority_of_copies": ends[len(ends) // 2] if ends else 0,
            "logs": [
                {
                    "log": log.name,
                    "path": log.path,
                    "node": log.node_id,
                    "start_offset": log.start_offset,
                    "end_offset": self.ends[log.name].end_offset,
                    "epoch": self.ends[log.name].epoch,
                    "segments": len(log.segments),
                    "snapshots": len(log.snapshots),
                }
                for log in self.logs
            ],
        }


def _place(event: Mapping[str, Any]) -> tuple[str, int]:
    return event["topic"], event["partition"]


def _by_offset(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(events, key=lambda e: e["offset"])


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for one in counts:
        for key, count in one.items():
            sums[key] = sums.get(key, 0) + count
    return sums


def _lasting(numbers: Iterable[Mapping[str, Any]], name: str) -> list[Lasting]:
    sums: dict[tuple[str, int], list[int]] = {}
    for one in numbers:
        for topic, partition, total_ms, episodes in one[name]:
            found = sums.setdefault((topic, partition), [0, 0])
            found[0] += total_ms
            found[1] += episodes
    return [Lasting(*key, *values) for key, values in sorted(sums.items())]


def _totals(numbers: Sequence[Mapping[str, Any]], quorum: Iterable[Mapping[str, Any]]) -> Totals:
    end: dict[str, Any] = {}
    for one in numbers:
        for key, value in one.get("end", {}).items():
            if isinstance(value, dict) and value and key != "features":
                end[key] = _added((end.get(key, {}), value))
            elif isinstance(value, int):
                end[key] = end.get(key, 0) + value
            else:
                end[key] = end.get(key) or value
    return Totals(
        records=sum(n["records"] for n in numbers),
        isr_shrinks=sum(n["isr_shrinks"] for n in numbers),
        isr_expands=sum(n["isr_expands"] for n in numbers),
        under_min_isr=_lasting(numbers, "under_min_isr"),
        leaderless=_lasting(numbers, "leaderless"),
        end=end,
        end_offset=max((n["end_offset"] or 0 for n in numbers), default=0),
        end_timestamp_ms=max((n["last_timestamp_ms"] for n in numbers), default=-1),
        quorum=[LeaderChange(one["leader"], one["epoch"], one["offset"]) for one in quorum],
    )


def series(numbers: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Return [timestamp, ISR members, ELR members, partitions under min ISR, without leader].

    The values are sums over all partitions. The shards of one interval are step functions, which
    are added up.
    """
    points: list[list[int]] = []
    by_interval: dict[int, list[list[list[int]]]] = {}
    for one in numbers:
        by_interval.setdefault(one["interval"], []).append(one["series"])
    for interval in sorted(by_interval):
        parts = by_interval[interval]
        if len(parts) == 1:
            points += parts[0]
            continue
        moves = sorted((p[0], at, p[1:]) for at, part in enumerate(parts) for p in part)
        now = [[0, 0, 0, 0] for _ in parts]
        for timestamp_ms, at, values in moves:
            now[at] = values
            sums = [sum(column) for column in zip(*now, strict=True)]
            if points and points[-1][0] == timestamp_ms:
                points[-1] = [timestamp_ms, *sums]
            else:
                points.append([timestamp_ms, *sums])
    return points
