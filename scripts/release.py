"""Build a release in `dist/` and check it as a user would install it: `make release`.

    KRAFTBOX_HOME=https://... python scripts/release.py [--without-image]

The release has an sdist, a wheel, an SBOM and the changes of this version. The SBOM (CycloneDX) is
of an environment with only the wheel and its dependencies. The wheel is installed into a fresh
environment, and a node is started there, written to and read from. Nothing is uploaded. Exit code
1: a check failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
TOOLS = ("build", "twine", "cyclonedx-bom")
LINK = re.compile(r"\]\(([^)]+)\)")


class NotReady(Exception):
    """The reason why this version cannot be released."""


def changes_of(version: str, changelog: str) -> str:
    """Return the changelog section of one version. Raises: NotReady if it is missing or empty."""
    found = re.search(
        rf"^## {re.escape(version)}(?![.\w]).*?(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    if found is None or not found[0].partition("\n")[2].strip():
        raise NotReady(f"CHANGELOG.md has no section for {version}")
    return found[0].strip() + "\n"


def check_metadata(text: str, version: str) -> None:
    """Check the metadata that a package index shows: project URLs, and absolute links only.

    Raises: NotReady for another version, a missing URL or a relative link.
    """
    fields = Parser().parsestr(text)
    if fields["Version"] != version:
        raise NotReady(
            f"package version {fields['Version']} differs from {version} in pyproject.toml"
        )
    names = [line.partition(",")[0] for line in fields.get_all("Project-URL", [])]
    if not {"Homepage", "Issues", "Changelog"} <= set(names):
        raise NotReady(f"project URLs: {', '.join(names) or 'none'}")
    relative = [one for one in LINK.findall(str(fields.get_payload())) if "://" not in one]
    if relative:
        raise NotReady(f"links of the README that lead nowhere on an index: {', '.join(relative)}")


def run(*command: object, **environ: str) -> str:
    """Run a command and return its output.

    Raises: NotReady with the command's output if it fails.
    """
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotReady(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(place: Path, *packages: object) -> Path:
    """Create an environment with these packages. Returns: its bin folder."""
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return place / "bin"


def build(tools: Path, version: str) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it, and check their contents.

    Raises: NotReady if a needed file is missing.
    """
    shutil.rmtree(DIST, ignore_errors=True)
    run(tools / "python", "-m", "build", "--outdir", DIST, ROOT)
    sdist, wheel = DIST / f"kraftbox-{version}.tar.gz", next(DIST.glob("*.whl"))
    run(tools / "twine", "check", "--strict", sdist, wheel)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        check_metadata(archive.read(metadata).decode(), version)
    for needed in ("kraftbox/py.typed", "kraftbox/_root/broker/__init__.py"):
        if needed not in names:
            raise NotReady(f"{wheel.name} has no {needed}")
    with tarfile.open(sdist) as archive:
        inside = archive.getnames()
    for needed in ("LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md", "tests/conftest.py"):
        if f"kraftbox-{version}/{needed}" not in inside:
            raise NotReady(f"{sdist.name} has no {needed}")
    return sdist, wheel


def try_out(bin_folder: Path, version: str, place: Path) -> None:
    """Start a node from the installed wheel, create a topic, and produce and consume one record."""
    kraftbox = bin_folder / "kraftbox"
    if run(kraftbox, "--version").strip() != f"kraftbox {version}":
        raise NotReady(f"`kraftbox --version` does not print {version}")
    run(bin_folder / "python", "-m", "pip", "check")
    run(kraftbox, "up", "--detach", "--dir", place, "--port", "0")
    try:
        node = json.loads(run(kraftbox, "status", "--json", "--dir", place))["nodes"][0]
        address = re.search(r"PLAINTEXT://([^,]+)", node["listeners"])
        assert address is not None, "every broker has such a listener"
        at = ("--bootstrap-server", address[1])
        run(kraftbox, "topics", "create", "released", *at)
        lines = place / "lines"
        lines.write_text("it works\n")
        run("sh", "-c", f'"$0" produce released -b {address[1]} < "$1"', kraftbox, lines)
        read = run(kraftbox, "consume", "released", "--from-beginning", "-n", "1", *at)
        if read != "it works\n":
            raise NotReady(f"cannot read back the record: got {read!r}")
    finally:
        run(kraftbox, "down", "--dir", place)


def docker_answers() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def release(home: str, with_image: bool) -> None:
    """Build and check all artifacts and print their names. Raises: NotReady if a check fails."""
    if not re.fullmatch(r"https://[^\s/]+/\S+", home):
        raise NotReady(
            "KRAFTBOX_HOME: the address of the repository, as https://host/owner/kraftbox; the "
            "package's URLs and the links of its README lead there"
        )
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    changes = changes_of(version, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="kraftbox-release-") as scratch:
        place = Path(scratch)
        tools = environment(place / "tools", "--constraint", ROOT / "constraints.txt", *TOOLS)
        sdist, wheel = build(tools, version)
        clean = environment(place / "clean", wheel)
        try_out(clean, version, place / "data")
        # A new environment has pip, which is not part of the release.
        run(clean / "python", "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools", "pip")
        sbom = DIST / f"kraftbox-{version}.cdx.json"
        run(
            *(tools / "cyclonedx-py", "environment", clean / "python", "--output-reproducible"),
            *("--pyproject", ROOT / "pyproject.toml", "--output-file", sbom),
        )
        names = {one["name"] for one in json.loads(sbom.read_text())["components"]}
        if not {"msgpack", "structlog", "h11"} <= names:
            raise NotReady(f"{sbom.name} names only {', '.join(sorted(names))}")
    notes = DIST / f"kraftbox-{version}.changes.md"
    notes.write_text(changes, encoding="utf-8")
    made = [str(path.relative_to(ROOT)) for path in (sdist, wheel, sbom, notes)]
    if with_image and docker_answers():
        tag = f"kraftbox:{version}"
        run("sh", "deploy/build-image.sh", tag, PYTHON=sys.executable)
        made.append(f"image {tag}")
    else:
        made.append("no image: Docker is disabled or does not answer")
    print("\n".join(made))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--without-image", action="store_true")
    options = parser.parse_args(arguments)
    try:
        release(os.environ.get("KRAFTBOX_HOME", "").rstrip("/"), not options.without_image)
    except NotReady as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
