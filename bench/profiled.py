"""Where the brokers' CPU goes while a load runs: `--profile` of the comparisons.

py-spy, which must be on the path (`pip install py-spy`), samples the processes of our brokers while
each load runs. It stops them for every sample, so the figures of such a run are not for quoting;
what counts are the shares. They are of samples that found a thread running: first by the innermost
function of ours, with what it called in C or in the kernel, then by the innermost C function, which
tells the kernel's share by system call.
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

RATE_HZ = 200
ROWS_SHOWN = 15
SAMPLER = "py-spy"
OURS = "kraftbox"
STOP_S_MAX = 60
_PYTHON = re.compile(r"^(?P<function>.+) \((?P<file>[\w./-]+\.py)(:\d+)?\)$")
_NATIVE = re.compile(r"^(?P<function>.+) \((?P<file>[^()]*)\)$")


class Served(Protocol):
    """A node or a cluster under measurement."""

    @property
    def name(self) -> str: ...

    def broker_pids(self) -> list[int]: ...


class Profiles:
    """The samples of a run, by row. SystemExit without the sampler."""

    def __init__(self, place: Path) -> None:
        if shutil.which(SAMPLER) is None:
            raise SystemExit(f"--profile needs {SAMPLER} on the path: pip install {SAMPLER}")
        self._place = place
        self._files = 0
        self.stacks: dict[str, Counter[str]] = {}

    @contextmanager
    def of(self, row: str, pids: Sequence[int]) -> Iterator[None]:
        """Sample these processes while the body runs, as a part of `row`."""
        samplers = [self._sample(pid) for pid in pids]
        try:
            yield
        finally:
            for process, _ in samplers:
                process.send_signal(signal.SIGINT)
            for process, path in samplers:
                _, told = process.communicate(timeout=STOP_S_MAX)
                if not path.exists():
                    raise RuntimeError(f"{SAMPLER} wrote nothing: {told}")
                self.stacks.setdefault(row, Counter()).update(read_stacks(path.read_text()))

    def _sample(self, pid: int) -> tuple[subprocess.Popen[str], Path]:
        self._files += 1
        path = self._place / f"samples-{self._files}"
        command = [SAMPLER, "record", "--native", "--format", "raw", "--output", str(path)]
        command += ["--pid", str(pid), "--rate", str(RATE_HZ), "--duration", "unlimited"]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        return process, path

    def report(self) -> str:
        """A pair of tables for each row, as Markdown."""
        return "\n\n".join(
            f"{row}: {sum(stacks.values()):,} samples\n\n"
            f"{table('function of ours', by_function(stacks))}\n\n"
            f"{table('C function', by_native(stacks))}"
            for row, stacks in self.stacks.items()
        )


def watched(profiles: Profiles | None, row: str, served: Served) -> AbstractContextManager[None]:
    """Samples what `served` does meanwhile, if it is asked for and if it is ours."""
    if profiles is None or served.name != OURS:
        return nullcontext()
    return profiles.of(row, served.broker_pids())


def read_stacks(text: str) -> Counter[str]:
    """Lines of `outermost;...;innermost COUNT`, as samplers write them."""
    stacks: Counter[str] = Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if stack:
            stacks[stack] += int(count)
    return stacks


def by_function(stacks: Counter[str]) -> Counter[str]:
    """Samples by the innermost Python function, named `file:function`."""
    found: Counter[str] = Counter()
    for stack, count in stacks.items():
        frames = map(_PYTHON.match, reversed(stack.split(";")))
        inner = next((frame for frame in frames if frame is not None), None)
        name = "outside of Python" if inner is None else f"{inner['file']}:{inner['function']}"
        found[name] += count
    return found


def by_native(stacks: Counter[str]) -> Counter[str]:
    """Samples by the innermost function in C; those in the interpreter itself together."""
    found: Counter[str] = Counter()
    for stack, count in stacks.items():
        inner = stack.rpartition(";")[2]
        native = None if _PYTHON.match(inner) else _NATIVE.match(inner)
        found["the interpreter" if native is None else native["function"]] += count
    return found


def table(head: str, shares: Counter[str]) -> str:
    """The largest shares, as Markdown."""
    total = max(1, sum(shares.values()))
    lines = [f"| {head} | % |", "|---|---|"]
    for name, count in shares.most_common(ROWS_SHOWN):
        lines.append(f"| `{name}` | {100 * count / total:.1f} |")
    return "\n".join(lines)
