"""Connection of a command to its cluster, with error messages for users.

A cluster is named by address or by directory. In this order: `--bootstrap-server` or `--dir`,
KRAFTBOX_BOOTSTRAP, KRAFTBOX_DIR, a cluster that runs in ./kraftbox-data, localhost:9092.

A command that fails prints Kafka's error name and message, and exits with 1.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import typer

from client.addresses import Address, parse_addresses
from client.cluster_client import ClusterClient
from client.errors import BadAddress, ClientError
from kraftbox.cli.output import CommandFailed, say_error
from kraftbox.cli.reachability import Unreachable, answering_first, refusal
from protocol.errors import ApiError, EncodeError, ProtocolError

T = TypeVar("T")

CLIENT_ID = "kraftbox-cli"
CONNECT_MS_MAX = 3_000
WAIT_S_MAX = 86_400.0

BOOTSTRAP_DEFAULT = "localhost:9092"
DIR_DEFAULT = "kraftbox-data"
PORT_DEFAULT = 9092


class Bootstrap(str):
    """Bootstrap servers of Kafka's tools, which wait for a broker as Kafka's clients do.

    `check_cluster`: the client checks the cluster of each node (KIP-1242).
    """

    check_cluster: bool

    def __new__(cls, servers: str, *, check_cluster: bool = True) -> Bootstrap:
        made = super().__new__(cls, servers)
        made.check_cluster = check_cluster
        return made


class Chosen(str):
    """Bootstrap servers of a command, or the directory of the cluster that has them."""

    directory: str | None
    wait_ms: float

    def __new__(cls, servers: str, directory: str | None = None, wait_ms: float = 0.0) -> Chosen:
        made = super().__new__(cls, servers)
        made.directory = directory
        made.wait_ms = wait_ms
        return made

    def resolved(self) -> str:
        """Return the bootstrap servers, each with a port. Raises CommandFailed."""
        if self.directory is None:
            return with_ports(self)
        from kraftbox.cli.clusters import servers_of  # not needed with an address

        return servers_of(self.directory)


def choose(
    given: dict[str, str | None], environ: dict[str, str], runs: Callable[[str], bool]
) -> tuple[str, str | None]:
    """Return the bootstrap servers and the directory of a command; only one of them counts.

    Args:
        given: the values of `--bootstrap-server` and `--dir`, None for those that are missing.
        environ: KRAFTBOX_BOOTSTRAP and KRAFTBOX_DIR; an empty value is no value.
        runs: returns whether a cluster runs in a directory.

    Raises BadParameter if both options are given.
    """
    servers, directory = given["bootstrap"], given["dir"]
    if servers is not None and directory is not None:
        raise typer.BadParameter("give --bootstrap-server or --dir, not both", param_hint="--dir")
    if servers is None and directory is None:
        servers = environ.get("KRAFTBOX_BOOTSTRAP") or None
        directory = environ.get("KRAFTBOX_DIR") or None if servers is None else None
    if servers is None and directory is None and runs(DIR_DEFAULT):
        directory = DIR_DEFAULT
    return servers or BOOTSTRAP_DEFAULT, directory


def _runs(directory: str) -> bool:
    """Return whether a supervisor serves the directory; without its socket at no cost."""
    if not os.path.exists(f"{directory}/control"):
        return False
    from kraftbox.launcher import control
    from kraftbox.launcher.place import ClusterPlace

    return control.is_supervised(ClusterPlace(directory))


def _chosen(context: typer.Context, value: str) -> Chosen:
    """Replace the value of --bootstrap-server by the cluster that all options name."""
    is_given = _is_given(context, "bootstrap")
    given = {"bootstrap": value if is_given else None, "dir": context.meta.get(_DIR)}
    servers, directory = choose(given, dict(os.environ), _runs)
    return Chosen(servers, directory, context.meta.get(_WAIT, 0.0) * 1000)


def _is_given(context: typer.Context, name: str) -> bool:
    source: Any = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


_DIR, _WAIT = "kraftbox.dir", "kraftbox.wait"

BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="KRAFTBOX_BOOTSTRAP",
        metavar="HOST[:PORT][,...]",
        help="Address of a broker; the default port is 9092.",
        callback=_chosen,
    ),
]


def _keep(key: str) -> Callable[[typer.Context, Any], Any]:
    def keep(context: typer.Context, value: Any) -> Any:
        if value is not None:
            context.meta[key] = value
        return value

    return keep


def _cluster_options(
    directory: Annotated[
        str | None,
        typer.Option(
            "--dir",
            metavar="FOLDER",
            is_eager=True,
            expose_value=False,
            callback=_keep(_DIR),
            help=(
                "Folder of a local cluster, instead of --bootstrap-server. Default: KRAFTBOX_DIR, "
                "or kraftbox-data if a cluster runs there."
            ),
        ),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0.0,
            max=WAIT_S_MAX,
            is_eager=True,
            expose_value=False,
            callback=_keep(_WAIT),
            show_default=False,
            help="Seconds to wait until a broker answers; without it the command fails at once.",
        ),
    ] = 0.0,
) -> None:
    """Declare the options that `add_cluster_options` adds to other commands."""


def add_cluster_options(command: Any) -> None:
    """Add --dir and --wait to a command, or to all commands of a group, with --bootstrap-server."""
    for sub in getattr(command, "commands", {}).values():
        add_cluster_options(sub)
    names = {param.name for param in command.params}
    if "bootstrap" not in names or "directory" in names:
        return
    alone = typer.Typer(add_completion=False)
    alone.command()(_cluster_options)
    added = [one for one in typer.main.get_command(alone).params if one.name != "help"]
    at = next(at for at, one in enumerate(command.params) if one.name == "bootstrap") + 1
    command.params[at:at] = added


def with_ports(bootstrap: str) -> str:
    """Return the addresses, each with a port."""
    entries = [entry.strip() for entry in bootstrap.split(",")]
    return ",".join(
        f"{entry}:{PORT_DEFAULT}" if entry and (":" not in entry or entry.endswith("]")) else entry
        for entry in entries
    )


def run(bootstrap: str, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
    """Connect, await `work`, disconnect. Raises CommandFailed.

    A command fails at once if no address answers, unless `Chosen` has a time to wait.
    """
    check_cluster = bootstrap.check_cluster if isinstance(bootstrap, Bootstrap) else True
    servers = bootstrap.resolved() if isinstance(bootstrap, Chosen) else with_ports(bootstrap)

    async def whole() -> T:
        addresses: str | list[Address] = servers
        if not isinstance(bootstrap, Bootstrap):
            addresses = await _reached(servers, getattr(bootstrap, "wait_ms", 0.0))
        async with await ClusterClient.connect(
            addresses, CLIENT_ID, CONNECT_MS_MAX, check_cluster=check_cluster
        ) as client:
            return await work(client)

    with in_words(servers):
        return asyncio.run(whole())


async def _reached(servers: str, wait_ms: float) -> list[Address]:
    """Return the addresses, beginning with one that answers. Raises CommandFailed, BadAddress."""
    addresses = parse_addresses(servers)
    try:
        return await answering_first(addresses, wait_ms, say_error)
    except Unreachable as error:
        from kraftbox.cli.clusters import suggestions

        raise CommandFailed(f"cannot reach {error}", *suggestions()) from None


@contextmanager
def in_words(bootstrap: str) -> Iterator[None]:
    """Translate errors of a connection to these addresses into CommandFailed."""
    try:
        yield
    except BadAddress as error:
        raise CommandFailed(f"--bootstrap-server: {error}") from None
    except ClientError as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise CommandFailed(f"cannot reach {bootstrap}: {refusal(error).reason}") from None
    except (ApiError, ProtocolError, EncodeError) as error:
        raise CommandFailed(f"{bootstrap}: {error or type(error).__name__}") from None
