"""The number of records above which the audit is faster with Spark than with the command alone.

    python -m bench.audit_engines [--records 1000,100000,1000000,10000000] [--rounds 3]

Runs the whole command, including its start and its reports, with both engines on logs of these
lengths. Prints the median seconds and the peak memory of all its processes, and where the two lines
cross. `--markdown docs/audit.md` writes that between its marks there. Wall times of a busy machine
are useless for the crossing.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from audit.job import MAY_BE_LOST
from audit.planning.engine import HERE_BYTES_MAX
from audit.reading import segments
from audit.reading.inputs import read_inputs
from bench.audit import tell, watched_memory
from bench.audit_log import Size, write_log
from bench.report import keep, options_of, shown
from testkit.processes.ending import end_on_sigterm

MARKS = "audit-engines"
RECORDS_PER_SEGMENT = 250_000
RECORDS_PER_PARTITION = 1_000
PARTITIONS = range(10, 10_001)
RECORDS = "1000,100000,1000000,10000000"
QUICK_RECORDS = "1000,20000"


class Row(NamedTuple):
    """A log with the figures of each engine."""

    records: int
    size_bytes: int
    here_s: float
    here_mb: float
    spark_s: float
    spark_mb: float


def crossing(rows: Sequence[Row]) -> float | None:
    """Return the number of records above which Spark is faster; None if there is no crossing.

    The figures are interpolated linearly.
    """
    for before, after in zip(rows, rows[1:], strict=False):
        lead, lag = before.spark_s - before.here_s, after.here_s - after.spark_s
        if lead > 0 and lag >= 0:
            share = lead / (lead + lag)
            return before.records + share * (after.records - before.records)
    return None


def as_table(rows: Sequence[Row]) -> str:
    lines = ["| records | log | `--engine here` | `--engine spark` |", "|---|---|---|---|"]
    for row in rows:
        cells = [f"{row.records:,}", f"{row.size_bytes / (1 << 20):,.1f} MiB"]
        cells += [f"{shown(row.here_s)} s, {row.here_mb:,.0f} MB"]
        cells += [f"{shown(row.spark_s)} s, {row.spark_mb:,.0f} MB"]
        lines.append(f"| {' | '.join(cells)} |")
    found = crossing(rows)
    long = rows[-1]
    auto = f"{HERE_BYTES_MAX * long.records / long.size_bytes:,.0f}"
    verb = "do not cross" if found is None else f"cross at some {found:,.0f} records"
    lines += ["", f"The two {verb}; `--engine auto` changes at some {auto} of such records."]
    return "\n".join(lines)


def measured(folder: Path, engine: str, rounds: int) -> tuple[float, float]:
    """Return the median seconds of the command, and its peak memory in MB."""
    command = [sys.executable, "-m", "kraftbox", "audit", str(folder), "--engine", engine]
    walls, peak_mb = [], 0.0
    with tempfile.TemporaryDirectory(prefix="kraftbox-bench-") as out:
        for _ in range(rounds):
            begun = time.monotonic()
            process = subprocess.Popen(
                [*command, "--no-tables", "--out", out],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            with watched_memory(process.pid) as peaks:
                code = process.wait()
                walls.append(time.monotonic() - begun)
            assert code in (0, MAY_BE_LOST), f"{command} ended with {code}"
            peak_mb = max(peak_mb, sum(peaks.values()))
    return statistics.median(walls), peak_mb


def row(folder: Path, records: int, rounds: int) -> Row:
    log = folder / "__cluster_metadata-0"
    if not log.exists():
        tell(f"writing a log of {records:,} records")
        partitions = min(max(records // RECORDS_PER_PARTITION, PARTITIONS[0]), PARTITIONS[-1])
        write_log(log, Size(records, max(1, records // RECORDS_PER_SEGMENT), partitions))
    inputs = read_inputs([log])
    tell(f"{records:,} records: here, then by Spark")
    here = measured(folder, "here", rounds)
    by_spark = measured(folder, "spark", rounds)
    written = segments.log_end(inputs.logs[0]).end_offset
    return Row(written, inputs.size_bytes, *here, *by_spark)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--records",
        help=f"comma-separated numbers of records, in ascending order (default: {RECORDS})",
    )
    parser.add_argument("--logs", type=Path, help="folder that keeps the logs for later runs")
    options = options_of(parser, arguments)
    lengths = options.records or (QUICK_RECORDS if options.quick else RECORDS)
    rounds = 1 if options.quick else options.rounds
    with tempfile.TemporaryDirectory(prefix="kraftbox-bench-") as scratch:
        place = options.logs or Path(scratch)
        rows = [row(place / number, int(number), rounds) for number in lengths.split(",")]
    table = as_table(rows)
    print(table)
    keep(options, MARKS, table, rows)


if __name__ == "__main__":
    end_on_sigterm()
    main()
