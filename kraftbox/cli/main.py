"""The command line: commands, command groups, and the handling of their failures.

A command's module is imported when the command runs, not to list it. So the list of commands and
completions take a quarter of a second.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from kraftbox.cli.output import DONE, FAILED, CommandFailed, say_error
from kraftbox.process.interrupts import raise_interrupts


class Listed(NamedTuple):
    """A command or command group: its location, and its line in the list of commands."""

    name: str
    module: str
    function: str
    """A function, or a group's typer application."""
    help: str


LISTED = (
    Listed("up", "starts", "up", "Start a node or a cluster."),
    Listed("server", "starts", "server", "Run one node with a server.properties."),
    Listed("ls", "clusters", "ls", "List your running clusters."),
    Listed("status", "status", "status", "Show the nodes, the quorum and the partitions."),
    Listed("top", "status", "top", "Show a cluster full-screen and update it."),
    Listed("node", "nodes", "node_app", "Kill, stop, pause, disconnect or start single nodes."),
    Listed("link", "link", "app", "Delay, drop or cut traffic between nodes, and heal links."),
    Listed("events", "events", "events", "Show what happened, in order of time."),
    Listed("logs", "node_logs", "logs", "Show the nodes' logs, merged by time."),
    Listed("down", "nodes", "down", "Stop a cluster cleanly."),
    Listed("storage", "storage", "app", "Format and inspect log directories."),
    Listed("topics", "topics", "app", "Create, list, describe, alter and delete topics."),
    Listed("configs", "configs", "app", "Describe and alter configurations."),
    Listed("groups", "groups", "app", "Describe consumer groups and move their offsets."),
    Listed("tier", "tier", "app", "List and verify the segments in tiered storage."),
    Listed("elect", "elect", "elect", "Elect leaders, or explain why a partition has none."),
    Listed("reassign", "reassign", "reassign", "Move partitions to other brokers."),
    Listed("produce", "produce", "produce", "Write lines to a topic, one record each."),
    Listed("consume", "records", "consume", "Read records and print them."),
    Listed("chaos", "chaos", "chaos", "Inject faults, then check the histories of the clients."),
    Listed("dump-log", "dump_log", "dump_log", "Print the contents of log files."),
    Listed(
        "audit",
        "audit",
        "audit",
        "Check a cluster's history in its metadata log.",
    ),
    Listed(
        "prometheus", "prometheus", "prometheus", "Print a Prometheus configuration for a cluster."
    ),
    Listed("grafana", "grafana", "grafana", "List, print or write the Grafana dashboards."),
    Listed("schema", "schema", "schema", "Print the JSON Schema of a document."),
    Listed("man", "man", "man", "Print the manual page of a command."),
    Listed(
        "doctor", "doctor", "doctor", "Check that this machine meets the requirements of a cluster."
    ),
    Listed("sim", "sim", "sim", "Simulate clusters on virtual time, each from a seed."),
)

SETTINGS = {"help_option_names": ["-h", "--help"]}


VALUE_CHARS_MAX = 60


_NO_NUMBER = re.compile(r"(?P<value>.*) is not a valid (?P<kind>int|float)(?: range)?\.", re.DOTALL)
_OUT_OF_RANGE = re.compile(r"(?P<value>\S+) is not in the range (?P<range>\S+)\.")
_KINDS = {"int": "integer", "float": "number"}
_SIGNS = {
    "<": "less than",
    "<=": "less than or equal to",
    ">": "greater than",
    ">=": "greater than or equal to",
}


def name_the_value(error: typer.BadParameter) -> None:
    """Rewrite a parser error to contain the given value, shortened, and the allowed values.

    The parser's own message already names the option.
    """
    if found := _NO_NUMBER.fullmatch(error.message):
        value, allowed = found["value"], f"a valid {_KINDS[found['kind']]}"
    elif found := _OUT_OF_RANGE.fullmatch(error.message):
        # The parser formats 0 as 0.0 if an option accepts fractions.
        value, allowed = repr(found["value"].removesuffix(".0")), range_in_words(found["range"])
    else:
        return
    shown = value if len(value) <= VALUE_CHARS_MAX else value[:VALUE_CHARS_MAX] + "..."
    error.message = f"{shown}: input should be {allowed}"


