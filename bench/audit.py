"""The audit of a long metadata log, beside kafka-dump-log on the same files.

    python -m bench.audit [--records 10000000] [--segments 40] [--small 1000000] [--no-kafka]

Prints JSON: for a small and a large log the seconds, the processor seconds of all processes (the
JVM of Spark and its Python workers), the records per second and per processor second, and the peak
memory; for the large one the same of kafka-dump-log. Wall time depends on who else uses the
machine, processor seconds hardly.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from audit import job
from audit.session import session
from bench.audit_log import Size, write_log
from tests.support.nodes import kafka_class_path

DUMP = "org.apache.kafka.tools.DumpLogSegments"
MASTER = "local[2]"
CORES = 2
SAMPLE_S = 0.25


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def processes_below(root: int) -> list[int]:
    """`root` and everything it started, directly or not."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
            except OSError:
                continue  # it ended meanwhile
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def processor_seconds(root: int) -> float:
    """Of the whole tree; of children that have ended, too."""
    ticks = 0
    for pid in processes_below(root):
        try:
            ticks += sum(int(field) for field in _stat(pid)[11:15])
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_mb(root: int) -> dict[str, float]:
    """MiB by kind of process, now."""
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
    """The peaks while the block runs."""
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


def measure(spark: Any, log: Path) -> dict[str, Any]:
    """One audit on a session that is warm."""
    root = os.getpid()
    before = processor_seconds(root)
    with watched_memory(root) as peaks:
        result, wall_s = job.timed(spark, [log])
    cpu_s = processor_seconds(root) - before
    summary = result.data["summary"]
    assert summary["promises_hold"], result.findings[:3]
    records = summary["records"]
    return {
        "records": records,
        "elections": sum(summary["elections"].values()),
        "wall_s": round(wall_s, 2),
        "cpu_s": round(cpu_s, 2),
        "records_per_s": round(records / wall_s),
        "records_per_s_per_core": round(records / wall_s / CORES),
        "records_per_cpu_s": round(records / cpu_s),
        "peak_mb": {kind: round(size) for kind, size in peaks.items()},
    }


def measure_kafka(log: Path) -> dict[str, Any]:
    """kafka-dump-log over all segments, into nothing."""
    files = ",".join(str(path) for path in sorted(log.glob("*.log")))
    command = ["java", "-cp", kafka_class_path(), DUMP, "--cluster-metadata-decoder"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    subprocess.run(
        [*command, "--files", files],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    wall_s = time.monotonic() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": round(wall_s, 2), "cpu_s": round(cpu_s, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--segments", type=int, default=40)
    parser.add_argument("--small", type=int, default=1_000_000)
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--logs", type=Path, help="folder that keeps the logs for another run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kraftbox-bench-") as scratch:
        logs = {}
        for name, records in (("small", options.small), ("large", options.records)):
            logs[name] = (options.logs or Path(scratch)) / name / "__cluster_metadata-0"
            segments = max(1, options.segments * records // options.records)
            if not logs[name].exists():
                write_log(logs[name], Size(records, segments, options.partitions))
        report: dict[str, Any] = {}
        if not options.no_kafka:
            report["kafka_dump_log"] = measure_kafka(logs["large"])
        with session(MASTER) as spark:
            job.run([logs["small"]], spark)  # warms the JVM and the Python workers
            report |= {name: measure(spark, log) for name, log in logs.items()}
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
