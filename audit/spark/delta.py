"""Delta tables: whether they can be written, and the Spark settings for them.

The wheel of delta-spark contains only Python. Its Java part is one jar per version of Spark, which
Spark downloads from Maven Central when it starts. So delta-spark must match the installed Spark;
the wheel's metadata names the version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_EXTENSIONS, _CATALOG = "spark.sql.extensions", "spark.sql.catalog.spark_catalog"
_JARS, _PACKAGES = "spark.jars", "spark.jars.packages"
_SCALA = "2.13"

_BOUND = re.compile(r"(<=|<|>=|>|==)\s*(\d+)\.(\d+)")


class NoDelta(Exception):
    """Delta tables cannot be written here; the message has the reason."""


def installed() -> bool:
    """Return whether any version of delta-spark is installed."""
    return _version("delta-spark") is not None


def require() -> None:
    """Raise NoDelta unless delta-spark is installed and matches the installed Spark."""
    delta, spark = _version("delta-spark"), _version("pyspark")
    if delta is None:
        raise NoDelta("Delta tables need delta-spark, which is not installed")
    if spark is None:
        raise NoDelta("Delta tables need pyspark: pip install 'kraftbox[audit]'")
    wanted = [line for line in requires("delta-spark") or () if line.startswith("pyspark")]
    if any(not _fits(spark, line) for line in wanted):
        raise NoDelta(
            f"Delta tables need a delta-spark for Spark {spark}; delta-spark {delta} is for "
            f"{wanted[0]}"
        )


def settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings for Delta, merged with the given ones. Raises NoDelta.

    Jars that are given by name are assumed to include Delta; otherwise Spark downloads it.
    """
    require()
    needed = {_EXTENSIONS: _joined(given.get(_EXTENSIONS), EXTENSION), _CATALOG: CATALOG}
    if _JARS not in given:
        needed[_PACKAGES] = _joined(given.get(_PACKAGES), package())
    return needed


def package() -> str:
    """Return the Maven coordinates of the jar for the installed delta-spark and Spark."""
    major, minor = (_version("pyspark") or "").split(".")[:2]
    return f"io.delta:delta-spark_{major}.{minor}_{_SCALA}:{_version('delta-spark')}"


def is_on(spark: Any) -> bool:
    """Return whether a session was started with Delta, by us or by the submitter."""
    return EXTENSION in spark.conf.get(_EXTENSIONS, "")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _joined(given: str | None, more: str) -> str:
    return f"{given},{more}" if given else more


def _fits(spark: str, requirement: str) -> bool:
    """Compare major and minor version: patches of Spark keep the interfaces that Delta uses."""
    major, minor = map(int, spark.split(".")[:2])
    for sign, *bound in _BOUND.findall(requirement):
        here, there = (major, minor), (int(bound[0]), int(bound[1]))
        if here > there and sign in ("<=", "<", "==") or here < there and sign in (">=", ">", "=="):
            return False
    return True
