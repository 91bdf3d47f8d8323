"""Shell: `kraftbox sim`: runs of seeds, or of a schedule from a file, and their reports."""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from queue import SimpleQueue
from textwrap import wrap
from typing import Any

from runtime.config.tables import NODE_KEYS
from simulation.coverage import coverage_lines
from simulation.faults import KINDS
from simulation.find import Find, schedule_of
from simulation.ledger import Ledger, code_id
from simulation.narrator import Narrator
from simulation.page import page
from simulation.schedule import Schedule, draw_schedule
from simulation.shapes.shape import BadShape, LinkShape, Shape
from simulation.shrink import Verdict, shrink, words
from simulation.story import Story
from simulation.swarm import Broken, RunOutcome, Stopped, SwarmWorld, run
from simulation.ticker import Ticker
from simulation.views import Moment, Until
from simulation.world.cluster import NodeLife

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Other versions order some callbacks differently: a seed then has another trace."""
HELD, BROKEN, MISUSE, INTERRUPTED = 0, 1, 2, 130
LINES_TOLD = 40
SETTINGS_WIDTH = 100
INDENT = "    "
SEED_BITS = 31

Kinds = tuple[str, ...] | None


@dataclass(frozen=True)
class Options:
    """The command's options; None and False stand for an absent option."""

    seed: int | None = None
    runs: int | None = None
    minutes: float | None = None
    jobs: int = 1
    faults: str | None = None
    tiered: bool = False
    schedule: str | None = None
    shrink: bool = False
    show: bool = False
    until: str | None = None
    partition: str | None = None
    marks: bool = False
    out: Path | None = None
    ledger: Path | None = None
    as_json: bool = False
    show_kinds: bool = False


def main(options: Options) -> int:
    """Run the command. Returns: the exit code: 0 every promise held, 1 one broke, 2 wrong usage."""
    if options.show_kinds:
        _show_kinds(as_json=options.as_json)
        return HELD
    try:
        kinds = _kinds(options.faults)
        _check(options)
        first = _first(options)
        if options.runs is not None or (options.minutes is not None and not options.shrink):
            return _many(first, options, kinds)
        schedule, replay = _chosen(options, first, kinds)
        if options.shrink:
            return _shrink(schedule, options)
        if options.until is not None:
            return _until(schedule, options)
        return _one(schedule, replay, options)
    except BadShape as error:
        sys.stderr.write(f"kraftbox: {error}\n")
        return MISUSE


def _show_kinds(*, as_json: bool) -> None:
    if as_json:
        kinds = [
            {"fault": name, "family": kind.family, "what": kind.text}
            for name, kind in KINDS.items()
        ]
        print(json.dumps(kinds))
        return
    width = max(map(len, KINDS))
    for name, kind in KINDS.items():
        print(f"{name:<{width}} {kind.family:<8} {kind.text}")


def _check(options: Options) -> None:
    """Raise BadShape for options that exclude each other."""
    drawn = (options.seed, options.runs, options.faults, options.tiered or None)
    alone = [
        name
        for name, asked in (
            ("--shrink", options.shrink),
            ("--show", options.show),
            ("--until", options.until is not None),
        )
        if asked
    ]
    if options.schedule is not None and drawn != (None, None, None, None):
        raise BadShape("--schedule excludes --seed, --runs, --faults and --tiered")
    if options.schedule is not None and options.minutes is not None and not options.shrink:
        raise BadShape("--schedule is one run: it allows --minutes only with --shrink")
    _check_alone(alone, options)
    if options.marks and options.runs is None and options.minutes is None:
        raise BadShape("--marks prints a table over many runs: it needs --runs or --minutes")
    if options.ledger is not None and options.runs is None and options.minutes is None:
        raise BadShape("--ledger records many runs: it needs --runs or --minutes")
    if options.out is not None and not (options.shrink or options.show):
        raise BadShape("--out is the output file of --shrink or --show: it needs one of them")
    if options.out is not None and not options.out.parent.is_dir():
        raise BadShape(f"--out {options.out}: the folder does not exist")
    if options.partition is not None and options.until is None:
        raise BadShape("--partition needs --until")


