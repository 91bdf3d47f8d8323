"""Refresh of transcripts: run the commands of a page again and write their output below each.

    python scripts/tutorials.py docs/tutorials/first-cluster.md [...]

A transcript is Markdown. In its `console` blocks each line that begins with `$ ` is a bash command;
below it stands its output, with the exit code if it is not 0. The prose is written by hand and
stays. All commands of a transcript run in one fresh folder. Their fresh virtual environment has a
wheel of this checkout (TUTORIALS_VENV names another). Comments before a block set what the block
itself cannot show:

    <!-- file: NAME -->       write the next block, of any language, to this file
    <!-- ctrl-c: TEXT -->     send SIGINT in the next block once this text was printed
    <!-- lines: N -->         show only the first and last lines of longer output, N together
    <!-- unseen: COMMAND -->  run this command without showing it
    <!-- varies -->           the output of the next block differs from run to run (for tests)

Commands may use `$CHECKOUT`, this repository, for files of its tests (Apache Kafka's jars).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOTE = re.compile(r"<!-- ([\w-]+): (.*?) -->", re.DOTALL)
EXPORT = re.compile(r"export (\w+)=(\S+)")
COMMAND_S = 600.0
LINES_MAX = 60
WIDTH = 100
VARIES = "<!-- varies -->"
"""Note before a block whose output differs from run to run."""
LIVE = re.compile(r"\r[^\n]")


class Shell:
    """The shell for the commands of one transcript, with its own home folder."""

    def __init__(self, home: Path, venv: Path) -> None:
        self.home = home
        self.folder = home / "shop"
        self.folder.mkdir()
        kept = {name: os.environ[name] for name in ("LANG", "PIP_FIND_LINKS") if name in os.environ}
        self.environ = {
            **kept,
            "PATH": f"{venv / 'bin'}:{os.environ['PATH']}",
            "HOME": str(home),
            "VIRTUAL_ENV": str(venv),
            "CHECKOUT": str(ROOT),
            "TMPDIR": str(home),
            "COLUMNS": str(WIDTH),
            "TERM": "dumb",
            "PYTHONDONTWRITEBYTECODE": "1",
            # Plug-ins of this repository's own tests, which a reader's project does not have.
            "PYTEST_ADDOPTS": "-p no:randomly -p no:asyncio",
        }
        self._names = {
            str(self.folder): "~/shop",
            str(venv): "~/venv",
            str(home): "~",
            str(ROOT): "~/kraftbox",
        }

    def run(self, command: str, ctrl_c: str | None = None) -> str:
        """Run one command. Returns: both output streams as a reader should see them, and the exit
        code.

        `export NAME=VALUE` holds for all later commands.
        """
        if exported := EXPORT.fullmatch(command):
            self.environ[exported[1]] = exported[2]
            return ""
        # Ctrl-C interrupts all processes of the terminal: here those of one session.
        process = subprocess.Popen(
            ["bash", "-c", f"{command}\n"],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        watchdog = threading.Timer(COMMAND_S, os.killpg, (process.pid, signal.SIGKILL))
        watchdog.start()
        assert process.stdout is not None
        shown = bytearray()
        try:
            while data := os.read(process.stdout.fileno(), 65536):
                shown += data
                if ctrl_c is not None and ctrl_c.encode() in shown:
                    os.killpg(process.pid, signal.SIGINT)
                    shown += b"^C\n"
                    ctrl_c = None
            code = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            raise
        finally:
            watchdog.cancel()
            process.stdout.close()
        text = shown.decode(errors="replace")
        for path, name in self._names.items():
            text = text.replace(path, name)
        return text.rstrip() + (f"\n[exit code {code}]" if code else "")


def shortened(text: str, lines_max: int) -> list[str]:
    lines = [line.rstrip() for line in text.strip("\n").split("\n")] if text.strip() else []
    if len(lines) <= lines_max:
        return lines
    first = (lines_max + 1) // 2
    last = lines[len(lines) - (lines_max - first) :] if lines_max > first else []
    return [*lines[:first], f"[... {len(lines) - lines_max} lines]", *last]


def commands(block: str) -> Iterator[str]:
    """Yield the commands of a block; a trailing backslash continues one on the next line."""
    lines = iter(block.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command += "\n" + next(lines)
            yield command


def run_again(text: str, shell: Shell) -> str:
    """Return the transcript with the current output of its commands."""
    parts: list[str] = []
    at = 0
    for block in BLOCK.finditer(text):
        before = text[at : block.start()]
        notes = dict[str, str]()
        for name, value in NOTE.findall(before):
            if name == "unseen":
                shell.run(value)
            notes[name] = value
        parts.append(before)
        at = block.end()
        if "file" in notes:
            (shell.folder / notes["file"]).write_text(block[2])
        if block[1] != "console":
            parts.append(block[0])
            continue
        shown: list[str] = []
        for command in commands(block[2]):
            print(f"$ {command}", flush=True)
            told = shell.run(command, notes.get("ctrl-c"))
            shown += [f"$ {command}", *shortened(told, int(notes.get("lines", LINES_MAX)))]
        parts.append("```console\n" + "\n".join(shown) + "\n```")
    for name, value in NOTE.findall(text[at:]):
        if name == "unseen":
            shell.run(value)
    return "".join([*parts, text[at:]])


def fresh_environment(folder: Path) -> Path:
    """Create a virtual environment that has only a wheel of this checkout."""
    venv = folder / "venv"
    pip = [str(venv / "bin/python"), "-m", "pip"]
    for command in (
        [sys.executable, "-m", "venv", str(venv)],
        [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder / "wheels"), str(ROOT)],
        [*pip, "install", "--quiet", *map(str, (folder / "wheels").glob("*.whl"))],
    ):
        subprocess.run(command, check=True)
    return venv


def main(files: list[str]) -> int:
    given = os.environ.get("TUTORIALS_VENV")
    for name in files:
        file = Path(name)
        home = Path(tempfile.mkdtemp(prefix="tutorial-"))
        try:
            venv = Path(given) if given else fresh_environment(home)
            file.write_text(
                run_again(file.read_text(encoding="utf-8"), Shell(home, venv)), encoding="utf-8"
            )
        finally:
            shutil.rmtree(home, ignore_errors=True)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main(sys.argv[1:]))
