"""The commands of README.md and docs/tutorials, run in their order on real nodes.

Each command ends with the exit code of the page. It prints the lines of the page, too, except in
blocks with the note `varies`. Times, ports and process ids are not compared. Additions: `--port 0`
where nodes start, so that the kernel chooses, and KRAFTBOX_BOOTSTRAP for commands that need a
client port.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from scripts.tutorials import BLOCK, EXPORT, LINES_MAX, NOTE, VARIES, Shell, commands, shortened
from tests.e2e.commands import REPOSITORY

pytestmark = pytest.mark.e2e

TUTORIALS = sorted((REPOSITORY / "docs/tutorials").glob("*.md"))
PAGES = [REPOSITORY / "README.md", *TUTORIALS]
STARTS = re.compile(r"^kraftbox up\b(?!.*--port)")
BOOTSTRAP = re.compile(r"^bootstrap\.servers=(\S+)", re.MULTILINE)
EXIT_CODE = re.compile(r"\n?\[exit code \d+\]$")
DIFFERENT = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+"), "TIME"),
    (re.compile(r"(127\.0\.0\.1|localhost):\d+"), r"\1:PORT"),
    (re.compile(r"\d+\.\d+ ?s\b"), "SECONDS"),
    (re.compile(r" +"), " "),
)


def same(text: str) -> str:
    """Return output without the parts that differ from run to run."""
    for pattern, word in DIFFERENT:
        text = pattern.sub(word, text)
    return text


def shown_below(block: str) -> list[str]:
    """Return the output that a block has below each of its commands."""
    parts = re.split(r"^\$ .*\n(?:(?<=\\\n).*\n)*", block, flags=re.MULTILINE)
    return [part.rstrip("\n") for part in parts[1:]]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_commands_of_a_page_print_the_output_of_the_page(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    shell = Shell(tmp_path, Path(sys.prefix))
    shell.environ |= {key: os.environ[key] for key in ("KRAFTBOX_PORTS",) if key in os.environ}
    at = 0
    try:
        for block in BLOCK.finditer(text):
            before, at = text[at : block.start()], block.end()
            notes = dict(NOTE.findall(before))
            if "file" in notes:
                (shell.folder / notes["file"]).write_text(block[2])
            if block[1] != "console":
                continue
            lines = int(notes.get("lines", LINES_MAX))
            for command, expected in zip(commands(block[2]), shown_below(block[2]), strict=True):
                told = run(shell, command)
                code, wanted = EXIT_CODE.search(told), EXIT_CODE.search(expected)
                assert (code and code[0].strip()) == (wanted and wanted[0].strip()), (command, told)
                if VARIES not in before:
                    assert same("\n".join(shortened(told, lines))) == same(expected), command
    finally:
        shell.run("kraftbox down")


def run(shell: Shell, command: str) -> str:
    """Run a command on a free port; later commands find the brokers that it started."""
    if EXPORT.fullmatch(command):
        return ""
    told = shell.run(STARTS.sub(r"\g<0> --port 0", command))
    if found := BOOTSTRAP.search(told):
        shell.environ["KRAFTBOX_BOOTSTRAP"] = found[1]
    return told


def test_tutorials_are_the_five_of_the_navigation() -> None:
    nav = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    assert sorted(re.findall(r"tutorials/([\w-]+)\.md", nav)) == [page.stem for page in TUTORIALS]
    assert len(TUTORIALS) == 5
