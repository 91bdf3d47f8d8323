"""Comparisons of an audit with the known events of a story, without our decoder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parents[1] / "golden/audit/kafka-4.3.1-story.tar.xz"
"""Made by `python -m testkit.kafka.story`."""
LOSSY = {"unclean", "last-known-leader"}
EXPECTED_CHECKS = {"lossy-election", "leaderless", "isr-churn", "under-min-isr"}
"""The findings that the story's script causes; any other one would be false."""


def by_partition(entries: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, str]]]:
    """Return each partition's elections in order: new leader and kind."""
    found: dict[str, list[tuple[int, str]]] = {}
    for one in entries:
        if one["partition"] is not None and one["kind"] != "quorum":
            found.setdefault(one["partition"], []).append((one["to"], one["kind"]))
    return found


def check_elections(result: Mapping[str, Any], truth: Mapping[str, Any]) -> None:
    """Check that the audit has each election of the script and the controllers' logs, and its
    kind."""
    elections = result["elections"]
    seen = [
        {"partition": f"{e['topic']}-{e['partition']}", "to": e["to_leader"], "kind": e["kind"]}
        for e in elections
    ]
    assert by_partition(seen) == by_partition(truth["script"])
    assert sorted(
        (
            f"{e['topic']}-{e['partition']}",
            e["leader_epoch"],
            e["from_leader"],
            e["to_leader"],
            e["kind"] in LOSSY,
        )
        for e in elections
    ) == sorted(
        (c["partition"], c["leader_epoch"], c["from"], c["to"], c["unclean"])
        for c in truth["controllers"]
        if c["to"] >= 0
    )
    assert [[one["epoch"], one["leader"]] for one in result["quorum"]["leaders"]] == truth["quorum"]


def check_findings(result: Mapping[str, Any], truth: Mapping[str, Any]) -> None:
    """Check that the findings are exactly those that the script caused."""
    assert result["summary"]["promises_hold"]
    assert {f["check"] for f in result["findings"]} == EXPECTED_CHECKS
    lossy = [f for f in result["findings"] if f["check"] == "lossy-election"]
    assert len(lossy) == sum(one["kind"] in LOSSY for one in truth["script"])


def kafka_type_name(name: str) -> str:
    """Return PartitionChangeRecord as Kafka's tools name it: PARTITION_CHANGE_RECORD."""
    return "".join("_" + c if c.isupper() else c for c in name).lstrip("_").upper()


def check_rows(rows: Sequence[Any], truth: Mapping[str, Any]) -> int:
    """Compare each metadata record with the output of kafka-dump-log. Returns: the number
    compared."""
    seen: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        assert row["error"] is None and row["crc_ok"]
        if not row["control"]:
            seen.setdefault(Path(row["file"]).name, []).append(
                {
                    "offset": row["offset"],
                    "type": kafka_type_name(row["type"]),
                    "version": row["version"],
                    "data": json.loads(row["fields"]),
                }
            )
    expected = {name: records for name, records in truth["dumped"].items() if records}
    assert seen == expected
    return sum(map(len, seen.values()))
