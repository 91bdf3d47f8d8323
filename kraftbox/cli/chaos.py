"""`kraftbox chaos`: faults on a cluster under load, with a check of what clients observed."""

from __future__ import annotations

import asyncio
import math
import random
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple, NoReturn

import typer

from kraftbox.chaos import local
from kraftbox.chaos.checks import is_broken
from kraftbox.chaos.edn import edn_lines
from kraftbox.chaos.faults import KINDS
from kraftbox.chaos.first_look import free_topic, look_first
from kraftbox.chaos.history import HistoryError, save
from kraftbox.chaos.history import load as load_history
from kraftbox.chaos.report import (
    COLUMNS,
    as_json,
    as_junit,
    progress_line,
    timeline_rows,
    verdict_lines,
)
from kraftbox.chaos.run import Progress, Run, RunResult
from kraftbox.chaos.schedule import BadSchedule, Step, replayed, steps, written_steps
from kraftbox.chaos.target import LocalTarget, Target, TargetError
from kraftbox.chaos.workload import Load
from kraftbox.cli.output import FAILED, JsonFlag, say, say_error, say_json, table
from kraftbox.launcher import control
from protocol.errors import ApiError
from runtime.printable import escape

MISUSE = 2
INTERRUPTED = 130
TERMINATED = 143
PLAIN_LINES_S = 5.0
REPLICATION_FACTOR = 3
LIBRDKAFKA = "librdkafka"


ScheduleOption = Annotated[
    Path | None,
    typer.Option(
        "--schedule",
        metavar="FILE",
        help=(
            'Inject exactly these faults in their order: {"faults": [{"kind": '
            '"kill-leader", "seconds": 5, "draw": 7}]}; draw selects the victims.'
        ),
    ),
]
UntilBrokenFlag = Annotated[
    bool,
    typer.Option(
        "--until-broken",
        help="Repeat the run with the next seeds until a promise is broken or Ctrl-C.",
    ),
]
JunitOption = Annotated[
    Path | None,
    typer.Option("--junit", metavar="FILE", help="Write the verdict as JUnit XML too."),
]


ReplayOption = Annotated[
    Path | None,
    typer.Option(
        "--replay",
        metavar="HISTORY",
        help="Inject the faults of a saved client history: same kinds, durations and draws.",
    ),
]
ClientOption = Annotated[
    str | None,
    typer.Option(
        "--client",
        metavar="NAME",
        help="Also write and read with a second client: librdkafka (needs confluent-kafka).",
    ),
]
HistoryOption = Annotated[
    Path | None,
    typer.Option(
        "--history",
        metavar="FILE",
        help=(
            "Write the client history to this file. Default: a file in the system's "
            "temporary folder, only if a promise is broken."
        ),
    ),
]
EdnOption = Annotated[
    Path | None,
    typer.Option(
        "--edn", metavar="FILE", help="Write the client history for Elle (list-append) too."
    ),
]


DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--dir", help="Directory of a cluster of `kraftbox up`; a stopped one is started."
    ),
]
StartFlag = Annotated[
    bool,
    typer.Option(
        "--start",
        help="Start, resume and reconnect nodes first; otherwise such a cluster is refused.",
    ),
]
AuditOption = Annotated[
    Path | None,
    typer.Option(
        "--audit", help="Audit metadata and data too, and write the report to this folder."
    ),
]
SettingsOption = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a key of server.properties for a cluster that this command starts.",
    ),
]


