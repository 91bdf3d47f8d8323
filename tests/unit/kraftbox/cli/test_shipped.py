"""Alert rules and dashboards that an installation contains, and the links of the alerts."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from kraftbox.cli import shipped
from kraftbox.cli.main import main as cli

ROOT = Path(__file__).resolve().parents[4]
ALERT = re.compile(r"^      - alert: (\w+)$", re.MULTILINE)
RUNBOOK = re.compile(r"^          runbook_url: docs/operations\.md#([\w-]+)$", re.MULTILINE)


def test_each_alert_links_to_a_section_that_names_it() -> None:
    text = shipped.rules(None)
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    sections = {
        title.lower(): body
        for title, body in re.findall(r"^#### (\w+)\n(.*?)(?=^#)", page, re.M | re.S)
    }
    parts = text.split("      - alert: ")[1:]
    assert len(parts) == len(ALERT.findall(text)) >= 40
    for part in parts:
        name = part.partition("\n")[0]
        (anchor,) = RUNBOOK.findall(part)
        assert anchor == name.lower() or re.search(rf"\b{name}\b", sections[anchor]), name
        assert "- Meaning: " in sections[anchor] and "- Action: " in sections[anchor]


def test_rules_have_the_address_of_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["prometheus", "--rules", "--docs", "https://k.example/docs/"]) == 0
    text = capsys.readouterr().out
    assert "runbook_url: https://k.example/docs/operations.md#offlinepartitions\n" in text
    assert "runbook_url: docs/" not in text
    assert cli(["prometheus", "--docs", "https://k.example"]) == 2


def test_dashboards_are_listed_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["grafana", "--json"]) == 0
    names = [one["name"] for one in json.loads(capsys.readouterr().out)]
    assert names == ["kraftbox-cluster", "kraftbox-quorum", "kraftbox-topics"]
    assert cli(["grafana", "kraftbox-quorum"]) == 0
    printed = capsys.readouterr().out
    assert cli(["grafana", "--out", str(tmp_path / "new")]) == 0
    assert json.loads((tmp_path / "new/kraftbox-quorum.json").read_text()) == json.loads(printed)
    assert cli(["grafana", "nothing"]) == 1
    assert cli(["grafana", "x", "--out", "y"]) == 2


def test_wheel_contains_what_the_commands_read() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for path in (shipped.RULES, shipped.DASHBOARDS):
        assert included[path] == f"kraftbox/_root/{path}"
        assert (ROOT / path).exists()
