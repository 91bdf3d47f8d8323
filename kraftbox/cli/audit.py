"""`kraftbox audit`: a cluster's history, from copies of its metadata log."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kraftbox.cli.output import JsonFlag, say, say_error, say_json, say_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from audit.reading.inputs import Inputs

IMPOSSIBLE = 2

JSON_NAME, HTML_NAME, TEXT_NAME = "audit.json", "audit.html", "audit.txt"


class Engine(StrEnum):
    """The engine of the audit. AUTO: see `audit.planning.engine`."""

    AUTO = "auto"
    HERE = "here"
    SPARK = "spark"


class TableFormat(StrEnum):
    """The format of the tables.

    AUTO is Delta if a delta-spark is installed that matches Spark, otherwise Parquet.
    """

    AUTO = "auto"
    PARQUET = "parquet"
    DELTA = "delta"


class Format(StrEnum):
    """The format on standard output; --out writes all formats."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"


EngineOption = Annotated[
    Engine,
    typer.Option(
        "--engine",
        help=(
            "Program that reads the logs. here: this command alone, without tables; "
            "spark: needs kraftbox[audit]; auto: Spark for tables, --master, "
            "--conf, --table-format, or logs of more than 1 GiB."
        ),
    ),
]
MasterOption = Annotated[
    str | None, typer.Option("--master", help="URL of the Spark master; default: local.")
]
ConfOption = Annotated[
    list[str], typer.Option("--conf", metavar="KEY=VALUE", help="Set a Spark property; repeatable.")
]
TableFormatOption = Annotated[
    TableFormat,
    typer.Option(
        "--table-format",
        help=(
            "Format of the tables. auto: Delta if a matching delta-spark "
            "is installed, otherwise Parquet."
        ),
    ),
]


PathsOption = Annotated[
    list[Path],
    typer.Argument(
        help="A __cluster_metadata-0 directory, or a folder that contains some.",
        metavar="PATH...",
    ),
]
DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        envvar="KRAFTBOX_DIR",
        metavar="FOLDER",
        help="Directory of a local cluster, instead of PATH.",
    ),
]
HistoryOption = Annotated[
    list[Path],
    typer.Option("--history", help="Check this client history too (docs/chaos.md); repeatable."),
]
DataOption = Annotated[
    list[Path],
    typer.Option("--data", help="Compare the replicas in this broker log directory; repeatable."),
]
AtOption = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="OFFSET|TIME", help="Print the state of the cluster at this time."
    ),
]
MinIsrOption = Annotated[
    int,
    typer.Option(
        "--min-isr",
        help="min.insync.replicas of topics for which the metadata log has none.",
        min=1,
    ),
]
PackageOption = Annotated[
    Path | None,
    typer.Option("--package", help="Write the zip file for spark-submit to this folder and exit."),
]


def audit(
    context: typer.Context,
    paths: PathsOption = [],
    directory: DirectoryOption = None,
    history: HistoryOption = [],
    data: DataOption = [],
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the reports and the tables to this folder.")
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="Format on standard output.")
    ] = Format.TEXT,
    as_json: JsonFlag = False,
    at: AtOption = None,
    engine: EngineOption = Engine.AUTO,
    master: MasterOption = None,
    conf: ConfOption = [],
    min_isr: MinIsrOption = 1,
    elections_max: Annotated[
        int, typer.Option(help="List at most N clean elections.", min=0)
    ] = 100_000,
    no_tables: Annotated[
        bool, typer.Option("--no-tables", help="With --out: write the reports, no tables.")
    ] = False,
    table_format: TableFormatOption = TableFormat.AUTO,
    package: PackageOption = None,
) -> None:
    """Replay metadata logs, of Kraftbox or Apache Kafka, and report the cluster's history.

    Exit code 0: every promise holds and nothing was lost; 1: a promise is broken; 2: the audit
    failed, because the input cannot be read, Spark or Java is missing or fails, or an option is
    wrong; 3: not judged, because the log uses a feature level of a later release; 4: every promise
    holds, but an election may have lost records.
    """
    from audit.job import exit_code

    form = Format.JSON if as_json else form
    if package is not None:
        _write_package(package, master)
        return
    if paths and directory is not None and not _from_environment(context):
        raise typer.BadParameter("give paths or --dir, not both", param_hint="--dir")
    if not paths and directory is not None:
        paths = [directory]
    if not paths:
        raise typer.BadParameter("name at least one directory", param_hint="PATH...")
    with _possible():
        if at is not None:
            _time_travel(paths, at, form)
            return
        spark = _SparkOptions(master, conf, table_format, tables=out is not None and not no_tables)
        if engine is Engine.HERE and spark.asked_by:
            raise typer.BadParameter(
                f"{spark.asked_by} needs Spark: leave it out, or use --engine spark",
                param_hint="--engine",
            )
        bounds = {"min_isr": min_isr, "elections_max": elections_max}
        result = _run(paths, history, data, out, engine, spark, bounds)
        if out is not None:
            _write(result, out)
        _print(result, form, out)
    code = exit_code(result["summary"])
    if code:
        raise typer.Exit(code)


def _from_environment(context: typer.Context) -> bool:
    """Return whether --dir is the value of KRAFTBOX_DIR, which given paths replace."""
    source: Any = context.get_parameter_source("directory")
    return source is not None and source.name == "ENVIRONMENT"