def _check_alone(alone: Sequence[str], options: Options) -> None:
    """Raise BadShape for a conflict of `alone`, the options that take one run."""
    if alone and options.as_json:
        raise BadShape(f"{alone[0]} excludes --json")
    if len(alone) > 1:
        raise BadShape(f"{' and '.join(alone)} exclude each other")
    if alone and (options.runs is not None or (options.minutes is not None and not options.shrink)):
        raise BadShape(
            f"{alone[0]} plays one run: it excludes --runs, and allows --minutes only for --shrink"
        )
    if alone and options.seed is None and options.schedule is None:
        raise BadShape(f"{alone[0]} needs --seed or --schedule")


def _first(options: Options) -> int:
    drawn = random.SystemRandom().getrandbits(SEED_BITS)
    return drawn if options.seed is None else options.seed


def _chosen(options: Options, seed: int, kinds: Kinds) -> tuple[Schedule, str]:
    """Return the schedule to play, and the arguments that play it again."""
    if options.schedule is not None:
        return schedule_of(options.schedule), f"--schedule '{options.schedule}'"
    drawn = draw_schedule(seed, kinds, tiered=options.tiered or None)
    return drawn, _replay(seed, options.faults, tiered=options.tiered)


def _kinds(text: str | None) -> Kinds:
    if text is None:
        return None
    # `kraftbox chaos` writes power-cut.
    spelled = {name.replace(" ", "-").replace("_", "-"): name for name in KINDS}
    kinds = []
    for one in (one.strip() for one in text.split(",")):
        kind = spelled.get(one.replace(" ", "-").replace("_", "-"))
        if kind is None:
            raise BadShape(f"--faults: unknown kind {one!r}; allowed are {', '.join(KINDS)}")
        kinds.append(kind)
    return tuple(kinds)


def _replay(seed: int, faults: str | None, *, tiered: bool) -> str:
    chosen = "" if faults is None else f" --faults '{faults}'"
    return f"--seed {seed}{chosen}{' --tiered' if tiered else ''}"


def _command(replay: str) -> str:
    """Return the command that repeats a run: the trace depends on the version of Python, too."""
    return f"kraftbox sim {replay}  # Python {PYTHON}"


# --- one ------------------------------------------------------------------------------------------


def _one(schedule: Schedule, replay: str, options: Options) -> int:
    began_s = time.perf_counter()
    outcome, story = told(schedule)
    real_s = time.perf_counter() - began_s
    code = HELD if outcome.broken is None else BROKEN
    if options.as_json:
        print(json.dumps({**as_document(outcome), "schedule": schedule.to_json()}))
        return code
    for line in _shape_lines(schedule):
        print(line)
    print(f"{outcome.virtual_s:.1f} virtual seconds in {real_s:.1f} s: {_counts(outcome.counts)}")
    for kind, drawn in sorted(outcome.drawn.items()):
        print(f"  {kind}: {outcome.took_effect.get(kind, 0)} of {drawn} took effect")
    if options.show:
        print("\n".join(["", *story.lines()]))
    if outcome.broken is not None:
        lines = broken_lines(outcome, replay, [] if options.show else story.lines(LINES_TOLD))
        print("\n".join(lines))
    if options.show:
        path = options.out or Path(f"sim-{schedule.seed}.html")
        _write(path, page(story, list(_shape_lines(schedule)), _command(replay)))
        print(f"page: {path.resolve()}")
    print(verdict(outcome))
    print(trace_line(outcome))
    return code


def verdict(outcome: RunOutcome) -> str:
    """Return the verdict of one run in words."""
    took, drawn = sum(outcome.took_effect.values()), sum(outcome.drawn.values())
    seed, broken = outcome.schedule.seed, outcome.broken
    what = "held" if broken is None else f"broke {broken.code} at {broken.at_s:.3f} s"
    return f"seed {seed} {what}: {took} of {drawn} faults took effect"


