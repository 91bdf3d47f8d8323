"""Support for Delta tables, and the resulting Spark options."""

from __future__ import annotations

import pytest

from audit.spark import delta

FOR_SPARK_4 = ["importlib_metadata<=8.7.1,>=1.0.0", "pyspark<=4.2.0,>=4.0.1"]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Let packages be installed in these versions."""
    versions = {"delta-spark": "4.4.0", "pyspark": "4.2.0"}
    monkeypatch.setattr(delta, "_version", versions.get)
    monkeypatch.setattr(delta, "requires", lambda name: FOR_SPARK_4)
    return versions


@pytest.mark.parametrize("spark", ["4.0.1", "4.1.4", "4.2.0", "4.2.1"])
def test_a_delta_that_goes_with_spark(installed: dict[str, str], spark: str) -> None:
    installed["pyspark"] = spark
    delta.require()


@pytest.mark.parametrize("spark", ["3.5.8", "4.3.0", "5.0.0"])
def test_a_delta_that_does_not_is_named(installed: dict[str, str], spark: str) -> None:
    installed["pyspark"] = spark
    said = f"need a delta-spark for Spark {spark}; delta-spark 4.4.0 is for pyspark<=4.2.0,>=4.0.1"
    with pytest.raises(delta.NoDelta, match=said):
        delta.require()


def test_no_delta_at_all(installed: dict[str, str]) -> None:
    del installed["delta-spark"]
    assert not delta.installed()
    with pytest.raises(delta.NoDelta, match="delta-spark, which is not installed"):
        delta.settings({})


def test_spark_loads_the_jar_for_its_version(installed: dict[str, str]) -> None:
    assert delta.settings({})["spark.jars.packages"] == "io.delta:delta-spark_4.2_2.13:4.4.0"


def test_delta_settings_keep_configured_extensions_and_packages(installed: dict[str, str]) -> None:
    given = {"spark.sql.extensions": "a.B", "spark.jars.packages": "c:d:1"}
    told = delta.settings(given)
    assert told["spark.sql.extensions"] == f"a.B,{delta.EXTENSION}"
    assert told["spark.jars.packages"] == "c:d:1,io.delta:delta-spark_4.2_2.13:4.4.0"
    assert "spark.jars.packages" not in delta.settings({"spark.jars": "/jars/delta.jar"})
