"""`kraftbox audit` without Spark: refusals, time travel, the package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from audit import session
from audit.planning.engine import HERE_BYTES_MAX, is_for_spark
from audit.reading.inputs import read_inputs
from audit.reading.logs import UnreadableInput, find_logs
from audit.session import spark_failures
from audit.spark.package import shipped_files, write_package
from audit.time_travel import BadMoment, cluster_at, parse_moment
from kraftbox.chaos.history import History, save
from kraftbox.cli import audit as command
from kraftbox.cli.main import main
from protocol.batch.records import Record, build_batch
from testkit.records.metadata_logs import LogBuilder

WORKER_DIED = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
OSError: [Errno 5] Input/output error

    at org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
"""


def log_of(tmp_path: Path, cluster: str = "audited-cluster", node: int = 101) -> Path:
    builder = LogBuilder().begin()
    builder.topic()
    path = builder.write(tmp_path, node)
    meta = path.parent / "meta.properties"
    meta.write_text(f"cluster.id={cluster}\nnode.id={node}\n")
    return path


def test_a_path_that_is_missing_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(tmp_path / "nothing")]) == 2
    assert "nothing does not exist" in capsys.readouterr().err


def test_a_folder_without_metadata_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(tmp_path)]) == 2
    assert "no __cluster_metadata-0 directory" in capsys.readouterr().err


def test_a_file_in_the_place_of_a_folder_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment = log_of(tmp_path) / f"{0:020d}.log"
    assert main(["audit", str(segment)]) == 2
    assert f"{segment} is no directory" in capsys.readouterr().err