def trace_line(outcome: RunOutcome) -> str:
    """Return the trace's name: its hash and the version of Python that it belongs to."""
    return f"trace {PYTHON}-{outcome.trace}"


def told(schedule: Schedule) -> tuple[RunOutcome, Story]:
    """Run a schedule with a narrator. Returns: the outcome and the story."""
    narrators: list[Narrator] = []

    def narrate(world: SwarmWorld) -> Narrator:
        narrators.append(Narrator(world))
        return narrators[0]

    outcome = run(schedule, watchers=[narrate, Ticker])
    story = narrators[0].story
    story.faults_drawn = sum(outcome.drawn.values())
    if outcome.broken is not None and story.broken is None:
        story.broken = outcome.broken.words  # found after the end of the run
    return outcome, story


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadShape(f"--out {path}: {error.strerror}") from error


def _until(schedule: Schedule, options: Options) -> int:
    """Print every node's view at a moment of the run."""
    moment = Moment.parse(options.until or "", schedule)
    wanted = [] if options.partition is None else [options.partition]
    found: list[Until] = []

    def watch(world: SwarmWorld) -> Until:
        found.append(Until(world, moment, wanted))
        return found[0]

    outcome = run(schedule, keep=0, watchers=[watch])
    view = found[0]
    if wanted and wanted[0] not in view.names:
        allowed = ", ".join(sorted(view.names))
        raise BadShape(f"--partition: unknown partition {wanted[0]!r}; allowed are {allowed}")
    if not view.reached:
        print(f"the run ended before {moment}; this is its last state")
    print("\n".join(view.lines))
    if outcome.broken is not None:
        print(f"BROKEN {outcome.broken.code}: {outcome.broken.plain}")
    return HELD if outcome.broken is None else BROKEN


def _shape_lines(schedule: Schedule) -> Iterator[str]:
    shape = schedule.shape
    nodes = ", ".join(f"{one.node_id} {'+'.join(one.roles)}" for one in shape.nodes)
    yield f"seed {schedule.seed}: nodes {nodes}"
    for topic in shape.topics:
        yield (
            f"  topic {topic.name}: {topic.partitions} partitions, "
            f"{topic.replication_factor} replicas, {_pairs(topic.configs)}"
        )
    changed = {
        key: value
        for key, value in shape.settings.items()
        if key not in NODE_KEYS or NODE_KEYS[key].format(NODE_KEYS[key].default) != value
    }
    yield "  settings unlike the default:"
    yield from wrap(
        _pairs(changed), SETTINGS_WIDTH, initial_indent=INDENT, subsequent_indent=INDENT
    )
    link, disk = shape.link, shape.disk
    yield f"  links {_link(link)}"
    for node in shape.nodes:
        if node.link is not None:
            yield f"  links of node {node.node_id} {_link(node.link)}"
    yield f"  flushes {disk.flush_ms_min:g} to {disk.flush_ms_max:g} ms"
    yield f"  clients: {', '.join(one.name for one in shape.clients)}"
    for name in sorted(shape.given_up):
        yield f"  {name} allows unclean elections: it may lose acknowledged records"


def _link(link: LinkShape) -> str:
    tail = f", tail {link.tail:g}" if link.tail else ""
    return f"{link.delay_ms_min:g} to {link.delay_ms_max:g} ms, {link.late_chance:g} late{tail}"


def _pairs(values: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(values.items()))


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def broken_lines(outcome: RunOutcome, replay: str, story: Sequence[str]) -> list[str]:
    """Return the lines with the broken promise and the commands that replay it."""
    broken = outcome.broken
    assert broken is not None
    return [
        "",
        *story,
        "",
        f"BROKEN {broken.code} at {broken.at_s:.6f} s: {broken.plain}",
        f"replay: {_command(replay)}",
        f"look:   kraftbox sim {replay} --show | --until broken | --shrink",
    ]


