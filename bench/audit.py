"""The audit of a long metadata log, compared with kafka-dump-log on the same files.

    python -m bench.audit [--records 10000000] [--segments 40] [--small 1000000] [--no-kafka]

Prints a table for a small and a large log, and for kafka-dump-log on the large one. It has the
seconds, the processor seconds of all processes (Spark's JVM and its Python workers), the records
per second, per core and per processor second, and the peak memory; then the growth from the small
log to the large one. Wall time depends on the machine's other load, processor seconds hardly do.
`--markdown docs/audit.md` writes the table between its marks there, `--json` prints all as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from audit import job
from audit.reading import segments
from audit.reading.inputs import read_inputs
from audit.reading.logs import read_listing
from audit.session import session
from bench.audit_log import Size, write_log
from bench.report import put_between, shown
from testkit.kafka.nodes import kafka_class_path
from testkit.processes.ending import end_on_sigterm

DUMP = "org.apache.kafka.tools.DumpLogSegments"
KAFKA = "kafka-dump-log"
MARKS = "audit"
SAMPLE_S = 0.25


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def processes_below(root: int) -> list[int]:
    """Return `root` and all its descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
            except OSError:
                continue  # it has ended in the meantime
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def processor_seconds(root: int) -> float:
    """Return the processor seconds of the process tree, including children that have ended."""
    ticks = 0
    for pid in processes_below(root):
        try:
            ticks += sum(int(field) for field in _stat(pid)[11:15])
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_mb(root: int) -> dict[str, float]:
    """Return the current memory in MiB by kind of process."""
    sizes = {"jvm": 0.0, "python": 0.0}
    for pid in processes_below(root):
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue
        kind = "jvm" if name == "java" else "python"
        sizes[kind] += pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    return sizes


@contextmanager
def watched_memory(root: int) -> Iterator[dict[str, float]]:
    """Record the peaks of memory while the block runs."""
    peaks = {"jvm": 0.0, "python": 0.0}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(SAMPLE_S):
            for kind, size in resident_mb(root).items():
                peaks[kind] = max(peaks[kind], size)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peaks
    finally:
        ended.set()
        watcher.join()


def figures(records: int, wall_s: float, cpu_s: float, peaks: dict[str, float]) -> dict[str, Any]:
    return {
        "records": records,
        "wall_s": round(wall_s, 2),
        "cpu_s": round(cpu_s, 2),
        "records_per_s": round(records / wall_s),
        "records_per_cpu_s": round(records / cpu_s),
        "peak_mb": {kind: round(size) for kind, size in peaks.items()},
    }


def measure(spark: Any, log: Path, cores: int) -> dict[str, Any]:
    """Measure one audit on a warm session."""
    root = os.getpid()
    before = processor_seconds(root)
    with watched_memory(root) as peaks:
        inputs = read_inputs([log])
        begun = time.monotonic()
        result = job.run(inputs, spark)
        wall_s = time.monotonic() - begun
    cpu_s = processor_seconds(root) - before
    summary = result.data["summary"]
    assert summary["promises_hold"], result.findings[:3]
    found = figures(summary["records"], wall_s, cpu_s, peaks)
    return {
        **found,
        "records_per_s_per_core": round(found["records_per_s"] / cores),
        "elections": sum(summary["elections"].values()),
    }


def measure_kafka(log: Path) -> dict[str, Any]:
    """Measure kafka-dump-log over all segments, with discarded output. It uses one core."""
    files = ",".join(str(path) for path in sorted(log.glob("*.log")))
    command = ["java", "-cp", kafka_class_path(), DUMP, "--cluster-metadata-decoder"]
    root = os.getpid()
    before = processor_seconds(root)
    begun = time.monotonic()
    with watched_memory(root) as peaks:
        subprocess.run(
            [*command, "--files", files],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    wall_s = time.monotonic() - begun
    cpu_s = processor_seconds(root) - before
    records = segments.log_end(read_listing(log)).end_offset
    return figures(records, wall_s, cpu_s, {"jvm": peaks["jvm"]})


def as_table(report: dict[str, dict[str, Any]], cores: int) -> str:
    """Return the figures and their growth as Markdown."""
    lines = [
        "| | records | wall s | processor s | records/s | per core | per processor s | memory |",
        "|---|---|---|---|---|---|---|---|",
    ]
    names = {"small": f"audit, `local[{cores}]`", "large": f"audit, `local[{cores}]`"}
    for key, found in report.items():
        peaks = ", ".join(f"{size:,} MB {kind}" for kind, size in found["peak_mb"].items())
        per_core = found.get("records_per_s_per_core", found["records_per_s"])
        numbers = [found["wall_s"], found["cpu_s"], found["records_per_s"], per_core]
        cells = [names.get(key, key), f"{found['records']:,}", *map(shown, numbers)]
        lines.append(f"| {' | '.join([*cells, shown(found['records_per_cpu_s']), peaks])} |")
    small, large = report["small"], report["large"]
    more = large["records"] - small["records"]
    lines += [
        "",
        f"{large['records'] / small['records']:.1f} times the records took "
        f"{large['wall_s'] / small['wall_s']:.1f} times the time, "
        f"{large['cpu_s'] / small['cpu_s']:.1f} times the processor seconds, "
        f"{sum(large['peak_mb'].values()) / sum(small['peak_mb'].values()):.2f} times the memory; "
        f"beyond the small log, {shown(more / (large['cpu_s'] - small['cpu_s']))} records per "
        "processor second.",
    ]
    if KAFKA in report:
        theirs, in_all = report[KAFKA]["wall_s"], large["start_s"] + large["wall_s"]
        lines.append(
            f"Spark's start took {large['start_s']:.1f} s before that. With it the audit of the "
            f"large log took {in_all:.1f} s, {in_all / theirs:.2f} of the time of kafka-dump-log: "
            f"in all it is {'faster' if in_all < theirs else 'NOT faster'}, on {cores} cores."
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--segments", type=int, default=40)
    parser.add_argument("--small", type=int, default=1_000_000)
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--logs", type=Path, help="folder that keeps the logs for later runs")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--markdown", type=Path, help="Markdown file with the marks of the table")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    report = run(options)
    table = as_table(report, options.cores)
    print(json.dumps(report, indent=1) if options.json else table)
    if options.markdown is not None:
        put_between(options.markdown, MARKS, table)


def run(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="kraftbox-bench-") as scratch:
        logs = {}
        for name, records in (("small", options.small), ("large", options.records)):
            logs[name] = (options.logs or Path(scratch)) / name / "__cluster_metadata-0"
            segments = max(1, options.segments * records // options.records)
            if not logs[name].exists():
                tell(f"writing a log of {records:,} records in {segments} segments")
                write_log(logs[name], Size(records, segments, options.partitions))
        # First, because Spark's JVM stays when its session ends.
        kafka = {}
        if not options.no_kafka:
            tell("kafka-dump-log on the large log")
            kafka[KAFKA] = measure_kafka(logs["large"])
        report: dict[str, dict[str, Any]] = {}
        begun = time.monotonic()
        with session(f"local[{options.cores}]") as spark:
            tell("starting Spark and its workers")
            job.run(read_inputs([logs["small"]]), spark)
            cold_s = time.monotonic() - begun
            for name, log in logs.items():
                tell(f"auditing the {name} log")
                report[name] = measure(spark, log, options.cores)
        report["large"]["start_s"] = round(cold_s - report["small"]["wall_s"], 2)
    return report | kafka


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    end_on_sigterm()
    main()
