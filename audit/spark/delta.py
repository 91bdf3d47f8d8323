"""Delta tables: whether they can be written here, and the settings of Spark that they need.

delta-spark's wheel is Python alone. Its Java part is one jar per version of Spark, which Spark gets
from Maven Central when it starts; so a delta-spark that is not made for the installed Spark cannot
be used, and the wheel says which it is made for.
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
    """Delta tables cannot be written here; the message says why."""


def installed() -> bool:
    """Whether there is a delta-spark of whatever version."""
    return _version("delta-spark") is not None


def require() -> None:
    """Raises NoDelta unless there is a delta-spark that goes with the installed Spark."""
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
    """Spark's settings for Delta, with regard to the given ones. Jars that are given by name are
    taken to have Delta among them; otherwise Spark loads it. Raises NoDelta."""
    require()
    needed = {_EXTENSIONS: _joined(given.get(_EXTENSIONS), EXTENSION), _CATALOG: CATALOG}
    if _JARS not in given:
        needed[_PACKAGES] = _joined(given.get(_PACKAGES), package())
    return needed


def package() -> str:
    """The Maven coordinates of the jar that goes with the installed delta-spark and Spark."""
    major, minor = (_version("pyspark") or "").split(".")[:2]
    return f"io.delta:delta-spark_{major}.{minor}_{_SCALA}:{_version('delta-spark')}"


def is_on(spark: Any) -> bool:
    """Whether a session was started with Delta, by us or by who submits."""
    return EXTENSION in spark.conf.get(_EXTENSIONS, "")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _joined(given: str | None, more: str) -> str:
    return f"{given},{more}" if given else more


def _fits(spark: str, requirement: str) -> bool:
    """By major and minor version: patches of Spark keep what Delta builds on."""
    major, minor = map(int, spark.split(".")[:2])
    for sign, *bound in _BOUND.findall(requirement):
        here, there = (major, minor), (int(bound[0]), int(bound[1]))
        if here > there and sign in ("<=", "<", "==") or here < there and sign in (">=", ">", "=="):
            return False
    return True