def as_document(outcome: RunOutcome) -> dict[str, Any]:
    """Return the outcome as plain JSON values."""
    broken = outcome.broken
    return {
        "seed": outcome.schedule.seed,
        "trace": outcome.trace,
        "python": PYTHON,
        "broken": None if broken is None else vars(broken),
        "virtual_s": outcome.virtual_s,
        "drawn": outcome.drawn,
        "took_effect": outcome.took_effect,
        "counts": outcome.counts,
        "errors": outcome.errors,
        "shape": _sizes(outcome.schedule.shape),
        "marks": outcome.marks,
    }


# --- shrinking ------------------------------------------------------------------------------------


def _shrink(schedule: Schedule, options: Options) -> int:
    """Write the smallest schedule that breaks the same promise to a file, as a find."""
    ends_s = None if options.minutes is None else time.perf_counter() + options.minutes * 60

    def may_go_on() -> bool:
        return ends_s is None or time.perf_counter() < ends_s

    found = shrink(schedule, _verdict, may_go_on=may_go_on)
    if found is None:
        print(f"seed {schedule.seed} breaks no promise: there is nothing to shrink")
        return HELD
    path = options.out or Path(f"sim-{schedule.seed}.json")
    _write(path, Find(found.schedule, found.verdict.code, "").text())
    print(
        f"{found.verdict.code} with {words(found.schedule)}, after {found.tries} tries: "
        f"kraftbox sim --schedule '{path}'"
    )
    return BROKEN


class _Patience:
    """Ends a run that exceeds a limit of virtual time."""

    def __init__(self, world: SwarmWorld, ends_ms: float) -> None:
        self._loop = world.loop
        self._ends_ms = ends_ms

    def after(self, life: NodeLife) -> None:
        if self._loop.time() * 1000 > self._ends_ms:
            raise Stopped

    def finish(self, broken: Broken | None) -> None:
        """Do nothing at the end of the run."""


def _verdict(schedule: Schedule, ends_ms: float) -> Verdict | None:
    broken = run(schedule, keep=0, watchers=[lambda world: _Patience(world, ends_ms)]).broken
    return None if broken is None else Verdict(broken.code, broken.at_s * 1000)


def _sizes(shape: Shape) -> dict[str, str]:
    """Return the sizes of a shape that tables count."""
    roles = {one.roles for one in shape.nodes}
    combined = any(one.controls and one.serves for one in shape.nodes)
    return {
        "controllers": str(len(shape.controllers)),
        "brokers": str(len(shape.brokers)),
        "layout": "separate" if not combined else "combined" if len(roles) == 1 else "mixed",
    }


# --- many -----------------------------------------------------------------------------------------


def _task(asked: tuple[int, Kinds, str | None, bool]) -> tuple[dict[str, Any], list[str]]:
    seed, kinds, faults, tiered = asked
    schedule = draw_schedule(seed, kinds, tiered=tiered or None)
    outcome = run(schedule, keep=0)
    if outcome.broken is None:
        return as_document(outcome), []
    # again, since a run that holds is not slowed down by a narrator
    outcome, story = told(schedule)
    lines = story.lines(LINES_TOLD)
    if outcome.broken is None:
        return as_document(outcome), [*lines, "held when it was run again: the trace differs"]
    return as_document(outcome), broken_lines(outcome, _replay(seed, faults, tiered=tiered), lines)


def _many(first: int, options: Options, kinds: Kinds) -> int:
    minutes, faults, tiered = options.minutes, options.faults, options.tiered
    ledger = None if options.ledger is None else Ledger(options.ledger, code_id())
    known = {} if ledger is None else dict(ledger.runs)
    began_s = time.perf_counter()
    ends_s = None if minutes is None else began_s + minutes * 60
    asked = (
        (seed, kinds, faults, tiered)
        for seed in _seeds(first, options.runs, ends_s)
        if _replay(seed, faults, tiered=tiered) not in known
    )
    played: list[dict[str, Any]] = []
    interrupted = False
    with _results(asked, options.jobs, in_order=ledger is None) as results:
        try:
            for document, lines in results:
                played.append(document)
                if ledger is not None:
                    ledger.add(_replay(document["seed"], faults, tiered=tiered), document)
                if lines and not options.as_json:
                    print("\n".join([f"seed {document['seed']}", *lines, ""]), flush=True)
        except KeyboardInterrupt:  # the runs until now are reported
            interrupted = True
    real_s = time.perf_counter() - began_s
    documents = [*known.values(), *played]
    held = sum(one["broken"] is None for one in documents)
    if options.as_json:
        print(json.dumps({"held": held, "runs": documents, "real_s": real_s}))
    else:
        if options.marks:
            print("\n".join(coverage_lines(documents)))
        print("\n".join(_summary(documents, held)))
        print(_pace(played, real_s))
        if ledger is not None:
            print(_kept(ledger, len(known)))
        print(f"{held} of {len(documents)} seeds held")
    if held < len(documents):
        return BROKEN
    return INTERRUPTED if interrupted else HELD


