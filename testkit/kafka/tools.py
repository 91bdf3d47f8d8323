"""Kafka's command-line classes, many of them in one JVM: most are quicker than a start of Java."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from testkit.kafka.jars import ORACLE, java_program

SOURCE = Path(__file__).with_name("Tools.java")
PATIENCE_MS = 60_000

DID_NOT_END = -1
"""Exit code of a tool that still ran after its timeout and its shutdown hooks."""

LOGGING = """\
rootLogger.level=error
rootLogger.appenderRef.c.ref=c
appender.c.type=Console
appender.c.name=c
appender.c.target=SYSTEM_ERR
appender.c.follow=true
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%p %m (%c)%n
"""


class ToolRun(NamedTuple):
    """The result of a tool: its exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


class KafkaTools:
    """One JVM that runs classes in turn. Use it in a `with`."""

    def __init__(
        self,
        folder: Path,
        *,
        source: Path = SOURCE,
        properties: Mapping[str, str] | None = None,
        version: str = ORACLE,
    ) -> None:
        """`folder` receives the compiled runner; `properties` are the JVM's system properties;
        `version` is the release of Kafka."""
        folder.mkdir(parents=True, exist_ok=True)
        logging = folder / "log4j2.properties"
        logging.write_text(LOGGING)
        given = {"log4j2.configurationFile": str(logging), **(properties or {})}
        java, *rest = java_program(source, folder, version)
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        options.append("--add-opens=java.base/java.lang=ALL-UNNAMED")
        options += [f"-D{name}={value}" for name, value in given.items()]
        self._errors = folder / "jvm.err"
        with open(self._errors, "wb") as errors:
            self._process = subprocess.Popen(
                [java, *options, *rest],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
            )

    def __enter__(self) -> KafkaTools:
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def run(
        self, name: str, *arguments: str, stdin: str = "", patience_ms: int = PATIENCE_MS
    ) -> ToolRun:
        """Run the class to its end, or for `patience_ms`, and then end it as Ctrl-C would."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        fields = [stdin, str(patience_ms), name, *arguments]
        self._process.stdin.write(" ".join(map(_encode, fields)) + "\n")
        self._process.stdin.flush()
        reply = self._process.stdout.readline()
        assert reply.endswith("\n"), f"the JVM ended in {name}: {self._errors.read_text()[-4000:]}"
        code, out, err = reply[:-1].split(" ")
        return ToolRun(int(code), _decode(out), _decode(err))


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decode(text: str) -> str:
    return base64.b64decode(text).decode(errors="replace")
