"""`python -m fuzz.run --minutes N`: every target in turn, from one seed.

A run fails on an exception, on an input that takes longer than `--input-seconds`, and on a process
that grows. A failing input is written to a file, with the command that runs it again. The engine
`builtin` damages good inputs at random. The engine `atheris` (pip install atheris) searches for new
code coverage, one process per target, and starts from the same inputs.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from fuzz.mutate import mutate
from fuzz.target import NAMES, Target, make
from testkit.processes.ending import end_on_sigterm

GROWTH_BYTES_MAX = 64 << 20
PEAK_BYTES_MAX = 256 << 20
"""Memory that one input may take beyond the peak of the process so far."""
SLICE_S = 2.0


class TooSlow(Exception):
    """An input that took longer than allowed."""


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def resident_bytes() -> int:
    """Return the resident memory of the process; its peak where /proc is not available."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return peak_bytes()
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TooSlow inside the block once it has taken this many seconds."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TooSlow(f"more than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Course:
    """One target with its inputs and counters."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.rng = random.Random(f"{seed} {name}")
        self.target: Target = make(name)
        self.seeds: Sequence[bytes] = self.target.seeds(self.rng)
        self.runs = 0
        self.slowest_ms = 0.0
        self.seconds = 0.0

    def steps(self) -> Iterator[bytes]:
        """Yield the good inputs once, then damaged ones without end."""
        yield from self.seeds
        while True:
            yield mutate(self.seeds, self.rng)


class Failure(Exception):
    """A failed run of a target, with the input that caused it."""

    def __init__(self, name: str, data: bytes, error: BaseException) -> None:
        super().__init__(f"{name}: {error!r}")
        self.name = name
        self.data = data
        self.error = error


def run_one(course: Course, data: bytes, input_s: float) -> None:
    """Run one input and count it.

    Raises: Failure if the target fails, takes longer than `input_s`, or takes too much memory.
    """
    peak = peak_bytes()
    began = time.monotonic()
    try:
        with time_limit(input_s):
            course.target.run(data)
        if peak_bytes() - peak > PEAK_BYTES_MAX:
            raise MemoryError(f"{(peak_bytes() - peak) >> 20} MB for one input")
    except Exception as error:
        raise Failure(course.name, data, error) from error
    took_ms = (time.monotonic() - began) * 1000.0
    course.runs += 1
    course.slowest_ms = max(course.slowest_ms, took_ms)


def run_builtin(names: Sequence[str], seed: int, minutes: float, input_s: float) -> None:
    """Run slices of every target in turn until the time is up.

    Raises: Failure with the first failing input; MemoryError if the process grew too much.
    """
    courses = [Course(name, seed) for name in names]
    inputs = {course.name: course.steps() for course in courses}
    ends = time.monotonic() + minutes * 60.0
    slice_s = min(SLICE_S, minutes * 60.0 / (3 * len(courses)))
    before: int | None = None
    rounds = 0
    while time.monotonic() < ends:
        for course in courses:
            slice_began = time.monotonic()
            while time.monotonic() - slice_began < slice_s:
                run_one(course, next(inputs[course.name]), input_s)
            course.seconds += time.monotonic() - slice_began
        rounds += 1
        if before is None and time.monotonic() > ends - minutes * 60.0 * 0.6:
            before = _settled_bytes()
    after = _settled_bytes()
    for course in courses:
        rate = course.runs / max(course.seconds, 1e-9)
        say(
            f"{course.name:12} {course.runs:9} inputs {rate:9.0f} /s  slowest "
            f"{course.slowest_ms:8.1f} ms"
        )
        course.target.close()
    grown = after - (before or after)
    say(f"memory: {after >> 20} MB, {grown / (1 << 20):+.1f} MB since a third of the time")
    if grown > GROWTH_BYTES_MAX:
        raise MemoryError(f"the process grew by {grown >> 20} MB")


def _settled_bytes() -> int:
    gc.collect()
    return resident_bytes()


def kept_in(folder: Path | None) -> Path:
    """Return the folder for failing inputs: by default a temporary one with a random name, since
    another user of the machine could predict a fixed one."""
    return Path(tempfile.mkdtemp(prefix="kraftbox-fuzz-")) if folder is None else folder


def keep(failure: Failure, folder: Path) -> Path:
    """Write the input to a file. Returns: its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{failure.name}-{hashlib.sha256(failure.data).hexdigest()[:12]}"
    path.write_bytes(failure.data)
    return path


def replay(name: str, path: Path, input_s: float) -> None:
    """Run one input from a file. Raises: Failure if it fails again."""
    course = Course(name, 0)
    run_one(course, path.read_bytes(), input_s)
    course.target.close()


# --- atheris ---------------------------------------------------------------------------------


def run_atheris(names: Sequence[str], seed: int, minutes: float, folder: Path) -> int:
    """Run one process per target in turn. Returns: the first exit code other than 0."""
    seconds = max(int(minutes * 60.0 / len(names)), 1)
    for name in names:
        with tempfile.TemporaryDirectory() as corpus:
            for at, data in enumerate(make(name).seeds(random.Random(seed))):
                (Path(corpus) / f"seed-{at}").write_bytes(data)
            folder.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "fuzz.run", "--atheris-child", name, corpus]
            command += [f"-max_total_time={seconds}", f"-seed={seed or 1}", "-timeout=20"]
            command += ["-rss_limit_mb=2048", f"-artifact_prefix={folder}/{name}-", "-verbosity=0"]
            say(f"atheris: {name} for {seconds} s")
            code = subprocess.run(command, check=False).returncode
            if code:
                return code
    return 0


def atheris_child(name: str, arguments: Sequence[str]) -> None:
    """Instrument modules that are imported from here on and fuzz the target; does not return."""
    import atheris

    with atheris.instrument_imports(
        include=["protocol", "storage", "metalog", "runtime"], enable_loader_override=False
    ):
        target = make(name)
    atheris.Setup([sys.argv[0], *arguments], target.run)
    atheris.Fuzz()


# --- command line ----------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] == "--atheris-child":
        atheris_child(given[1], given[2:])
    parser = argparse.ArgumentParser(prog="python -m fuzz.run", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument(
        "--seed", type=int, default=None, help="seed of the random inputs; default: random, printed"
    )
    parser.add_argument("--engine", choices=("builtin", "atheris"), default="builtin")
    parser.add_argument("--input-seconds", type=float, default=10.0)
    parser.add_argument("--keep", type=Path, help="folder of failing inputs; default: a new one")
    parser.add_argument("--replay", type=Path, help="run this single input of the given target")
    parser.add_argument("targets", nargs="*", metavar="target", help=", ".join(NAMES))
    options = parser.parse_args(given)
    unknown = set(options.targets) - set(NAMES)
    if unknown:
        parser.error(f"unknown target: {', '.join(sorted(unknown))}")
    names = options.targets or NAMES
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    say(f"seed {seed}")
    try:
        if options.replay:
            replay(names[0], options.replay, options.input_seconds)
        elif options.engine == "atheris":
            return run_atheris(names, seed, options.minutes, kept_in(options.keep))
        else:
            run_builtin(names, seed, options.minutes, options.input_seconds)
    except Failure as failure:
        path = keep(failure, kept_in(options.keep))
        say("".join(traceback.format_exception(failure.error)))
        say(f"repeat: python -m fuzz.run --replay {path} {failure.name}")
        return 1
    except MemoryError as error:
        say(f"FAILED: {error}")
        return 1
    return 0


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
