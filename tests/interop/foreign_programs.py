"""Clients in other languages, built once for all tests that run them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from testkit.kafka.jars import ORACLE

HERE = Path(__file__).parent
BUILD_TIMEOUT_S = 300
RUN_TIMEOUT_S = 150
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a JVM that lives for seconds."""


def need(*programs: str) -> None:
    """Skip the group if a program is missing."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)} (docs/gaps.md)")


def run(*command: str | Path, cwd: Path = HERE, timeout_s: float = RUN_TIMEOUT_S) -> str:
    """Return a command's output. Fails if its exit code is not 0."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def build_franz_go(place: Path) -> list[str]:
    """Return the command; its arguments are HOST:PORT, a prefix of names, and the operation."""
    need("go")
    program = place / "scenario"
    run("go", "build", "-o", program, ".", cwd=HERE / "go", timeout_s=BUILD_TIMEOUT_S)
    return [str(program)]


def build_kafkajs(place: Path) -> list[str]:
    """Build the kafkajs program and return its command, as `build_franz_go` does."""
    need("node", "npm")
    for name in ("package.json", "package-lock.json", "scenario.js"):
        shutil.copy(HERE / "node" / name, place)
    run("npm", "ci", "--no-audit", "--no-fund", cwd=place, timeout_s=BUILD_TIMEOUT_S)
    return ["node", str(place / "scenario.js")]


def build_java_client(place: Path) -> list[str]:
    """Build the Java program and return its command, as `build_franz_go` does."""
    need("java", "mvn")
    copy = ["dependency:copy-dependencies", f"-DoutputDirectory={place}"]
    copy.append(f"-Dkafka.version={ORACLE}")
    pom = HERE / "java" / "pom.xml"
    run("mvn", "-q", "-B", "-f", pom, *copy, timeout_s=BUILD_TIMEOUT_S)
    jars = sorted(place.glob("*.jar"))
    compiler = next(jar for jar in jars if jar.name.startswith("ecj-"))
    class_path = os.pathsep.join(map(str, jars))
    source = HERE / "java" / "Scenario.java"
    run("java", "-jar", compiler, "-17", "-nowarn", "-cp", class_path, "-d", place / "out", source)
    return [
        "java",
        *QUICK_START,
        "-cp",
        os.pathsep.join([str(place / "out"), class_path]),
        "Scenario",
    ]