@contextmanager
def _possible() -> Iterator[None]:
    """Turn errors of an impossible audit into a message and exit code 2."""
    from audit.reading.logs import UnreadableInput
    from audit.session import NoSpark, SparkFailed
    from audit.spark.delta import NoDelta
    from audit.spark.java import NoJava
    from audit.time_travel import BadMoment

    try:
        yield
    except (UnreadableInput, BadMoment, NoDelta, NoJava, NoSpark, SparkFailed) as error:
        say_error(str(error))
        raise typer.Exit(IMPOSSIBLE) from None
    except OSError as error:
        say_error(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        raise typer.Exit(IMPOSSIBLE) from None


class _SparkOptions(NamedTuple):
    """The options for Spark; `tables` is true if tables are to be written, which needs Spark."""

    master: str | None
    conf: list[str]
    table_format: TableFormat
    tables: bool

    @property
    def asked_by(self) -> str | None:
        """The first given option that requires Spark, None without one."""
        given = {
            "--master": self.master is not None,
            "--conf": bool(self.conf),
            "--table-format": self.table_format is not TableFormat.AUTO,
        }
        return next((option for option, is_given in given.items() if is_given), None)

    def settings(self) -> dict[str, str]:
        """Return the Spark settings.

        Raises NoDelta if Delta is requested but not installed, BadParameter for an invalid --conf.
        """
        split = [pair.partition("=") for pair in self.conf]
        for key, equals, _ in split:
            if not equals or not key.startswith("spark."):
                raise typer.BadParameter(
                    f"expected spark.KEY=VALUE, got {key!r}", param_hint="--conf"
                )
        given = {key: value for key, _, value in split}
        return given | _delta_settings(self.table_format if self.tables else None, given)


def _delta_settings(form: TableFormat | None, given: dict[str, str]) -> dict[str, str]:
    """Return the additional Spark settings that the table format needs."""
    from audit.spark import delta

    if form in (None, TableFormat.PARQUET) or (form is TableFormat.AUTO and not delta.installed()):
        return {}
    try:
        return delta.settings(given)
    except delta.NoDelta as error:
        if form is TableFormat.DELTA:
            raise
        say_error(f"writing the tables as Parquet: {error}")
        return {}


def _run(
    paths: list[Path],
    history: list[Path],
    data: list[Path],
    out: Path | None,
    engine: Engine,
    spark: _SparkOptions,
    bounds: dict[str, int],
) -> dict[str, Any]:
    """Run the audit with the requested engine, or with the one that AUTO selects."""
    from audit.planning.engine import is_for_spark
    from audit.reading.inputs import read_inputs
    from audit.session import spark_available

    settings = spark.settings()
    # errors in the input are reported before Spark starts
    inputs = read_inputs(paths, history=history, data=data)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    by_spark = engine is Engine.SPARK or (
        engine is Engine.AUTO
        and is_for_spark(
            inputs.size_bytes,
            tables=spark.tables,
            requested=spark.asked_by is not None,
            installed=spark_available(),
        )
    )
    if by_spark:
        tables = out / "tables" if out is not None and spark.tables else None
        return _by_spark(inputs, tables, spark.master, settings, bounds)
    if spark.tables and engine is Engine.AUTO:
        say_error("no tables written: they need Spark; pip install 'kraftbox[audit]'")
    return _here(inputs, bounds)


def _by_spark(
    inputs: Inputs,
    tables: Path | None,
    master: str | None,
    settings: dict[str, str],
    bounds: dict[str, int],
) -> dict[str, Any]:
    from audit import job
    from audit.session import session

    with _shown("starting Spark") as show, session(master, settings) as spark:
        return job.run(inputs, spark, tables=tables, progress=show, **bounds).data


def _here(inputs: Inputs, bounds: dict[str, int]) -> dict[str, Any]:
    from audit import job
    from audit.tasks.processes import ALONE_BYTES_MAX

    width = os.cpu_count() or 1
    processes = width if inputs.size_bytes > ALONE_BYTES_MAX else 1
    with _shown("reading") as show:
        return job.run_here(inputs, progress=show, width=width, processes=processes, **bounds).data


@contextmanager
def _shown(first: str) -> Iterator[Callable[[int, int], None]]:
    """Show progress as a counter on the terminal's last line; show nothing if stderr is a pipe."""
    tty = sys.stderr.isatty()

    def line(text: str) -> None:
        if tty:
            sys.stderr.write(f"\r{text:<40}")
            sys.stderr.flush()

    line(first)
    try:
        yield lambda done, tasks: line(f"audited {done} of {tasks} parts")
    finally:
        if tty:
            sys.stderr.write("\r" + " " * 40 + "\r")


def _write(result: dict[str, Any], out: Path) -> None:
    from audit.report.html import as_html
    from audit.report.json_text import as_json
    from audit.report.text import as_text

    (out / JSON_NAME).write_text(as_json(result))
    (out / TEXT_NAME).write_text("\n".join(as_text(result)) + "\n")
    (out / HTML_NAME).write_text(as_html(result))


def _print(result: dict[str, Any], form: Format, out: Path | None) -> None:
    from audit.report.html import as_html
    from audit.report.text import as_text, verdict

    if out is not None:
        name = {Format.TEXT: TEXT_NAME, Format.JSON: JSON_NAME, Format.HTML: HTML_NAME}[form]
        say(verdict(result["summary"]))
        say(str(out / name))
    elif form is Format.JSON:
        say_json(result)
    elif form is Format.HTML:
        say_lines(as_html(result))
    else:
        for line in as_text(result):
            say(line)


def _time_travel(paths: list[Path], at: str, form: Format) -> None:
    from audit.time_travel import cluster_at, cluster_lines

    cluster = cluster_at(paths, at)
    if form is Format.JSON:
        say_json(cluster)
        return
    for line in cluster_lines(cluster):
        say(line)


def _write_package(folder: Path, master: str | None) -> None:
    from audit.spark.package import write_submission

    package, script = write_submission(folder)
    say(
        f"spark-submit --master {master or 'spark://HOST:7077'} --py-files {package} {script} "
        "--out DIR PATH..."
    )
