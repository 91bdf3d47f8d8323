"""Brokers and racks that lead more or fewer partitions than assigned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from audit.checks.totals.base import Totals, TotalsCheck
from audit.findings.finding import Complaint

SKEW_PERCENT_MIN = 20
PARTITIONS_MIN = 10


class LeaderSkew(TotalsCheck):
    name = "leader-skew"

    def on_totals(self, totals: Totals) -> Iterable[Complaint]:
        leaders = _numbers(totals.end.get("leaders", {}))
        preferred = _numbers(totals.end.get("preferred", {}))
        racks = {str(b["id"]): b.get("rack") or "" for b in totals.end.get("brokers", ())}
        yield from _skewed("broker", leaders, preferred)
        if any(racks.values()):
            yield from _skewed("rack", _by(racks, leaders), _by(racks, preferred))


def _numbers(counts: Mapping[str, int]) -> dict[str, int]:
    return {key: count for key, count in counts.items() if int(key) >= 0}


def _by(racks: Mapping[str, str], counts: Mapping[str, int]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for broker, count in counts.items():
        rack = racks.get(broker, "")
        sums[rack] = sums.get(rack, 0) + count
    return sums


def _skewed(
    what: str, leaders: Mapping[str, int], preferred: Mapping[str, int]
) -> Iterable[Complaint]:
    for key in sorted(leaders.keys() | preferred.keys()):
        is_now, should = leaders.get(key, 0), preferred.get(key, 0)
        if max(is_now, should) < PARTITIONS_MIN:
            continue
        if abs(is_now - should) * 100 > SKEW_PERCENT_MIN * max(should, 1):
            yield Complaint(
                f"{what} {key} leads {is_now} partitions where the log ends; its share by "
                f"assignment is {should}",
                before={"preferred": should},
                after={"leads": is_now},
            )
