"""Shell: Bytes that the process moved to and from disks, as counted by the kernel."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.metrics import Family, single

_PREFIX = "kafka_server_kafkaserver_linux_disk_"


def collect() -> Iterator[Family]:
    """Yield the bytes that were really written to or read from a disk; nothing without /proc."""
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            counts = dict(line.split(": ") for line in file.read().splitlines())
    except OSError:
        return
    for name in ("read_bytes", "write_bytes"):
        text = f"Bytes that the process made the kernel {name.partition('_')[0]}"
        yield single(_PREFIX + name, text, int(counts[name]))