def chaos(
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="Seed of the faults; default: random, printed at the start."),
    ] = None,
    minutes: Annotated[
        float, typer.Option("--minutes", "-m", min=0.1, help="Duration of the faults in minutes.")
    ] = 2.0,
    faults: Annotated[
        str | None,
        typer.Option("--faults", "-f", help="Comma-separated kinds of faults; default: all."),
    ] = None,
    schedule: ScheduleOption = None,
    replay: ReplayOption = None,
    until_broken: UntilBrokenFlag = False,
    client: ClientOption = None,
    junit: JunitOption = None,
    directory: DirectoryOption = None,
    compose: Annotated[
        Path | None, typer.Option("--compose", help="docker-compose file of a running project.")
    ] = None,
    start: StartFlag = False,
    history: HistoryOption = None,
    edn: EdnOption = None,
    audit: AuditOption = None,
    settings: SettingsOption = [],
    rate: Annotated[int, typer.Option("--rate", min=1, help="Records per second to write.")] = 300,
    partitions: Annotated[
        int,
        typer.Option("--partitions", "-p", min=1, help="Partitions of the topic that is written."),
    ] = 6,
    show_kinds: Annotated[
        bool, typer.Option("--list", help="List the kinds of faults and exit.")
    ] = False,
    as_document: JsonFlag = False,
) -> None:
    """Kill, pause, cut off and slow down nodes under load, and check what the clients observed.

    Without --dir and --compose the command starts a cluster of three controllers and three brokers,
    and stops it at the end. Exit code 0: every promise held; 1: one broke; 2: the run was not
    possible. Ctrl-C ends the faults and checks what was observed so far; a second Ctrl-C, or
    SIGTERM, aborts.
    """
    if show_kinds:
        _show_kinds(as_document=as_document)
        return
    if directory is not None and compose is not None:
        raise typer.BadParameter("give --dir or --compose, not both")
    _check_sources(schedule, replay, other=faults is not None or until_broken)
    wanted = _wanted(faults, schedule, replay, minutes)
    run_class = _run_class(client)
    first_seed = wanted.first_seed(seed)
    pairs = dict(_pair(one) for one in settings)
    try:
        with _terminable(), _target(directory, compose, pairs) as target:
            wanted = wanted._replace(kinds=_possible(target, wanted.kinds))
            if not as_document:
                say(f"seed {first_seed}, {wanted}")
            load = Load(partitions=partitions, records_per_s=rate)
            rounds = _Rounds(run_class, target, wanted, load, start=start, quiet=as_document)
            outcome, last_seed = rounds.go(first_seed, until_broken=until_broken)
            path = _kept(outcome, last_seed, history, audit)
            _write(outcome, edn, junit)
            _tell(outcome, path, as_document=as_document)
            code = FAILED if is_broken(outcome.findings) else 0
            if audit is not None and path is not None:
                own = directory is None
                code = max(code, _audit(target, path, audit, own=own, quiet=as_document))
    except (TargetError, ApiError, OSError) as error:
        say_error(str(error))
        raise typer.Exit(MISUSE) from None
    if code:
        raise typer.Exit(code)


def _check_sources(schedule: Path | None, replay: Path | None, *, other: bool) -> None:
    """Raise BadParameter if two options define the faults."""
    if schedule is not None and replay is not None:
        raise typer.BadParameter("give --schedule or --replay, not both")
    if other and (schedule or replay) is not None:
        named = "--schedule" if replay is None else "--replay"
        raise typer.BadParameter(
            f"{named} defines the faults: leave out --faults and --until-broken"
        )


def _write(outcome: RunResult, edn: Path | None, junit: Path | None) -> None:
    """Write the files for Elle and JUnit. Raises OSError."""
    if edn is not None:
        text = "".join(f"{line}\n" for line in edn_lines(outcome.history))
        edn.write_text(text, encoding="utf-8")
    if junit is not None:
        junit.write_text(as_junit(outcome), encoding="utf-8")


def _kept(outcome: RunResult, seed: int, wanted: Path | None, audit: Path | None) -> Path | None:
    """Save the history and return its path.

    Returns None, without saving, if no option requires the history and no promise broke. Raises
    OSError.
    """
    name = f"chaos-{seed}.kbxh"
    path = wanted
    if path is None and audit is not None:
        audit.mkdir(parents=True, exist_ok=True)
        path = audit / name
    if path is None and is_broken(outcome.findings):
        # The directory name is unpredictable, so another user of the machine cannot create it
        # first.
        path = Path(tempfile.mkdtemp(prefix="kraftbox-chaos-"), name)
    if path is not None:
        save(path, outcome.history)
    return path


def _tell(outcome: RunResult, path: Path | None, *, as_document: bool) -> None:
    if as_document:
        say_json(as_json(outcome, None if path is None else str(path)))
        return
    table(COLUMNS, timeline_rows(outcome.timeline))
    for line in verdict_lines(outcome):
        say(line)
    if path is not None:
        say(f"history: {path}")


def _audit(target: Target, history: Path, out: Path, *, own: bool, quiet: bool) -> int:
    """Audit the cluster's logs and return the exit code.

    A cluster that the command started is stopped first, so that its logs do not change.
    """
    if not isinstance(target, LocalTarget):
        raise TargetError("--audit: the logs of containers cannot be read from here")
    sys.stdout.flush()
    if own:
        control.down(target.place)
    min_isr = max(1, REPLICATION_FACTOR - 1)
    return local.audit(target.place, history, out, min_isr, quiet=quiet)


