"""CPU profiles of the brokers during a load: `--profile` of the comparisons.

py-spy, which must be on the path (`pip install py-spy`), samples the processes of Kraftbox's
brokers during each load. It stops them for every sample, so the figures of such a run must not be
quoted; only the shares are valid. A sample counts for the innermost Python function, including C
functions and system calls that it made. Waiting threads do not count, but a thread that waits for a
processor does. So the shares are reliable on a quiet machine only. The kernel's share of the CPU
time is from its own accounting, and reliable everywhere.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

from bench.nodes import cpu_times

RATE_HZ = 200
ROWS_SHOWN = 15
SAMPLER = "py-spy"
OURS = "kraftbox"
STOP_S_MAX = 60
IDLE_WORKER = "concurrent/futures/thread.py:_worker"
LOOP = "asyncio/runners.py:Runner.run"
"""The innermost Python function while the event loop itself works, which is not in Python."""
_FRAME = re.compile(r"^(?P<function>.+) \((?P<file>[^()]+\.py)(:\d+)?\)$")


def has_sampler() -> bool:
    """Return whether the sampler is on the path."""
    return shutil.which(SAMPLER) is not None


def begin_sampling(
    pid: int, path: Path, rate_hz: int, options: Sequence[str]
) -> subprocess.Popen[str]:
    """Sample a process until `end_sampling`."""
    command = [SAMPLER, "record", *options, "--output", str(path), "--pid", str(pid)]
    command += ["--rate", str(rate_hz), "--duration", "unlimited"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def end_sampling(sampler: subprocess.Popen[str], path: Path) -> None:
    """Stop the sampler, which writes its file. Raises RuntimeError if it has not."""
    sampler.send_signal(signal.SIGINT)
    _, complaint = sampler.communicate(timeout=STOP_S_MAX)
    if not path.exists():
        raise RuntimeError(f"{SAMPLER} wrote no output: {complaint}")


class Served(Protocol):
    """A node or a cluster under measurement."""

    @property
    def name(self) -> str: ...

    def broker_pids(self) -> list[int]: ...


class Profiles:
    """The samples of a run, by row. Raises SystemExit without the sampler."""

    def __init__(self, place: Path) -> None:
        if not has_sampler():
            raise SystemExit(f"--profile needs {SAMPLER} on the path: pip install {SAMPLER}")
        self._place = place
        self._files = 0
        self.stacks: dict[str, Counter[str]] = {}
        self.times: dict[str, tuple[float, float]] = {}

    @contextmanager
    def of(self, row: str, pids: Sequence[int]) -> Iterator[None]:
        """Sample these processes while the body runs, as a part of `row`."""
        samplers = [self._sample(pid) for pid in pids]
        before = _times(pids)
        try:
            yield
        finally:
            user, system = (now - then for now, then in zip(_times(pids), before, strict=True))
            had = self.times.get(row, (0.0, 0.0))
            self.times[row] = had[0] + user, had[1] + system
            for process, path in samplers:
                end_sampling(process, path)
                self.stacks.setdefault(row, Counter()).update(read_stacks(path.read_text()))

    def _sample(self, pid: int) -> tuple[subprocess.Popen[str], Path]:
        self._files += 1
        path = self._place / f"samples-{self._files}"
        return begin_sampling(pid, path, RATE_HZ, ["--format", "raw"]), path

    def report(self) -> str:
        """Return a Markdown table for each row."""
        parts = []
        for row, stacks in self.stacks.items():
            user, system = self.times[row]
            share = 100 * system / max(user + system, 0.01)
            parts.append(f"{row}: {share:.0f} % of the CPU time in the kernel")
            parts.append(table(by_function(stacks)))
        return "\n\n".join(parts)


def watched(profiles: Profiles | None, row: str, served: Served) -> AbstractContextManager[None]:
    """Sample `served` during the block, if profiles are requested and it is Kraftbox."""
    if profiles is None or served.name != OURS:
        return nullcontext()
    return profiles.of(row, served.broker_pids())


def read_stacks(text: str) -> Counter[str]:
    """Parse lines of `outermost;...;innermost COUNT`, as samplers write them."""
    stacks: Counter[str] = Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if stack:
            stacks[stack] += int(count)
    return stacks


def by_function(stacks: Counter[str]) -> Counter[str]:
    """Return samples by the innermost function, named `file:function`.

    Idle workers are left out: the sampler mistakes some of them for running.
    """
    found: Counter[str] = Counter()
    for stack, count in stacks.items():
        frame = _FRAME.match(stack.rpartition(";")[2])
        name = "outside of Python" if frame is None else f"{frame['file']}:{frame['function']}"
        if name != IDLE_WORKER:
            found["the event loop itself" if name == LOOP else name] += count
    return found


def table(shares: Counter[str]) -> str:
    """Return the largest shares as Markdown."""
    total = max(1, sum(shares.values()))
    lines = ["| function | % |", "|---|---|"]
    for name, count in shares.most_common(ROWS_SHOWN):
        lines.append(f"| `{name}` | {100 * count / total:.1f} |")
    return "\n".join(lines)


def _times(pids: Sequence[int]) -> tuple[float, float]:
    """Return the total user and system seconds of these processes."""
    times = [cpu_times(pid) for pid in pids]
    return sum(user for user, _ in times), sum(system for _, system in times)
