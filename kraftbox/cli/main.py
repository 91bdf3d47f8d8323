"""The command line: commands, groups of commands, and what becomes of their failures."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from typing import Annotated

import typer

from kraftbox.cli import (
    audit,
    chaos,
    configs,
    dump_log,
    elect,
    groups,
    nodes,
    records,
    sim,
    status,
    storage,
    tier,
    topics,
)
from kraftbox.cli.output import DONE, FAILED, CommandFailed, say_error

app = typer.Typer(
    name="kraftbox",
    help="A Kafka cluster in Python. `kraftbox up` starts a node, or a cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    """Print the version of the installed distribution and end."""
    if not asked:
        return
    try:
        version = metadata.version("kraftbox")
    except metadata.PackageNotFoundError as error:
        raise CommandFailed("kraftbox runs from a folder and is not installed") from error
    typer.echo(f"kraftbox {version}")
    raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """What may stand before any command."""


def _elsewhere() -> None:
    raise AssertionError("node commands are taken before this application is built")


# Listed here for the help text; `kraftbox.cli.up` parses and runs them.
app.command("up", help="Start a ready node, or a cluster.", add_help_option=False)(_elsewhere)
app.command("server", help="Run a node from a server.properties.", add_help_option=False)(
    _elsewhere
)
app.command("status")(status.status)
app.add_typer(nodes.node_app, name="node")
app.command("logs")(nodes.logs)
app.command("down")(nodes.down)
app.add_typer(storage.app, name="storage")
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(groups.app, name="groups")
app.add_typer(tier.app, name="tier")
app.command("elect")(elect.elect)
app.command("produce")(records.produce)
app.command("consume")(records.consume)
app.command("chaos")(chaos.chaos)
app.command("dump-log")(dump_log.dump_log)
app.command("audit")(audit.audit)
app.command("sim")(sim.sim)


def main(arguments: Sequence[str]) -> int:
    """Run one command; 0 done, 1 failed, 2 wrong usage."""
    command = typer.main.get_command(app)
    try:
        command.main(list(arguments), prog_name="kraftbox")
    except SystemExit as end:
        return int(end.code or 0)
    except CommandFailed as error:
        say_error(str(error))
        return FAILED
    return DONE
