"""Rendering check of the audit page with 3, 300 and 30,000 partitions in headless Chromium.

Each page is rendered light and dark, wide, 500 pixels wide and on paper; axe-core checks each look.

    python -m scripts.report_pages [--pictures FOLDER] [--partitions N ...]

Needs chromium, node and npm (Debian's packages). The exit code is 1 if axe-core reports a serious
or critical fault or a link has no target. It is also 1 if a page is wider than its screen, fetches
something or takes ten seconds. `--pictures` writes the pictures of docs/audit.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from testkit.processes.ending import end_on_sigterm
from testkit.records.incident_logs import write_incident

ROOT = Path(__file__).resolve().parent.parent
BROWSER = Path(__file__).resolve().parent / "browser"
PROGRAMS = ("chromium", "node", "npm")
SIZES = (3, 300, 30_000)
PAPER_WIDTH, PAPER_HEIGHT = 794, 1123
"""A4 in pixels of a page."""
WIDE, NARROW, HEIGHT = 1280, 500, 1180
BAD = ("serious", "critical")
DRAWN_MS_MAX = 10_000
LOOK_S = 900
AUDIT_S = 300
BROKEN_PROMISE, MAY_BE_LOST = 1, 4
ELSEWHERE = "Asia/Kolkata"
"""Time zone of the audit: its local time must differ from UTC."""


class Look(NamedTuple):
    """One rendering of a page. `picture` is its file name in docs/pictures; empty: check only."""

    partitions: int
    scheme: str
    width: int
    height: int = HEIGHT
    paper: bool = False
    picture: str = ""

    def __str__(self) -> str:
        where = "paper" if self.paper else f"{self.width} px"
        return f"{self.partitions} partitions, {self.scheme}, {where}"


PICTURES = {
    (3, "dark", WIDE): "audit-dark.png",
    (300, "light", WIDE): "audit.png",
    (30_000, "light", WIDE): "audit-30000.png",
    (30_000, "light", NARROW): "audit-500px.png",
    (300, "light", PAPER_WIDTH): "audit-print.png",
}


def looks_at(partitions: int) -> Iterator[Look]:
    """Yield every rendering of the page of this size."""
    for scheme in ("light", "dark"):
        for width in (WIDE, NARROW):
            picture = PICTURES.get((partitions, scheme, width), "")
            yield Look(partitions, scheme, width, picture=picture)
        # Paper is light even if the screen is dark.
        picture = PICTURES.get((partitions, scheme, PAPER_WIDTH), "")
        yield Look(partitions, scheme, PAPER_WIDTH, PAPER_HEIGHT, paper=True, picture=picture)


def missing_programs() -> list[str]:
    """Return the required programs that are not installed."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


def audited_page(folder: Path, partitions: int) -> Path:
    """Write an incident log with this many partitions. Returns: the page that the audit makes of
    it."""
    written = write_incident(folder, partitions)
    command = [sys.executable, "-m", "kraftbox", "audit", str(written.log)]
    command += ["--history", str(written.history), "--data", str(written.data)]
    done = subprocess.run(
        [*command, "--engine", "here", "--no-tables", "--out", str(folder / "report")],
        cwd=ROOT,
        env={**os.environ, "TZ": ELSEWHERE},
        capture_output=True,
        text=True,
        timeout=AUDIT_S,
        check=False,
    )
    if done.returncode not in (0, BROKEN_PROMISE, MAY_BE_LOST):
        raise SystemExit(f"the audit of {partitions} partitions failed: {done.stderr}")
    return folder / "report" / "audit.html"


def installed(folder: Path) -> Path:
    """Install the Node scripts with the dependencies of its lock file into `folder`."""
    place = folder / "browser"
    place.mkdir()
    for name in ("package.json", "package-lock.json", "look.mjs", "site.mjs"):
        shutil.copy(BROWSER / name, place)
    subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=place, check=True)
    return place


def seen(
    place: Path, pages: Sequence[tuple[Look, Path]], pictures: Path | None
) -> Iterator[dict[str, Any]]:
    """Yield the browser's measurements of each look, in order."""
    folder = pictures.resolve() if pictures else None
    looks = [
        {
            **look._asdict(),
            "url": page.resolve().as_uri(),
            "picture": str(folder / look.picture) if folder and look.picture else None,
        }
        for look, page in pages
    ]
    done = subprocess.run(
        ["node", "look.mjs"],
        cwd=place,
        input=json.dumps({"browser": shutil.which("chromium"), "looks": looks}),
        stdout=subprocess.PIPE,
        text=True,
        timeout=LOOK_S,
        check=True,
    )
    for line in done.stdout.splitlines():
        yield json.loads(line)


def complaints(look: Look, found: dict[str, Any]) -> Iterator[str]:
    """Yield the faults of one look as text."""
    for fault in found["faults"]:
        if fault["impact"] in BAD:
            yield f"axe-core: {fault['impact']}: {fault['help']}, {fault['count']} times"
            yield f"  {fault['first']}\n  {fault['why']}"
    if found["wider"] > 0:
        yield f"it is {found['wider']} px wider than its screen"
    if look.width == NARROW and found["columns"] != 2:
        yield f"it has {found['columns']} columns of cards"
    if found["deadLinks"]:
        yield f"{found['deadLinks']} of {found['links']} links lead nowhere"
    if found["foreign"] or found["errors"]:
        yield f"it fetches {found['foreign']}, fails with {found['errors']}"
    if not found["passes"]:
        yield "axe-core judged nothing"
    for what in ("drawnMs", "printedMs"):
        if found[what] > DRAWN_MS_MAX:
            yield f"it takes {found[what]} ms to be drawn or printed"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.report_pages")
    parser.add_argument("--pictures", type=Path, help="a folder that gets the pictures of docs")
    parser.add_argument("--partitions", type=int, nargs="+", default=list(SIZES))
    given = parser.parse_args(arguments)
    if missing := missing_programs():
        raise SystemExit(f"needs {', '.join(missing)}")
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="report-pages-") as name:
        folder = Path(name)
        place = installed(folder)
        pages: list[tuple[Look, Path]] = []
        for partitions in given.partitions:
            begun = time.monotonic()
            page = audited_page(folder / str(partitions), partitions)
            took = time.monotonic() - begun
            print(f"{partitions} partitions: {page.stat().st_size:,} bytes after {took:.1f} s")
            pages += [(look, page) for look in looks_at(partitions)]
        for (look, _), found in zip(pages, seen(place, pages, given.pictures), strict=True):
            printed = f", printed in {found['printedMs']} ms as {found['paperBytes']:,} bytes"
            print(f"{look}: drawn in {found['drawnMs']} ms{printed if look.paper else ''}")
            for complaint in complaints(look, found):
                print(f"  {complaint}")
                wrong += 1
    print(f"{len(pages)} looks, {wrong} complaints")
    return int(wrong > 0)


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main(sys.argv[1:]))
