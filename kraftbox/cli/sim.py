"""`kraftbox sim`: simulations of whole clusters on virtual time, each from a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kraftbox.cli.output import JsonFlag

Tiered = Annotated[
    bool, typer.Option("--tiered", help="Every cluster has tiered storage; else one in five.")
]

LedgerFile = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        help="Write down each run here, play none again that is there, and count them all.",
    ),
]
UntilMoment = Annotated[
    str | None,
    typer.Option(
        "--until", help="Stop and show what every node knows: 12.5s, 48211, e3 or broken."
    ),
]


def sim(
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, help="The run, or the first; otherwise drawn and told."),
    ] = None,
    runs: Annotated[
        int | None, typer.Option("--runs", min=1, help="So many seeds, one after the other.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", "-m", min=0.0, help="Begin no run after this time.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes.")] = 1,
    faults: Annotated[
        str | None,
        typer.Option("--faults", "-f", help="Kinds, with commas; default: any."),
    ] = None,
    tiered: Tiered = False,
    schedule: Annotated[
        str | None,
        typer.Option("--schedule", help="Play a find by its name, or a file, instead of a seed."),
    ] = None,
    shrink: Annotated[
        bool,
        typer.Option(
            "--shrink", help="Write the smallest schedule that breaks the same promise (--minutes)."
        ),
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Tell all that happened, and write a page with lanes.")
    ] = False,
    until: UntilMoment = None,
    partition: Annotated[
        str | None, typer.Option("--partition", help="Of this partition only, for instance t0-1.")
    ] = None,
    marks: Annotated[
        bool, typer.Option("--marks", help="A table of shapes, faults and rare branches taken.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to write; default: sim-SEED.json or .html."),
    ] = None,
    ledger: LedgerFile = None,
    as_document: JsonFlag = False,
    show_kinds: Annotated[bool, typer.Option("--list", help="Show the kinds of faults.")] = False,
) -> None:
    """Run simulated clusters of this program's own code, with faults, and check their promises.

    A seed determines the cluster, its settings, faults and clients; the same seed gives the same
    trace on every machine. Exit code 0: every promise held; 1: one broke; 2: wrong usage.
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
