"""The code for executors in one zip: the audit, `protocol` and `metalog.image`."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("audit", "protocol", "metalog/image")
FILES = ("metalog/__init__.py",)
LEFT_OUT = ("protocol/transport/", "protocol/messages/")
"""Paths that only nodes need."""
_FIRST_DAY_OF_ZIP = (1980, 1, 1, 0, 0, 0)


def shipped_files() -> Iterator[str]:
    """Yield paths below the repository's root, in order."""
    found = list(FILES)
    for package in PACKAGES:
        found += [str(p.relative_to(ROOT)) for p in (ROOT / package).rglob("*.py")]
    yield from sorted(name for name in found if not name.startswith(LEFT_OUT))


def write_package(path: Path) -> Path:
    """Write the zip; equal sources give equal bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name in shipped_files():
            info = zipfile.ZipInfo(name, _FIRST_DAY_OF_ZIP)
            out.writestr(info, (ROOT / name).read_bytes(), zipfile.ZIP_DEFLATED)
    return path


MAIN = """\
# Runs the audit under spark-submit:
#   spark-submit --master URL --py-files {zip} {main} --out DIR [--format html] PATH...
from audit.submit import main

main()
"""


def write_submission(folder: Path) -> tuple[Path, Path]:
    """Write the zip and the script for spark-submit."""
    folder.mkdir(parents=True, exist_ok=True)
    package, script = folder / "kraftbox-audit.zip", folder / "kraftbox_audit.py"
    write_package(package)
    script.write_text(MAIN.format(zip=package.name, main=script.name))
    return package, script