def range_in_words(text: str) -> str:
    """Return a range such as `0.1<=x<=300`, as the parser formats it, in words."""
    low, _, high = text.partition("x")
    phrases = []
    if low:
        bound = low.rstrip("<=")
        sign = low.removeprefix(bound).replace("<", ">")
        phrases.append(f"{_SIGNS[sign]} {bound.removesuffix('.0')}")
    if high:
        bound = high.lstrip("<>=")
        phrases.append(f"{_SIGNS[high.removesuffix(bound)]} {bound.removesuffix('.0')}")
    return " and ".join(phrases)


def refuse_nan(command: Any) -> None:
    """Make every float option of a command refuse NaN, which passes the check of every range."""
    for sub in getattr(command, "commands", {}).values():
        refuse_nan(sub)
    for param in command.params:
        if param.type.name.startswith("float") and param.callback is None:
            param.callback = _no_nan


_METAVARS = {
    "integer": "N",
    "integer range": "N",
    "float": "NUMBER",
    "float range": "NUMBER",
    "path": "PATH",
    "directory": "FOLDER",
    "file": "FILE",
    "text": "TEXT",
}
_SECONDS = ("timeout", "wait", "timeout_s")


def name_metavars(command: Any) -> None:
    """Give every option without a metavar one of the words that the other options use."""
    for sub in getattr(command, "commands", {}).values():
        name_metavars(sub)
    for param in command.params:
        is_option = param.param_type_name == "option" and not getattr(param, "is_flag", False)
        if is_option and param.metavar is None and not hasattr(param.type, "choices"):
            is_time = param.name in _SECONDS and param.type.name.startswith("float")
            param.metavar = "SECONDS" if is_time else _METAVARS.get(param.type.name, "TEXT")


def _no_nan(_context: object, _param: object, value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        raise typer.BadParameter("'nan' is not a valid float.")
    return value


class Commands(TyperGroup):
    """The list of commands by name; imports the command that is used."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for listed in LISTED:
            self.add_command(
                TyperCommand(listed.name, help=listed.help, rich_markup_mode=None), listed.name
            )

    def invoke(self, ctx: Any) -> Any:
        """Run a command with its arguments; a usage error contains the value that was given."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            name_the_value(error)
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the named command, imported. Raises a usage error for an unknown name."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and imported(name or ""), rest


def imported(name: str) -> Any:
    """Import a command or group; return it with its examples and the options of a cluster."""
    from kraftbox.cli.examples import add_examples

    listed = next(one for one in LISTED if one.name == name)
    found = getattr(import_module(f"kraftbox.cli.{listed.module}"), listed.function)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name)(found)
        found = alone
    command = typer.main.get_command(found)
    if "kraftbox.cli.connect" in sys.modules:
        from kraftbox.cli.connect import add_cluster_options

        add_cluster_options(command)
    refuse_nan(command)
    name_metavars(command)
    add_examples(command, name)
    raise_interrupts()
    return command


app = typer.Typer(
    cls=Commands,
    name="kraftbox",
    help="A Kafka cluster in Python. `kraftbox up` starts a node or a cluster.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=SETTINGS,
)


def _show_version(wanted: bool) -> None:
    """Print the version of the installed distribution and exit."""
    if not wanted:
        return
    from importlib import metadata  # half of the standard library's mail package, for one command

    try:
        version = metadata.version("kraftbox")
    except metadata.PackageNotFoundError as error:
        raise CommandFailed("kraftbox runs from a folder, not installed") from error
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
    """Define the options before any command."""


def main(arguments: Sequence[str]) -> int:
    """Run one command and return the exit code: 0 success, 1 failure, 2 wrong usage, 130
    interrupted.
    """
    command = typer.main.get_command(app)
    try:
        command.main(list(arguments), prog_name="kraftbox", obj=list(arguments))
    except SystemExit as end:
        return int(end.code or 0)
    except CommandFailed as error:
        say_error(*map(str, error.args))
        return FAILED
    return DONE
