"""Demo: start a node, produce every line of text files, consume them in a group, compare, audit.

    python scripts/demo.py [FILE ...]

Without files it uses the text files of the repository that git tracks. The exit code is 1 if the
consumed lines differ from the produced ones, or if the audit reports a broken promise.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

ROOT = Path(__file__).resolve().parent.parent
TOPIC = "demo-lines"
PARTITIONS = 3
QUIET_S = 30.0
REPORT = ROOT / "build" / "demo-audit"


def tracked_files() -> list[Path]:
    """Return the files that git tracks, or every file below the repository if it is not a clone."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode == 0 and listed.stdout:
        return [ROOT / name for name in listed.stdout.split("\0") if name]
    hidden = {".venv", ".git", "build", "dist", "node_modules"}
    return [
        path
        for path in sorted(ROOT.rglob("*"))
        if path.is_file() and not hidden & set(path.relative_to(ROOT).parts)
    ]


def text_lines(paths: list[Path]) -> Iterator[bytes]:
    """Yield every line of every file that is UTF-8 text."""
    for path in paths:
        if not path.is_file():
            continue
        data = path.read_bytes()
        try:
            data.decode()
        except UnicodeDecodeError:
            continue
        yield from data.splitlines()


PROGRESS_LINES = 20_000


class Tally:
    """Count, bytes, and a checksum that does not depend on the order of the lines.

    doing: the word before the growing count on a terminal.
    """

    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.count = 0
        self.size_bytes = 0
        self.checksum = 0

    def add(self, line: bytes) -> None:
        self.count += 1
        self.size_bytes += len(line)
        digest = hashlib.blake2b(line, digest_size=16).digest()
        self.checksum = (self.checksum + int.from_bytes(digest, "big")) % (1 << 128)
        if self.count % PROGRESS_LINES == 0 and sys.stderr.isatty():
            sys.stderr.write(f"\r{self.doing} {self.count:,} lines\r")
            sys.stderr.flush()

    def __str__(self) -> str:
        return f"{self.count:,} lines, {self.size_bytes:,} bytes, checksum {self.checksum:032x}"


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)])
    created[TOPIC].result(timeout=QUIET_S)


def produce(bootstrap: str, paths: list[Path]) -> Tally:
    tally = Tally("producing")
    failed: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "acks": "all",
            "enable.idempotence": True,
            # At level info librdkafka logs that it frees its own queues.
            "log_level": 4,
        }
    )

    def note(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failed.append(error)

    for line in text_lines(paths):
        tally.add(line)
        while True:
            try:
                producer.produce(TOPIC, line, on_delivery=note)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(QUIET_S)
    if failed or left:
        raise SystemExit(f"{len(failed)} lines refused ({failed[:1]}), {left} not acknowledged")
    return tally


def consume(bootstrap: str, expected: int) -> Tally:
    tally = Tally("consuming")
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    last = time.monotonic()
    while tally.count < expected and time.monotonic() - last < QUIET_S:
        for message in consumer.consume(num_messages=1000, timeout=0.5):
            if message.error():
                raise SystemExit(f"consume failed: {message.error()}")
            tally.add(message.value() or b"")
            last = time.monotonic()
    if tally.count:
        consumer.commit(asynchronous=False)
    consumer.close()
    return tally


def rate(tally: Tally, seconds: float) -> str:
    per_second = tally.count / seconds
    return f"{tally} in {seconds:.2f} s ({per_second:,.0f} lines/s)"


def run(bootstrap: str, paths: list[Path]) -> int:
    create_topic(bootstrap)
    started = time.monotonic()
    written = produce(bootstrap, paths)
    produced_s = time.monotonic() - started
    print(f"produced  {rate(written, produced_s)}")
    started = time.monotonic()
    read = consume(bootstrap, written.count)
    print(f"consumed  {rate(read, time.monotonic() - started)}")
    same = (written.count, written.checksum) == (read.count, read.checksum)
    print(
        "equal: count and checksum"
        if same
        else "DIFFERENT: the records read are not the records sent"
    )
    return 0 if same and written.count else 1


def audit(directory: Path) -> int:
    """Audit the cluster in this process and, if it is installed, with Spark.

    Returns: 0 if every promise held and both reports are equal.
    """
    codes = [audit_by("here", directory, REPORT)]
    if find_spec("pyspark") is not None:
        codes.append(audit_by("spark", directory, REPORT / "spark"))
        reports = [(folder / "audit.json").read_bytes() for folder in (REPORT, REPORT / "spark")]
        same = reports[0] == reports[1]
        print("equal: both reports" if same else "DIFFERENT: the engines' reports")
        codes.append(int(not same))
    if (REPORT / "audit.html").exists():
        print(f"report    {REPORT / 'audit.html'}")
    return max(codes)


def audit_by(engine: str, directory: Path, out: Path) -> int:
    """Run one audit, with its own progress on a terminal. Returns: its exit code."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "audit.json").write_bytes(b"")  # not the report of an earlier run
    begun = time.monotonic()
    command = [sys.executable, "-m", "kraftbox", "audit", str(directory), "--no-tables"]
    done = subprocess.run(
        [*command, "--engine", engine, "--out", str(out), "--format", "html"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    said = (done.stdout.splitlines() or ["nothing"])[0]
    print(f"audited   in {time.monotonic() - begun:.2f} s ({engine}): {said}")
    return done.returncode


def main() -> int:
    paths = [Path(name).resolve() for name in sys.argv[1:]] or tracked_files()
    with tempfile.TemporaryDirectory(prefix="kraftbox-demo-") as directory:
        begun = time.monotonic()
        node = subprocess.Popen(
            [sys.executable, "-m", "kraftbox", "up", "--dir", directory, "--port", "0"],
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert node.stdout is not None
            first = node.stdout.readline().strip()
            if not first.startswith("bootstrap.servers="):
                print(f"the node did not start: {first}")
                return 1
            bootstrap = first.partition("=")[2]
            print(f"ready     in {time.monotonic() - begun:.2f} s: connect to {bootstrap}")
            code = run(bootstrap, paths)
        finally:
            node.terminate()
            node.wait(timeout=QUIET_S)
        code = audit(Path(directory)) or code
        print("to keep one running: .venv/bin/kraftbox up --dir data")
        return code


if __name__ == "__main__":
    # End the node with this program.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
