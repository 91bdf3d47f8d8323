"""Options shared by Kafka's tools: bootstrap servers, client properties, `name=value` pairs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

from kraftbox.cli.connect import Bootstrap
from kraftbox.cli.output import CommandFailed
from kraftbox.process.properties import read_properties
from runtime.errors import StartupRefused
from runtime.printable import escape


class Parser(argparse.ArgumentParser):
    """An argparse parser with Kafka's exit code for wrong usage."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"{message}\n")


def parser(name: str, what: str) -> Parser:
    return Parser(prog=f"{name}.sh", description=what, allow_abbrev=False)


def add_bootstrap(options: argparse.ArgumentParser, *, controllers: bool = False) -> None:
    """Add `--bootstrap-server`, `--command-config`, and optionally `--bootstrap-controller`."""
    where = options.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--bootstrap-server", metavar="HOST:PORT,...", help="brokers for the first connection"
    )
    if controllers:
        where.add_argument("--bootstrap-controller", metavar="HOST:PORT,...")
    options.add_argument("--command-config", metavar="FILE", help="file of client properties")


def add_actions(options: argparse.ArgumentParser, actions: Iterable[str]) -> None:
    """Add flags of which exactly one is required."""
    group = options.add_mutually_exclusive_group(required=True)
    for action in actions:
        group.add_argument(f"--{action}", action="store_true")


def chosen(options: argparse.Namespace, actions: Iterable[str]) -> str:
    """Return the flag of `add_actions` that was given."""
    return next(action for action in actions if getattr(options, action.replace("-", "_")))


def bootstrap_of(options: argparse.Namespace) -> Bootstrap:
    """Check the client properties and return the bootstrap servers. Raises CommandFailed."""
    check_cluster = True
    for name in ("command_config", "producer_config", "consumer_config"):
        path = getattr(options, name, None)
        if path is not None:
            properties = file_properties(path)
            check_client_properties(properties)
            check_cluster = check_cluster and checks_cluster(properties)
    server: str | None = options.bootstrap_server
    controller: str | None = getattr(options, "bootstrap_controller", None)
    found = server or controller
    assert found is not None, "one of them is required"
    return Bootstrap(found, check_cluster=check_cluster)


def checks_cluster(properties: dict[str, str]) -> bool:
    """Return whether a client with these properties checks the cluster of each node (KIP-1242).

    Without a recovery strategy a Java client of 4.4.0 does not, because it could not begin again.

    Raises:
        CommandFailed: a value that Kafka's client does not have.
    """
    enable = properties.get("metadata.cluster.check.enable", "true").strip().lower()
    if enable not in ("true", "false"):
        raise CommandFailed(f"metadata.cluster.check.enable={enable}: expected true or false")
    strategy = properties.get("metadata.recovery.strategy", "rebootstrap").strip().lower()
    if strategy not in ("none", "rebootstrap"):
        raise CommandFailed(f"metadata.recovery.strategy={strategy}: expected none or rebootstrap")
    return enable == "true" and strategy == "rebootstrap"


def file_properties(path: str) -> dict[str, str]:
    """Read a properties file. Raises CommandFailed."""
    try:
        return read_properties(path)
    except StartupRefused as error:
        raise CommandFailed(str(error)) from None


def check_client_properties(properties: dict[str, str]) -> None:
    """Raise CommandFailed for client properties that the tools do not support.

    Only the security protocol matters; other properties are tuning and are ignored.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT")
    if protocol != "PLAINTEXT":
        raise CommandFailed(f"security.protocol={protocol}: only PLAINTEXT is supported")


def pairs(entries: Iterable[str] | None, option: str) -> dict[str, str]:
    """Parse `name=value` options into a mapping. Raises CommandFailed."""
    found = {}
    for entry in entries or ():
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise CommandFailed(f"{option}: expected NAME=VALUE, got {entry!r}")
        found[name] = value
    return found


def known_pairs(
    options: argparse.Namespace, names: Sequence[str], known: Sequence[str]
) -> dict[str, str]:
    """Return the properties of these options. Raises CommandFailed for an unknown one.

    Kafka ignores unknown properties, and then reads or writes other data than was intended.
    """
    found: dict[str, str] = {}
    for name in names:
        found |= pairs(getattr(options, name.replace("-", "_")), f"--{name}")
    unknown = [key for key in found if key not in known]
    if unknown:
        raise CommandFailed(
            f"--{names[-1]}: unknown property {unknown[0]}; known: {', '.join(known)}"
        )
    return found


def flag(properties: dict[str, str], name: str, default: str = "false") -> bool:
    return properties.get(name, default).strip().lower() == "true"


def columns(rows: Sequence[Sequence[object]]) -> None:
    """Print rows in aligned columns; the first row is the heading."""
    cells = [["-" if cell is None else escape(str(cell)) for cell in row] for row in rows]
    widths = [max(15, *(len(row[at]) for row in cells)) for at in range(len(cells[0]))]
    for row in cells:
        line = " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")
