"""The Java runtime and options of the Spark process."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from audit.spark import java


def fake_java(folder: Path, version: str) -> Path:
    """Write a program that prints its version on request, else its arguments, one per line."""
    program = folder / "bin/java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 && exit 0\n'
        'printf "%s\\n" "$@"\n'
    )
    program.chmod(0o755)
    return folder


def test_the_named_java_is_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", "17.0.15")))
    home = java.java_home(tmp_path / "scratch")
    arguments = ["-cp", "a b:c", "--add-modules=jdk.incubator.vector", "", "Main", "$x 'y'"]
    told = subprocess.run(
        [home / "bin/java", *arguments], capture_output=True, text=True, check=True
    )
    assert told.stdout.split("\n") == ["-cp", "a b:c", "", "Main", "$x 'y'", ""]


def test_an_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "new", "21.0.1") / "bin"))
    wrapper = java.java_home(tmp_path / "scratch") / "bin/java"
    assert str(tmp_path / "new/bin/java") in wrapper.read_text()


def test_java_home_without_java_names_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "_bundled", lambda: None)
    with pytest.raises(java.NoJava, match=r"pip install 'kraftbox\[audit\]'"):
        java.java_home(tmp_path)
