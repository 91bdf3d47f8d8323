"""Rendering check of the site in headless Chromium: every page, light and dark, wide and narrow.

    python -m scripts.site_looks [PAGE ...]

Builds the site and opens each page (or the named ones, such as gaps.html) from the disk. Needs
chromium, node and npm (Debian's packages) and the extra `docs`. The exit code is 1 if axe-core
finds a fault, a page is wider than its screen, or a page fetches something from another host.
A look takes a second on a quiet machine.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts.report_pages import ROOT, installed, missing_programs
from testkit.processes.ending import end_on_sigterm

WIDTHS = (1280, 400)
SCHEMES = ("light", "dark")
LOOKS_S = 3600


def built_site(folder: Path) -> Path:
    """Build the site below the folder, strictly."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


def looks(place: Path, pages: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield the measurements of each page in each width and colour scheme.

    Args:
        place: the folder in which `installed` put the Node scripts.
        pages: files of HTML.
    """
    wanted = {
        "browser": shutil.which("chromium"),
        "pages": [page.resolve().as_uri() for page in pages],
        "widths": WIDTHS,
        "schemes": SCHEMES,
    }
    done = subprocess.run(
        ["node", "site.mjs"],
        cwd=place,
        input=json.dumps(wanted),
        stdout=subprocess.PIPE,
        text=True,
        timeout=LOOKS_S,
        check=True,
    )
    for line in done.stdout.splitlines():
        yield json.loads(line)


def complaints(found: dict[str, Any]) -> Iterator[str]:
    """Yield the faults of one look as text."""
    for fault in found["faults"]:
        yield f"axe-core: {fault['impact']}: {fault['help']}, {fault['count']} times"
        yield f"  {fault['first']}\n  {fault['why']}"
    if found["wider"] > 0:
        yield f"wider than its screen by {found['wider']} px"
    if found["foreign"]:
        yield f"fetches {found['foreign']}"
    if not found["passes"]:
        yield "axe-core judged nothing"


def main(names: Sequence[str]) -> int:
    if missing := missing_programs():
        raise SystemExit(f"needs {', '.join(missing)}")
    wrong = shown = 0
    with tempfile.TemporaryDirectory(prefix="site-looks-") as name:
        site = built_site(Path(name) / "site")
        # Only a server shows 404.html: its links begin at the root.
        every = (one for one in sorted(site.rglob("*.html")) if one.name != "404.html")
        pages = [site / one for one in names] or list(every)
        for found in looks(installed(Path(name)), pages):
            shown += 1
            for complaint in complaints(found):
                print(f"{found['url']}, {found['width']} px, {found['scheme']}: {complaint}")
                wrong += 1
    print(f"{shown} looks, {wrong} complaints")
    return int(wrong > 0)


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main(sys.argv[1:]))