class _Faults(NamedTuple):
    """The faults of a run.

    `kinds` are drawn for `length_s` seconds (None: all kinds), unless `written` lists the steps.
    """

    kinds: Sequence[str] | None
    length_s: float
    written: Sequence[Step] | None = None
    seed: int | None = None
    """The seed of the replayed run."""

    def first_seed(self, wanted: int | None) -> int:
        """Return the first of: the given seed, the replayed run's seed, a random seed."""
        given = self.seed if wanted is None else wanted
        return random.SystemRandom().getrandbits(32) if given is None else given

    def __str__(self) -> str:
        kinds = ", ".join(self.kinds or ())
        if self.written is not None:
            return f"{len(self.written)} faults as written: {kinds}"
        return f"{self.length_s / 60:g} minutes, faults: {kinds}"

    def steps(self, seed: int) -> Iterator[Step]:
        return iter(self.written or steps(random.Random(seed), self.kinds or ()))


def _wanted(
    faults: str | None, schedule: Path | None, replay: Path | None, minutes: float
) -> _Faults:
    """Return the faults that the options define. Raises BadParameter."""
    if replay is not None:
        written, seed = _replayed(replay)
        return _Faults(list(dict.fromkeys(s.kind for s in written)), math.inf, written, seed)
    if schedule is not None:
        written = _written(schedule)
        return _Faults(list(dict.fromkeys(step.kind for step in written)), math.inf, written)
    kinds = None if faults is None else [one.strip() for one in faults.split(",")]
    _check_kinds(kinds)
    return _Faults(kinds, minutes * 60)


def _written(file: Path) -> list[Step]:
    try:
        return written_steps(file.read_text(encoding="utf-8"), KINDS)
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"cannot read {file}: {error}", param_hint="--schedule") from None
    except BadSchedule as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="--schedule") from None


def _replayed(file: Path) -> tuple[list[Step], int | None]:
    """Return the faults of a history, and its seed. Raises BadParameter."""
    try:
        history = load_history(file)
        found = replayed(history, random.Random)
    except OSError as error:
        message = f"cannot read {file}: {error.strerror}"
        raise typer.BadParameter(message, param_hint="--replay") from None
    except (HistoryError, BadSchedule) as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="--replay") from None
    for step in found:
        if step.kind not in KINDS:
            message = f"{file}: invalid kind {step.kind!r}; allowed: {', '.join(KINDS)}"
            raise typer.BadParameter(message, param_hint="--replay")
    seed = history.about.get("seed")
    return found, seed if isinstance(seed, int) else None


def _run_class(client: str | None) -> type[Run]:
    """Return the Run class for the requested client. Raises BadParameter."""
    if client is None:
        return Run
    if client != LIBRDKAFKA:
        message = f"{client!r}: invalid client; allowed: {LIBRDKAFKA}"
        raise typer.BadParameter(message, param_hint="--client")
    try:
        from kraftbox.chaos.librdkafka import WitnessedRun
    except ImportError:
        message = "confluent-kafka is not installed: pip install confluent-kafka"
        raise typer.BadParameter(message, param_hint="--client") from None
    return WitnessedRun


class _Rounds:
    """One run, or runs with increasing seeds until a promise breaks."""

    def __init__(
        self,
        run_class: type[Run],
        target: Target,
        faults: _Faults,
        load: Load,
        *,
        start: bool,
        quiet: bool,
    ) -> None:
        self._run_class = run_class
        self._target = target
        self._faults = faults
        self._load = load
        self._start = start
        self._quiet = quiet

    def go(self, seed: int, *, until_broken: bool) -> tuple[RunResult, int]:
        """Run; return the last outcome and its seed."""
        while True:
            outcome = asyncio.run(self._run(seed))
            if not until_broken or outcome.ended_early or is_broken(outcome.findings):
                return outcome, seed
            seed += 1
            say_error(f"every promise held; continuing with seed {seed}")

    async def _run(self, seed: int) -> RunResult:
        target, faults = self._target, self._faults
        await look_first(target, start=self._start)
        brokers = sum(one.is_broker for one in await target.members())
        factor = min(REPLICATION_FACTOR, brokers)
        load = self._load._replace(
            topic=await free_topic(target.bootstrap, f"chaos-{seed}"),
            replication_factor=factor,
            min_insync_replicas=max(1, factor - 1),
        )
        about: dict[str, object] = {
            "command": shlex.join(sys.argv),
            "kinds": list(faults.kinds or ()),
            "brokers": brokers,
        }
        shower = _Shower()
        show = _silent if self._quiet else shower.show
        run = self._run_class(target, load, seed, show=show, about=about)
        with _signals(run), shower:
            return await run.go(faults.steps(seed), faults.length_s, len(faults.written or ()))


