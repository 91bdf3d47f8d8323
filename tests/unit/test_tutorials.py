"""Pages with recorded output: no traceback, and unchanged answers to mistakes without a cluster."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from kraftbox import __main__ as program
from scripts.tutorials import BLOCK, NOTE, commands, shortened

DOCS = Path(__file__).parents[2] / "docs"
TRANSCRIPTS = [*sorted(DOCS.glob("tutorials/*.md")), DOCS / "compose.md", DOCS / "mistakes.md"]
MISTAKES = (DOCS / "mistakes.md").read_text(encoding="utf-8")
ALONE, WITH_A_NODE = MISTAKES.split("## With a node that runs")


def typed(text: str) -> list[str]:
    return [
        one for block in BLOCK.finditer(text) if block[1] == "console" for one in commands(block[2])
    ]


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda path: path.stem)
def test_nothing_ends_in_a_traceback(transcript: Path) -> None:
    text = transcript.read_text(encoding="utf-8")
    assert typed(text)
    assert "Traceback (most recent call last)" not in text
    assert not re.search(r"/(tmp|root)/", text)
    assert f"/{Path(__file__).resolve().parts[1]}/" not in text


def test_mistakes_end_with_a_failing_exit_code() -> None:
    told = [
        line
        for block in BLOCK.finditer(MISTAKES)
        if block[1] == "console"
        for line in block[2].splitlines()
    ]
    asked = [at for at, line in enumerate(told) if line.startswith("$ ")]
    assert len(asked) >= 40
    for first, last in zip(asked, [*asked[1:], len(told)], strict=True):
        assert re.fullmatch(r"\[exit code [12]\]", told[last - 1]), told[first]
        assert last - first > 2, told[first]


def test_mistakes_are_answered_as_the_transcript_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "path", list(sys.path))
    at = 0
    for block in BLOCK.finditer(ALONE):
        notes = dict(NOTE.findall(ALONE[at : block.start()]))
        at = block.end()
        if "file" in notes:
            Path(notes["file"]).write_text(block[2])
        if block[1] != "console":
            continue
        shown = []
        for command in commands(block[2]):
            words = re.findall(r'"([^"]*)"|(\S+)', command)
            try:
                code = program.main([quoted or plain for quoted, plain in words][1:])
            except SystemExit as end:
                code = int(end.code or 0)
            told = "".join(capfd.readouterr()).replace(str(tmp_path), "~/shop")
            shown += [f"$ {command}", *shortened(told.rstrip(), 60), f"[exit code {code}]"]
        assert "\n".join(shown) == block[2].rstrip("\n")
