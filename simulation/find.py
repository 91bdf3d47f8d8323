"""Shell: Finds: schedules that once broke a promise, shrunk and stored, played by name.

A seed no longer reproduces a failure when other events are drawn from it. A find draws nothing: it
lists nodes, topics, settings, clients and events with their times, and stays reproducible
(`kraftbox sim --schedule NAME`). Each is one file of `simulation/finds/`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulation.schedule import Schedule
from simulation.shapes.shape import BadShape

FOLDER = Path(__file__).with_name("finds")
SUFFIX = ".json"


@dataclass(frozen=True)
class Find:
    """A schedule, the code of the promise that it broke, and the bug in one line."""

    schedule: Schedule
    promise: str
    bug: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `json.dumps`."""
        return {"promise": self.promise, "bug": self.bug, "schedule": self.schedule.to_json()}

    def text(self) -> str:
        """Return the content of its file: a line for each value of the schedule, for reviews."""
        return json.dumps(self.to_json(), indent=1) + "\n"


def names() -> list[str]:
    """Return the names of all finds, sorted."""
    return sorted(one.name.removesuffix(SUFFIX) for one in FOLDER.glob(f"*{SUFFIX}"))


def named(name: str) -> Find:
    """Return the find of that name. Raises: BadShape if its file is missing or invalid."""
    return _find(FOLDER / f"{name}{SUFFIX}")


def schedule_of(text: str) -> Schedule:
    """Return the schedule of a find's name, or of a file written by `--shrink` or with `--json`.

    Raises: BadShape if there is no such find or file, or it is invalid.
    """
    if text in names():
        return named(text).schedule
    value = _read(Path(text))
    return _find(Path(text)).schedule if "promise" in value else _schedule(text, value)


def _find(path: Path) -> Find:
    value = _read(path)
    schedule = _schedule(str(path), value.get("schedule"))
    return Find(schedule, str(value.get("promise")), str(value.get("bug")))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        known = ", ".join(names()) or "none yet"
        raise BadShape(
            f"--schedule {path}: {error.strerror}, and it is not the name of a find ({known})"
        ) from error
    except ValueError as error:
        raise BadShape(f"--schedule {path}: {error}") from error
    if not isinstance(value, Mapping):
        raise BadShape(f"--schedule {path}: a schedule must be a JSON object")
    return value


def _schedule(where: str, value: Any) -> Schedule:
    try:
        return Schedule.from_json(value)
    except BadShape as error:
        raise BadShape(f"--schedule {where}: {error}") from error