@contextmanager
def _signals(run: Run) -> Iterator[None]:
    """Handle signals: the first SIGINT ends the run early, a second one or SIGTERM cancels it."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    pressed = False
    aborted = 0

    def abort(code: int) -> None:
        nonlocal aborted
        aborted = code
        task.cancel()

    def interrupted() -> None:
        nonlocal pressed
        if pressed:
            abort(INTERRUPTED)
            return
        pressed = True
        say_error(
            "no more faults: waiting until the cluster has recovered, then checking the history"
        )
        run.finish()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    loop.add_signal_handler(signal.SIGTERM, abort, TERMINATED)
    try:
        yield
    except asyncio.CancelledError:
        if aborted:
            raise typer.Exit(aborted) from None
        raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        signal.signal(signal.SIGTERM, _terminate)


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM raise SystemExit in the block, so that its cleanup runs."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(*_: object) -> NoReturn:
    raise SystemExit(TERMINATED)


@contextmanager
def _target(
    directory: Path | None, compose: Path | None, settings: dict[str, str]
) -> Iterator[Target]:
    if compose is not None:
        from kraftbox.chaos.compose import ComposeTarget

        if settings:
            raise TargetError("--set: change the settings of a compose project in its file")
        yield ComposeTarget(compose)
    elif directory is not None:
        with local.running(directory, settings=settings) as target:
            yield target
    else:
        with (
            tempfile.TemporaryDirectory(prefix="kraftbox-chaos-") as made,
            local.running(Path(made), settings=settings) as target,
        ):
            yield target


def _check_kinds(kinds: Sequence[str] | None) -> None:
    for kind in kinds or ():
        if kind not in KINDS:
            raise typer.BadParameter(
                f"--faults: invalid kind {kind!r}; allowed: {', '.join(KINDS)}"
            )


def _possible(target: Target, kinds: Sequence[str] | None) -> list[str]:
    """Return the kinds to use. Raises TargetError for a kind that this cluster does not support."""
    for name in kinds or ():
        missing = KINDS[name].needs - target.abilities
        if missing:
            raise TargetError(
                f"--faults {name}: not available for this cluster: {', '.join(missing)}"
            )
    return list(kinds or (name for name, kind in KINDS.items() if kind.is_drawn(target.abilities)))


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--set: expected KEY=VALUE, got {text!r}")
    return key, value


def _show_kinds(*, as_document: bool) -> None:
    if as_document:
        say_json(
            [
                {
                    "fault": name,
                    "matrix": kind.number,
                    "what": kind.text,
                    "needs": sorted(kind.needs),
                }
                for name, kind in KINDS.items()
            ]
        )
        return
    rows = [
        [name, kind.number, kind.text, ", ".join(sorted(kind.needs))]
        for name, kind in KINDS.items()
    ]
    table(("FAULT", "MATRIX", "WHAT", "NEEDS"), rows)


def _silent(_: Progress) -> None:
    """Print no progress: standard output must contain only the JSON document."""


class _Shower:
    """Progress display: one overwritten line on a terminal, a line every PLAIN_LINES_S on a
    pipe.
    """

    def __init__(self) -> None:
        self._told_s = -PLAIN_LINES_S
        self._doing = ""
        self._is_line_open = False

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        """End the overwritten line, so that the next output begins on a line of its own."""
        if self._is_line_open:
            sys.stdout.write("\n")
            self._is_line_open = False

    def show(self, seen: Progress) -> None:
        if sys.stdout.isatty():
            sys.stdout.write(f"\r\x1b[2K{escape(progress_line(seen))}")
            sys.stdout.flush()
            self._is_line_open = True
        elif seen.doing != self._doing or seen.now_s - self._told_s >= PLAIN_LINES_S:
            self._told_s, self._doing = seen.now_s, seen.doing
            say(progress_line(seen))
            sys.stdout.flush()
