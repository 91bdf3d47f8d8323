"""Shell: Input and output of the process, as counted by the kernel (`/proc/self/io`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from runtime.metrics import Family, single

BROKER: Final = "kafkaserver"
CONTROLLER: Final = "controllerserver"
_TEXTS = {
    "read_bytes": "Bytes that the process made the kernel read",
    "write_bytes": "Bytes that the process made the kernel write",
    "rchar": "Bytes that the process read, from caches and sockets as well",
    "wchar": "Bytes that the process wrote, to caches and sockets as well",
    "syscr": "Read system calls of the process",
    "syscw": "Write system calls of the process",
    "cancelled_write_bytes": "Bytes written to caches and removed before they reached a disk",
}
"""Metric, a line of the file, and its help. The first two count what a disk really did."""


def collect(roles: Sequence[str]) -> Iterator[Family]:
    """Yield the metrics that Kafka 4.4 has of this file, for each of `roles` (BROKER, CONTROLLER);
    nothing without /proc."""
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            counts = dict(line.split(": ") for line in file.read().splitlines())
    except OSError:
        return
    for role in roles:
        for name, text in _TEXTS.items():
            yield single(f"kafka_server_{role}_linux_disk_{name}", text, int(counts[name]))
