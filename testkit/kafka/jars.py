"""Location of Kafka's jars: the oracle for our files, and the source of the message definitions."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import zlib
from functools import cache
from pathlib import Path

ORACLE = "4.4.0"
"""The Kafka release to be compatible with."""
PREVIOUS = "4.3.1"
"""The release before it: for upgrades, mixed clusters, and its metadata shell."""
POM = Path(__file__).with_name("pom.xml")
STORE = Path(__file__).with_name("FolderStore.java")
SHELL_VERSIONS = frozenset({PREVIOUS})
"""Releases whose metadata shell is on Maven Central; 4.4.0's is not."""
DOWNLOAD_SECONDS = 600


@cache
def kafka_libs(version: str = ORACLE) -> Path | None:
    """Return the folder with a release's jars; None without Java or a way to get the jars.

    `KRAFTBOX_KAFKA_LIBS` (for the previous release `KRAFTBOX_KAFKA_PREVIOUS_LIBS`) names a folder
    to use; otherwise Maven fills one in the user's cache.
    """
    if shutil.which("java") is None:
        return None
    oracle = version == ORACLE
    given = os.environ.get("KRAFTBOX_KAFKA_LIBS" if oracle else "KRAFTBOX_KAFKA_PREVIOUS_LIBS")
    if given:
        return Path(given)
    folder = cache_folder() / f"kafka-{version}"
    if _complete(folder).exists():
        return folder
    return folder if _download(folder, version) else None


@cache
def tiered_store_classes(version: str = ORACLE) -> Path:
    """Return a folder with the compiled store of `tiered_store`, for a release with jars.

    It stays out of the class path, which the archive of classes is made for: brokers load it by
    `remote.log.storage.manager.class.path`.
    """
    folder = cache_folder() / f"store-{version}-{zlib.crc32(STORE.read_bytes()):08x}"
    if not folder.exists():
        cache_folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_folder()) as made:
            compile_java(STORE, Path(made) / "store", version)
            # Another process may have been faster; its folder is not empty, so this one stays out.
            with contextlib.suppress(OSError):
                (Path(made) / "store").rename(folder)
    return folder


def tiered_store(folder: Path, version: str = ORACLE) -> dict[str, str]:
    """Return settings of a tier in a folder that all brokers share."""
    return {
        "remote.log.storage.manager.class.name": "FolderStore",
        "remote.log.storage.manager.class.path": f"{tiered_store_classes(version)}/",
        "rsm.config.folder": str(folder),
    }


def cache_folder() -> Path:
    """Return the folder for files that take long to download or to build."""
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache_home / "kraftbox"


def java_program(source: Path, out: Path, version: str = ORACLE) -> list[str]:
    """Return the command that runs a program of one source file against a release's jars.

    It is compiled into `out`.
    """
    compile_java(source, out, version)
    class_path = os.pathsep.join([str(out), f"{kafka_libs(version)}/*"])
    return ["java", "-cp", class_path, source.stem]


def compile_java(source: Path, out: Path, version: str = ORACLE) -> None:
    """Compile a source file against a release's jars into `out`.

    The compiler is the one among the jars; for a folder without one, the JDK's.
    """
    libs = kafka_libs(version)
    assert libs is not None
    compiler = next(libs.glob("ecj-*.jar"), None)
    command = ["javac"] if compiler is None else ["java", "-jar", str(compiler), "-17", "-nowarn"]
    out.mkdir(parents=True, exist_ok=True)
    jars = os.pathsep.join(map(str, sorted(libs.glob("*.jar"))))
    subprocess.run([*command, "-cp", jars, "-d", str(out), str(source)], check=True)


def _complete(folder: Path) -> Path:
    """Return the file that marks a complete download of this list of jars."""
    return folder / f"complete-{zlib.crc32(POM.read_bytes()):08x}"


def _download(folder: Path, version: str) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    options = [f"-Dkafka.version={version}", f"-DoutputDirectory={folder}"]
    if version in SHELL_VERSIONS:
        options.append("-Pshell")
    done = _maven("-f", str(POM), "dependency:copy-dependencies", *options)
    if done:
        _complete(folder).touch()
    return done


def _maven(*arguments: str) -> bool:
    maven = shutil.which("mvn")
    if maven is None:
        return False
    command = [maven, "-q", "-B", *arguments]
    return subprocess.run(command, timeout=DOWNLOAD_SECONDS, check=False).returncode == 0
