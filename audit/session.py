"""Shell: Spark sessions for the audit: local by default, quiet, with our code on every worker."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from audit.spark.java import java_home
from audit.spark.package import write_package

LOGGING = """\
rootLogger.level=error
rootLogger.appenderRef.c.ref=c
appender.c.type=Console
appender.c.name=c
appender.c.target=SYSTEM_ERR
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%p %m (%c)%n
# Spark prints a line about log levels where this one differs from the root's.
logger.g.name=org.apache.spark.api.python.PythonGatewayServer
logger.g.level=error
"""

_JAVA_ERROR = re.compile(r"(: )?(org|java)\.[\w.]*(Exception|Error)")
QUICK_START = "-XX:TieredStopAtLevel=1"
"""The JVM only carries batches from Python to Python: the second compiler would cost more time
than it saves.
"""


class NoSpark(Exception):
    """PySpark is not installed."""


class SparkFailed(Exception):
    """Spark did not start, or one of its tasks failed; the message has the reason."""


def spark_available() -> bool:
    """Return whether the `audit` extra is installed."""
    from importlib.util import find_spec

    return find_spec("pyspark") is not None and find_spec("pyarrow") is not None


def local_master() -> str:
    """Return the Spark master that uses all processors of this machine."""
    return f"local[{os.cpu_count() or 1}]"


@contextmanager
def session(master: str | None = None, settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Yield a SparkSession with the audit's data sources, and stop it at the end.

    `settings` are Spark's own, such as spark.executor.memory. Raises NoSpark, NoJava, and
    SparkFailed for a failure of Spark at the start or in the block.
    """
    if not spark_available():
        raise NoSpark("the audit runs on Spark: pip install 'kraftbox[audit]'")
    with tempfile.TemporaryDirectory(prefix="kraftbox-audit-") as scratch:
        folder = Path(scratch)
        _environment(folder)
        master = master or local_master()
        packages = (settings or {}).get("spark.jars.packages")
        loading = f" with {packages} from Maven Central" if packages else ""
        with spark_failures(f"Spark did not start on {master}{loading}"):
            spark = start(master, folder, settings or {})
        try:
            with spark_failures(f"Spark failed on {master}"):
                yield spark
        finally:
            spark.stop()


@contextmanager
def spark_failures(what: str) -> Iterator[None]:
    """Raise errors of Spark as SparkFailed, with one sentence.

    Spark's own messages are pages of Java's and Python's stacks. The reason is the last line of the
    Python stack, or the first line of all.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise SparkFailed(f"{what}: {_reason(str(error))}") from error


def _reason(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    _, traceback, stack = text.partition("Traceback (most recent call last)")
    if traceback:
        errors = [line for line in stack.splitlines() if line and not line[0].isspace()]
        lines = [line for line in errors if ":" in line] or lines
        return lines[-1]
    found = next((line for line in lines if _JAVA_ERROR.match(line)), lines[0] if lines else "")
    return found.removeprefix(": ")


def _environment(folder: Path) -> None:
    """Set the environment for Spark's start scripts, which run in a separate process."""
    os.environ["JAVA_HOME"] = str(java_home(folder))
    (folder / "log4j2.properties").write_text(LOGGING)
    os.environ["SPARK_CONF_DIR"] = str(folder)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def start(master: str, folder: Path, settings: Mapping[str, str]) -> Any:
    """Return a session on `master`; `folder` is scratch space that outlives it."""
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master(master)
        .appName("kraftbox audit")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.maxResultSize", "0")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.driver.extraJavaOptions", QUICK_START)
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    prepare(spark, folder)
    return spark


def prepare(spark: Any, folder: Path) -> None:
    """Ship our code to the workers and register the data sources."""
    from audit.spark.kraftaudit import KraftAudit
    from audit.spark.kraftlog import KraftLog

    spark.sparkContext.addPyFile(str(write_package(folder / "kraftbox-audit.zip")))
    spark.dataSource.register(KraftLog)
    spark.dataSource.register(KraftAudit)
