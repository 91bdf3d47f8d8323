"""The generated tables of docs/simulation.md: planted bugs with scenes, and recorded finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from simulation import find
from tests.sim.planted.bugs import BUGS
from tests.sim.planted.scenes import SCENES

PAGE = Path(__file__).parents[3] / "docs" / "simulation.md"


def with_tables(page: str) -> str:
    """Return the page with its tables as they should be."""
    for name, rows in (("planted bugs", _bugs()), ("finds", _finds())):
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        page = before + begin + "\n".join(rows) + "\n" + end + rest.partition(end)[2]
    return page


def _bugs() -> Iterator[str]:
    yield "| bug | part | fault | scene | promises |"
    yield "|---|---|---|---|---|"
    scenes = {bug: name for name, scene in SCENES.items() for bug in scene.bugs}
    for name, one in BUGS.items():
        promises = ", ".join(one.promise.split("|"))
        yield f"| {name} | {one.family} | {one.text} | {scenes[name]} | {promises} |"


def _finds() -> Iterator[str]:
    yield "| find | promise | bug |"
    yield "|---|---|---|"
    for name in find.names():
        one = find.named(name)
        yield f"| {name} | {one.promise} | {one.bug} |"
