"""Location of Kafka's jars: the oracle for our files, and the source of the message definitions."""

from __future__ import annotations

import os
import shutil
import subprocess
import zlib
from functools import cache
from pathlib import Path

ORACLE = "4.4.0"
"""The Kafka release to be compatible with."""
KAFKA_VERSION = "4.3.1"
"""The release before, which most interop tests still run."""
POM = Path(__file__).with_name("pom.xml")
SHELL_VERSIONS = frozenset({KAFKA_VERSION})
"""Releases whose metadata shell is on Maven Central; 4.4.0's is not."""
DOWNLOAD_SECONDS = 600


@cache
def kafka_libs(version: str = KAFKA_VERSION) -> Path | None:
    """Return the folder with a release's jars; None without Java or a way to get the jars.

    `KRAFTBOX_KAFKA_LIBS` (for the oracle `KRAFTBOX_KAFKA_ORACLE_LIBS`) names a folder to use;
    otherwise Maven fills one in the user's cache.
    """
    if shutil.which("java") is None:
        return None
    oracle = version == ORACLE
    given = os.environ.get("KRAFTBOX_KAFKA_ORACLE_LIBS" if oracle else "KRAFTBOX_KAFKA_LIBS")
    if given:
        return Path(given)
    folder = cache_folder() / f"kafka-{version}"
    if _complete(folder).exists():
        return folder
    return folder if _download(folder, version) else None


@cache
def tiered_store_jar() -> Path | None:
    """Return the jar of Kafka's tests that has LocalTieredStorage; None without a way to get it.

    It stays out of the class path, which the archive of classes is made for: brokers load it by
    `remote.log.storage.manager.class.path`.
    """
    libs, name = kafka_libs(), f"kafka-storage-{KAFKA_VERSION}-test.jar"
    if libs is None:
        return None
    for jar in (libs / name, cache_folder() / name):
        if jar.exists():
            return jar
    artifact = f"org.apache.kafka:kafka-storage:{KAFKA_VERSION}:jar:test"
    given = [f"-Dartifact={artifact}", f"-DoutputDirectory={cache_folder()}"]
    done = _maven("dependency:copy", *given)
    return cache_folder() / name if done else None


def tiered_store(jar: Path, folder: Path) -> dict[str, str]:
    """Return settings of a store in a folder shared by all brokers, from Kafka's own tests."""
    return {
        "remote.log.storage.manager.class.name": (
            "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
        ),
        "remote.log.storage.manager.class.path": str(jar),
        "rsm.config.dir": str(folder),
    }


def cache_folder() -> Path:
    """Return the folder for files that take long to download or to build."""
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache_home / "kraftbox"


def java_program(source: Path, out: Path, version: str = KAFKA_VERSION) -> list[str]:
    """Return the command that runs a program of one source file against a release's jars.

    It is compiled into `out` with the compiler among the jars; in a folder without one, Java runs
    the source file, which needs a JDK.
    """
    libs = kafka_libs(version)
    assert libs is not None
    class_path = str(libs / "*")
    compiler = next(libs.glob("ecj-*.jar"), None)
    if compiler is None:
        return ["java", "-cp", class_path, str(source)]
    jars = os.pathsep.join(map(str, sorted(libs.glob("*.jar"))))
    compile_it = ["java", "-jar", str(compiler), "-17", "-nowarn", "-cp", jars, "-d", str(out)]
    subprocess.run([*compile_it, str(source)], check=True)
    return ["java", "-cp", os.pathsep.join([str(out), class_path]), source.stem]


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
