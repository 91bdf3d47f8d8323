"""Shell: The audit under spark-submit, whose user creates the session."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from audit import job
from audit.report.html import as_html
from audit.report.json_text import as_json
from audit.report.text import as_text, verdict


def main() -> None:
    """Run the audit and exit with 0, 1 or 2, as `kraftbox audit` does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, help="folders that executors reach, too")
    parser.add_argument("--history", action="append", default=[], type=Path)
    parser.add_argument("--data", action="append", default=[], type=Path)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--min-isr", type=int, default=1)
    parser.add_argument("--no-tables", action="store_true", help="reports only")
    options = parser.parse_args()
    sys.exit(submitted(options))


def submitted(options: argparse.Namespace) -> int:
    from pyspark.sql import SparkSession

    from audit.reading.inputs import read_inputs
    from audit.reading.logs import UnreadableInput
    from audit.spark.kraftaudit import KraftAudit
    from audit.spark.kraftlog import KraftLog

    spark = SparkSession.builder.appName("kraftbox audit").getOrCreate()
    spark.dataSource.register(KraftLog)
    spark.dataSource.register(KraftAudit)
    try:
        result = job.run(
            read_inputs(options.paths, history=options.history, data=options.data),
            spark,
            tables=None if options.no_tables else options.out / "tables",
            min_isr=options.min_isr,
        )
    except (UnreadableInput, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    finally:
        spark.stop()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "audit.json").write_text(as_json(result.data))
    (options.out / "audit.txt").write_text("\n".join(as_text(result.data)) + "\n")
    (options.out / "audit.html").write_text(as_html(result.data))
    sys.stdout.write(verdict(result.data["summary"]) + "\n")
    return result.exit_code
