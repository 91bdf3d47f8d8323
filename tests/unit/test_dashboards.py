"""The dashboards of `deploy/grafana`: importable anywhere, with series behind recorded names."""

import json
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/grafana/dashboards"
FILES = sorted(FOLDER.glob("*.json"))


def datasources(value):
    """Yield every data source that a part of a dashboard names."""
    if isinstance(value, dict):
        if "datasource" in value:
            yield value["datasource"]
        for each in value.values():
            yield from datasources(each)
    elif isinstance(value, list):
        for each in value:
            yield from datasources(each)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_dashboard_imports_into_any_grafana(path):
    board = json.loads(path.read_text(encoding="utf-8"))
    (asked,) = board["__inputs"]
    assert (asked["type"], asked["pluginId"]) == ("datasource", "prometheus")
    first, *others = board["templating"]["list"]
    assert (first["name"], first["type"], first["query"]) == (
        *("datasource", "datasource"),
        "prometheus",
    )
    assert first["current"]["value"] == f"${{{asked['name']}}}"
    # The placeholders that Grafana replaces are exactly those that the import requests.
    assert set(re.findall(r"\$\{(DS_\w+)\}", path.read_text())) == {asked["name"]}
    named = list(datasources([others, board["panels"]]))
    assert len(named) > len(board["panels"])
    assert all(one == {"type": "prometheus", "uid": "${datasource}"} for one in named)
    assert {one["type"] for one in board["__requires"]} >= {"grafana", "datasource"}
    assert board["id"] is None if "id" in board else True
    assert board["uid"] == path.stem
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in board["panels"]:
        assert panel["title"] and panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        if panel["type"] != "row":
            assert all(target["expr"] and target["refId"] for target in panel["targets"])


def test_there_are_dashboards():
    assert len(FILES) == 3 and len({json.loads(path.read_text())["title"] for path in FILES}) == 3


def test_names_of_confluent_are_recorded_from_series_that_are_documented() -> None:
    """Confluent's dashboards show data where a node has it under another name."""
    rules = yaml.safe_load((ROOT / "deploy/prometheus/confluent-names.yml").read_text())
    (group,) = rules["groups"]
    documented = set(re.findall(r"\bkafka_\w+", (ROOT / "docs/metrics.md").read_text()))
    recorded = [rule["record"] for rule in group["rules"]]
    assert len(set(recorded)) == len(recorded)
    for rule in group["rules"]:
        used = set(re.findall(r"\bkafka_\w+", rule["expr"]))
        assert used and used <= documented, rule
    quotas = ("produce_byte_rate", "fetch_byte_rate", "request_request_time", "fetch_throttle_time")
    assert {f"kafka_server_{name}" for name in quotas} <= set(recorded)
