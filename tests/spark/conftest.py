"""One Spark session for all of these tests, and the recorded life of a Kafka cluster."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from audit import job
from audit.reading.inputs import read_inputs
from audit.session import NoSpark, session, spark_available
from audit.spark.java import NoJava
from tests.spark.story import RECORDED


def pytest_configure(config: pytest.Config) -> None:
    """Ignore sockets that PySpark leaves open, and deprecated Python features that it uses."""
    for ignored in (
        "ResourceWarning",
        "DeprecationWarning",
        "FutureWarning",
        "pytest.PytestUnraisableExceptionWarning",
    ):
        config.addinivalue_line("filterwarnings", f"ignore::{ignored}")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Start Spark with two local cores, or skip the test."""
    if not spark_available():
        pytest.skip("pyspark is not installed (docs/gaps.md)")
    try:
        with session("local[2]") as running:
            yield running
    except (NoJava, NoSpark) as error:
        pytest.skip(f"{error} (docs/gaps.md)")


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the metadata directories of three Kafka controllers, and truth.json."""
    folder = tmp_path_factory.mktemp("story")
    with tarfile.open(RECORDED) as archive:
        archive.extractall(folder, filter="data")
    return folder / "story"


@pytest.fixture(scope="session")
def truth(story: Path) -> dict[str, Any]:
    return dict(json.loads((story / "truth.json").read_text()))


@pytest.fixture(scope="session")
def audited_story(
    spark: Any, story: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[job.Result, Path]:
    """Return the audit of the story, and the folder of its tables."""
    tables = tmp_path_factory.mktemp("tables")
    return job.run(read_inputs([story]), spark, tables=tables), tables