def _seeds(first: int, runs: int | None, ends_s: float | None) -> Iterator[int]:
    seed = first
    while (runs is None or seed < first + runs) and (
        ends_s is None or seed == first or time.perf_counter() < ends_s
    ):
        yield seed
        seed += 1


@contextmanager
def _results(asked: Iterable[Any], jobs: int, *, in_order: bool) -> Iterator[Iterator[Any]]:
    """Yield the results in the order of the seeds, whatever the number of processes; or as the runs
    end, so that a slow run holds up no other and an interrupt loses no finished one."""
    if jobs == 1:
        yield map(_task, asked)
        return
    with get_context("spawn").Pool(jobs, _leave_ctrl_c_to_the_parent) as pool:
        yield (_ahead if in_order else _as_they_end)(pool, iter(asked), 2 * jobs)


def _leave_ctrl_c_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _ahead(pool: Any, asked: Iterator[Any], most: int) -> Iterator[Any]:
    """Yield results in order, with at most `most` runs begun ahead: the time may be over."""
    waiting = []
    for one in asked:
        waiting.append(pool.apply_async(_task, (one,)))
        if len(waiting) >= most:
            yield waiting.pop(0).get()
    for each in waiting:
        yield each.get()


def _as_they_end(pool: Any, asked: Iterator[Any], most: int) -> Iterator[Any]:
    """Yield results as runs end, with at most `most` at a time."""
    ended: SimpleQueue[Any] = SimpleQueue()
    running = 0
    for one in asked:
        pool.apply_async(_task, (one,), callback=ended.put, error_callback=ended.put)
        running += 1
        if running >= most:
            running -= 1
            yield _returned(ended.get())
    for _ in range(running):
        yield _returned(ended.get())


def _returned(result: Any) -> Any:
    if isinstance(result, BaseException):
        raise result
    return result


def _summary(documents: list[dict[str, Any]], held: int) -> Iterator[str]:
    drawn: dict[str, int] = {}
    effects: dict[str, int] = {}
    for one in documents:
        for kind, count in one["drawn"].items():
            drawn[kind] = drawn.get(kind, 0) + count
            effects[kind] = effects.get(kind, 0) + one["took_effect"].get(kind, 0)
    for kind, count in sorted(drawn.items()):
        yield f"  {kind}: {effects[kind]} of {count} took effect"
    if held < len(documents):
        broken = sorted(one["seed"] for one in documents if one["broken"] is not None)
        yield f"broken: {', '.join(map(str, broken))}"


def _pace(played: list[dict[str, Any]], real_s: float) -> str:
    virtual_s = sum(one["virtual_s"] for one in played)
    return (
        f"{virtual_s / 3600:.2f} virtual hours in {real_s:.0f} s, "
        f"{virtual_s / real_s:.1f} times as fast as the clock"
    )


def _kept(ledger: Ledger, known: int) -> str:
    """Return a line about the runs that were already in the ledger."""
    hours = sum(one["virtual_s"] for one in ledger.runs.values()) / 3600
    others = f"; {ledger.of_other_code} runs of other code count for nothing"
    return (
        f"{known} of the runs were played earlier, {hours:.2f} virtual hours with them"
        f"{others if ledger.of_other_code else ''}"
    )
