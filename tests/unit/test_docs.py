"""The documents' references: every link and every path of the repository exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BUILT = {"build", "dist", "var"}
"""Folders that commands write and git ignores."""
FOLDERS = {
    path.name
    for path in ROOT.iterdir()
    if path.is_dir() and not path.name.startswith(".") and path.name not in BUILT
}

LINK = re.compile(r"\]\(([^)#\s]+)")
QUOTED = re.compile(r"`([\w.*<>/-]+)`")
NAMED_FOR_EXAMPLE = {"broker/apis/x.py", "controller/apis/x.py", "kraftbox/_root/"}


def paths_in(text: str) -> list[str]:
    """Return quoted paths that begin with a folder of this repository."""
    return [one for one in QUOTED.findall(text) if "/" in one and one.split("/")[0] in FOLDERS]


def is_there(path: str) -> bool:
    pattern = re.sub(r"<\w+>", "*", path).rstrip("/")
    return any(ROOT.glob(pattern))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_paths_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = [one for one in LINK.findall(text) if "://" not in one]
    assert [one for one in links if not (document.parent / one).exists()] == []
    quoted = set(paths_in(text)) - NAMED_FOR_EXAMPLE
    assert sorted(one for one in quoted if not is_there(one)) == []


def test_short_names_in_file_map_exist_in_folders_of_their_row() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and "`" in line]
    assert rows
    for row in rows:
        paths = paths_in(row)
        folders = [ROOT / (one if one.endswith("/") else Path(one).parent) for one in paths]
        short = [one for one in QUOTED.findall(row) if re.fullmatch(r"\w+\.py", one)]
        lost = [one for one in short if not any((folder / one).exists() for folder in folders)]
        assert not lost, row


LINES_MAX = {"README.md": 150, "docs/benchmarks.md": 200}
HISTORY = re.compile(r"\b(seeds? \d+|before the change|earlier version|previous version)\b")


def test_pages_for_newcomers_are_short() -> None:
    """A page of today: history is in commits and in CHANGELOG.md."""
    for name, lines_max in LINES_MAX.items():
        assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= lines_max, name
    for name in ("docs/benchmarks.md", "docs/gaps.md"):
        assert HISTORY.findall((ROOT / name).read_text(encoding="utf-8")) == [], name


CITED = re.compile(r"\b[MPTGSLHFB][1-9]\d?\b")


def test_every_promise_that_is_cited_is_written_down() -> None:
    """Each code in comments, tests and documents has one row in docs/promises.md."""
    text = (ROOT / "docs/promises.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([MPTGSLHFB]\d+) \|", text, re.MULTILINE)
    assert len(rows) == len(set(rows))
    unknown = {
        f"{path.relative_to(ROOT)}: {code}"
        for path in citing_files()
        for code in CITED.findall(path.read_text(encoding="utf-8"))
        if code not in rows
    }
    assert unknown == set()


def citing_files() -> list[Path]:
    folders = [ROOT / name for name in FOLDERS - {"deploy"}]
    return [*DOCUMENTS, *(path for folder in folders for path in sorted(folder.rglob("*.py")))]
