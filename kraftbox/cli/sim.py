"""`kraftbox sim`: simulations of whole clusters on virtual time, each from a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kraftbox.cli.output import JsonFlag

Tiered = Annotated[
    bool,
    typer.Option("--tiered", help="Use tiered storage in every cluster; default: in one of five."),
]

LedgerFile = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        help="Record each run in this file, skip the runs that it contains, and print totals.",
    ),
]
UntilMoment = Annotated[
    str | None,
    typer.Option(
        "--until",
        help="Stop at this moment and show the state of every node: 12.5s, 48211, e3 or broken.",
    ),
]


SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed", min=0, help="Seed of the first run; default: random, printed at the start."
    ),
]
ScheduleOption = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        help="Replay a recorded failing seed by name, or a schedule file, instead of a seed.",
    ),
]
ShrinkOption = Annotated[
    bool,
    typer.Option(
        "--shrink",
        help="Write the smallest schedule that breaks the same promise, within --minutes.",
    ),
]
MarksOption = Annotated[
    bool,
    typer.Option(
        "--marks", help="Print a table of shapes, faults and rare branches that were reached."
    ),
]


def sim(
    seed: SeedOption = None,
    runs: Annotated[
        int | None, typer.Option("--runs", min=1, help="Number of runs, each with the next seed.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", "-m", min=0.0, help="Start no run after this many minutes."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes.")] = 1,
    faults: Annotated[
        str | None,
        typer.Option("--faults", "-f", help="Comma-separated kinds of faults; default: any."),
    ] = None,
    tiered: Tiered = False,
    schedule: ScheduleOption = None,
    shrink: ShrinkOption = False,
    show: Annotated[
        bool,
        typer.Option("--show", help="Print every event, and write a page with one lane per node."),
    ] = False,
    until: UntilMoment = None,
    partition: Annotated[
        str | None, typer.Option("--partition", help="Show only this partition, such as t0-1.")
    ] = None,
    marks: MarksOption = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write; default: sim-SEED.json or sim-SEED.html."),
    ] = None,
    ledger: LedgerFile = None,
    as_document: JsonFlag = False,
    show_kinds: Annotated[
        bool, typer.Option("--list", help="List the kinds of faults and exit.")
    ] = False,
) -> None:
    """Run simulated clusters of this program's own code, with faults, and check their promises.

    A seed determines the cluster, its settings, faults and clients; the same seed gives the same
    trace on every machine with the same version of Python. Exit code 0: every promise held; 1: one
    broke; 2: wrong usage.
    """
    from simulation import command

    options = command.Options(
        seed=seed,
        runs=runs,
        minutes=minutes,
        jobs=jobs,
        faults=faults,
        tiered=tiered,
        schedule=schedule,
        shrink=shrink,
        show=show,
        until=until,
        partition=partition,
        marks=marks,
        out=out,
        ledger=ledger,
        as_json=as_document,
        show_kinds=show_kinds,
    )
    code = command.main(options)
    if code:
        raise typer.Exit(code)
