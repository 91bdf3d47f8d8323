"""Shell: Ledger of runs, written one by one: ten thousand of them take several sittings.

Each run is one line of JSON: its replay arguments, the id of the code, and its outcome. Runs of
other code stay in the file and are not counted, since they predict little about the present code.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from simulation.preload import PACKAGES
from simulation.shapes.shape import BadShape

PROGRAM = (*PACKAGES, "kraftbox", "simulation")
"""The packages that decide the result of a seed."""

ID_DIGITS = 16


@cache
def code_id() -> str:
    """Return hexadecimal digits that change with the text of any module of the program."""
    digest = sha256()
    for name in sorted(PROGRAM):
        for folder in _folders(name):
            for path in sorted(folder.rglob("*.py")):
                text = path.read_bytes()
                head = f"{name}/{path.relative_to(folder).as_posix()} {len(text)}\n"
                digest.update(head.encode() + text)
    return digest.hexdigest()[:ID_DIGITS]


def _folders(package: str) -> Iterator[Path]:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations is not None
    yield from map(Path, spec.submodule_search_locations)


class Ledger:
    """The runs in one file. `runs` are those of this code, by their replay arguments."""

    def __init__(self, path: Path, code: str) -> None:
        """Read the file, which need not exist. An incomplete last line, left by a writer that was
        killed, is removed.

        Raises: BadShape if another line is not a run, or the file cannot be opened.
        """
        self._path = path
        self._code = code
        self.runs: dict[str, dict[str, Any]] = {}
        self.of_other_code = 0
        try:
            with open(path, "a+b") as file:
                file.seek(0)
                text = file.read()
                whole = text.rfind(b"\n") + 1
                if whole < len(text):
                    file.truncate(whole)
        except OSError as error:
            raise self._cannot(error) from error
        for number, line in enumerate(text[:whole].splitlines(), 1):
            self._take(number, line)

    def _take(self, number: int, line: bytes) -> None:
        try:
            entry = json.loads(line)
            code, replay, outcome = entry["code"], entry["replay"], entry["outcome"]
            outcome["seed"]
        except (ValueError, KeyError, TypeError) as error:
            raise BadShape(f"--ledger {self._path}: line {number} is not a run") from error
        if code == self._code:
            self.runs[replay] = outcome
        else:
            self.of_other_code += 1

    def add(self, replay: str, outcome: dict[str, Any]) -> None:
        """Append one run; it is in the file when this returns. Raises: BadShape if it cannot be
        written."""
        entry = {"code": self._code, "replay": replay, "outcome": outcome}
        try:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(json.dumps(entry, separators=(",", ":")) + "\n")
        except OSError as error:
            raise self._cannot(error) from error
        self.runs[replay] = outcome

    def _cannot(self, error: OSError) -> BadShape:
        return BadShape(f"--ledger {self._path}: {error.strerror}")