def test_the_log_of_a_topic_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its segments have the same names, as does a renamed copy of a metadata log."""
    partition = tmp_path / "orders-0"
    partition.mkdir()
    records = [Record(timestamp=1, value=b"no metadata")]
    (partition / f"{0:020d}.log").write_bytes(build_batch(records, 0))
    assert main(["audit", str(partition)]) == 2
    assert f"{partition} holds records of a topic" in capsys.readouterr().err
    renamed = log_of(tmp_path).rename(tmp_path / "copy-of-101")
    assert [log.path for log in find_logs([renamed])] == [str(renamed)]


def test_a_file_that_cannot_be_opened_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (log_of(tmp_path) / f"{7:020d}.log").mkdir()
    assert main(["audit", str(tmp_path)]) == 2
    assert f"{7:020d}.log cannot be read: Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--at", "1000"],
            "offset 1000 is not in {tmp}/node-101/__cluster_metadata-0, which ends at",
        ),
        (["--at", "2020-01-01T00:00:00"], "2020-01-01T00:00:00 is before the first record of"),
        (["--at", "yesterday"], "neither an offset nor epoch milliseconds nor ISO 8601"),
        (["--history", "{tmp}/none.kbxh"], "none.kbxh: No such file or directory"),
        (["--history", "{tmp}/empty.kbxh"], "is no history file"),
        (["--history", "{tmp}/whole.kbxh"], "name their log directories"),
        (["--data", "{tmp}/none"], "none does not exist"),
        (["--out", "{tmp}/empty.kbxh"], "empty.kbxh: File exists"),
        (["--conf", "executor.memory=1g"], "expected spark.KEY=VALUE"),
        (["--min-isr", "0"], "Invalid value for '--min-isr'"),
        (["--format", "pdf"], "'pdf' is not one of 'text', 'json', 'html'"),
        (["--table-format", "delta", "--out", "{tmp}/out"], "delta-spark, which is not installed"),
        (["--engine", "here", "--master", "local[1]"], "--master needs Spark: leave it out"),
        (["--engine", "here", "--conf", "spark.x=1"], "--conf needs Spark: leave it out"),
        (["--engine", "flink"], "'flink' is not one of 'auto', 'here', 'spark'"),
        (["--table-format", "csv"], "'csv' is not one of 'auto', 'parquet', 'delta'"),
    ],
)
def test_audit_refuses_impossible_arguments_before_spark_starts(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    def spark_starts(*_: object) -> None:
        raise AssertionError("Spark starts")

    monkeypatch.setattr("audit.session.session", spark_starts)
    monkeypatch.setattr("audit.spark.delta._version", lambda name: None)
    (tmp_path / "empty.kbxh").touch()
    save(tmp_path / "whole.kbxh", History())
    log = log_of(tmp_path)
    given = [argument.format(tmp=tmp_path) for argument in arguments]
    assert main(["audit", str(log), *given]) == 2
    assert said.format(tmp=tmp_path) in " ".join(capsys.readouterr().err.replace("│", "").split())


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide PySpark and PyArrow, as after a plain `pip install kraftbox`."""
    for name in ("pyspark", "pyarrow", "py4j"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(session, "spark_available", lambda: False)


@pytest.mark.usefixtures("without_spark")
def test_0_when_every_promise_holds_and_1_when_one_is_broken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(log_of(tmp_path / "whole"))]) == 0
    assert capsys.readouterr().out.endswith("\nevery promise holds and nothing was lost\n")
    builder = LogBuilder().begin()
    builder.topic()
    builder.fence(3)
    broken = str(builder.write(tmp_path / "broken"))
    assert main(["audit", broken]) == 1
    assert capsys.readouterr().out.endswith(
        "\nBROKEN: a promise was broken; findings that say so: 1\n"
    )
    assert main(["audit", broken, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["check"] == "fenced-in-isr"
    assert main(["audit", broken, "--format", "html"]) == 1
    assert capsys.readouterr().out.startswith("<!doctype html>")


@pytest.mark.usefixtures("without_spark")
def test_0_with_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The start of the log is gone, and no snapshot covers it."""
    builder = LogBuilder().begin()
    builder.topic()
    log = builder.write(tmp_path, batches=builder.batches[1:])
    (log / f"{0:020d}.log").rename(log / f"{builder.base_offsets[1]:020d}.log")
    assert main(["audit", str(log)]) == 0
    assert capsys.readouterr().out.endswith(
        "\nevery promise holds and nothing was lost from offset 1 on, warnings: 1\n"
    )


@pytest.mark.usefixtures("without_spark")
def test_0_after_a_crash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A torn end is the effect of a crash, and a start truncates it: it is no warning."""
    log = log_of(tmp_path)
    segment = log / f"{0:020d}.log"
    segment.write_bytes(segment.read_bytes()[:-5])
    assert main(["audit", str(log)]) == 0
    told = capsys.readouterr().out
    assert told.endswith("\nevery promise holds and nothing was lost\n")
    assert "\n  truncated-tail: the log ends in the middle of a batch" in told


@pytest.mark.usefixtures("without_spark")
def test_out_gets_every_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "made" / "report"
    assert main(["audit", str(log_of(tmp_path)), "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["audit.html", "audit.json", "audit.txt"]
    printed = capsys.readouterr()
    assert printed.out == f"every promise holds and nothing was lost\n{out / 'audit.txt'}\n"
    assert "no tables written: they need Spark" in printed.err


@pytest.mark.usefixtures("without_spark")
def test_spark_that_is_named_must_be_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(log_of(tmp_path))
    for asked in (["--engine", "spark"], ["--master", "local[1]"]):
        assert main(["audit", log, *asked]) == 2
        assert "pip install 'kraftbox[audit]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("size_bytes", "given", "spark"),
    [
        (HERE_BYTES_MAX, {}, False),
        (HERE_BYTES_MAX + 1, {}, True),
        (HERE_BYTES_MAX + 1, {"installed": False}, False),
        (1, {"tables": True}, True),
        (1, {"tables": True, "installed": False}, False),
        (1, {"requested": True, "installed": False}, True),
    ],
)
def test_is_for_spark_depends_on_size_tables_and_the_request(
    size_bytes: int, given: dict[str, bool], spark: bool
) -> None:
    options = {"tables": False, "requested": False, "installed": True} | given
    assert is_for_spark(size_bytes, **options) is spark


def test_the_size_of_an_audit_is_that_of_its_segments(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    segments = sum(path.stat().st_size for path in log.glob("*.log"))
    assert read_inputs([log]).size_bytes == segments > 0


def test_spark_that_fails_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, not 1: the promises were not checked."""

    errors = pytest.importorskip("pyspark.errors", reason="pyspark is missing (docs/gaps.md)")

    def by_spark(*_: object) -> None:
        with spark_failures("Spark failed on local[2]"):
            raise errors.PySparkException(WORKER_DIED)

    monkeypatch.setattr(command, "_by_spark", by_spark)
    assert main(["audit", str(log_of(tmp_path)), "--engine", "spark"]) == 2
    assert capsys.readouterr().err == (
        "kraftbox: Spark failed on local[2]: OSError: [Errno 5] Input/output error\n"
    )


def test_two_clusters_at_once_are_refused(tmp_path: Path) -> None:
    log_of(tmp_path, "one", 1)
    log_of(tmp_path, "two", 2)
    with pytest.raises(UnreadableInput, match="of 2 clusters"):
        find_logs([tmp_path])


def test_find_logs_reads_a_cluster_id_as_both_servers_do(tmp_path: Path) -> None:
    """Kafka escapes blanks and colons where we do not; both logs are of one cluster."""
    log_of(tmp_path, r"a\:b \u00fc\ud83d\ude00", 1)
    log_of(tmp_path, "a:b \\u00FC\\ud83d\\ude00\r", 2)
    assert {log.cluster_id for log in find_logs([tmp_path])} == {"a:b \u00fc\U0001f600"}


def test_an_empty_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "__cluster_metadata-0").mkdir()
    with pytest.raises(UnreadableInput, match="neither segments .* nor snapshots"):
        find_logs([tmp_path])


def test_time_travel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = LogBuilder().begin()
    created = builder.topic()
    builder.snapshot()
    moved = builder.fence(1, builder.change(isr=[2, 3], leader=2))
    when = builder.now_ms
    builder.unfence(1)
    log = builder.write(tmp_path)
    before = cluster_at([log], str(created + 1))
    assert before["topics"][0]["partitions"][0]["leader"] == 1
    assert cluster_at([log], str(created - 1))["topics"] == []
    for text in (str(moved + 1), str(when)):
        then = cluster_at([log], text)
        assert then["topics"][0]["partitions"][0]["leader"] == 2
        assert [b["fenced"] for b in then["brokers"]] == [True, False, False]
    assert main(["audit", str(log), "--at", str(moved + 1), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == cluster_at([log], str(moved + 1))
    assert main(["audit", str(log), "--at", str(moved + 1)]) == 0
    assert "broker 1 fenced" in capsys.readouterr().out


def test_moments() -> None:
    assert parse_moment("17") == (17, None)
    assert parse_moment("1795274821505") == (None, 1795274821505)
    assert parse_moment("2026-05-01T12:00:00+02:00") == (None, 1777629600000)
    with pytest.raises(BadMoment, match="neither an offset"):
        parse_moment("yesterday")


def test_executors_get_the_audit_protocol_and_the_image_only() -> None:
    tops = {"/".join(name.split("/")[:2]) for name in shipped_files() if name.startswith("metalog")}
    assert tops == {"metalog/__init__.py", "metalog/image"}
    assert {name.split("/")[0] for name in shipped_files()} == {"audit", "metalog", "protocol"}


NEEDS_PYSPARK = {
    "audit/spark/execution.py",
    "audit/spark/kraftaudit.py",
    "audit/spark/kraftlog.py",
}


def test_the_package_is_enough_to_replay(tmp_path: Path) -> None:
    """Only the zip with our modules is on the path, and every module in it can be imported."""
    package = write_package(tmp_path / "package.zip")
    log = log_of(tmp_path)
    modules = [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in shipped_files()
        if name not in NEEDS_PYSPARK
    ]
    program = (
        "import sys, importlib\n"
        f"sys.path = [{str(package)!r}] + [p for p in sys.path if p != {str(Path.cwd())!r}]\n"
        f"modules = {modules!r}\n"
        "spark = importlib.util.find_spec('pyarrow') is not None\n"
        "for name in modules:\n"
        "    if spark or name != 'audit.spark.rows':\n"
        "        importlib.import_module(name)\n"
        "import audit.tasks.interval as i, audit.planning.intervals as p\n"
        "import audit.reading.logs as l, audit.findings.sink as s\n"
        "import pathlib\n"
        f"assert i.__file__.startswith({str(package)!r}), i.__file__\n"
        f"log = l.read_listing(pathlib.Path({str(log)!r}))\n"
        "sink = s.Sink()\n"
        "for interval in p.plan_intervals(log): i.IntervalAudit(interval, sink).run()\n"
        "print(len(sink.findings))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", "import importlib.util\n" + program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0\n"
