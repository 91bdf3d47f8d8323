"""`kraftbox up` and `kraftbox server` for the parser of all commands: their help and their errors.

The quick parser of `kraftbox.cli.up` handles valid arguments, except for forms that it does not
accept.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from kraftbox.cli import up as launch

T = TypeVar("T")


def _checked(read: Callable[[str], T], text: str, option: str | None = None) -> T:
    try:
        return read(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _port(text: str) -> int:
    return _checked(launch.port, text)


def _racks(text: str) -> Any:
    return _checked(launch.racks, text)


def _pairs(option: str, texts: list[str]) -> dict[str, str]:
    return dict(_checked(launch.setting, text, option) for text in texts)


PortOption = Annotated[
    Any,
    typer.Option(
        parser=_port,
        metavar="PORT",
        help="Client port, of several brokers the first; 0 takes free ones. Default: the "
        "directory's own, or 9092.",
    ),
]
Hidden = Annotated[bool, typer.Option(hidden=True)]


def up(
    context: typer.Context,
    dir: Annotated[
        str, typer.Option(help="Everything that the nodes keep.", metavar="FOLDER")
    ] = launch.DIR_DEFAULT,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="A testbed in YAML or JSON: nodes, racks, roles, settings, topics, links, faults "
            "(kraftbox schema testbed).",
        ),
    ] = None,
    port: PortOption = None,
    controllers: Annotated[
        int | None, typer.Option(metavar="N", help="Controllers of a cluster; default: 1.")
    ] = None,
    brokers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Brokers of a cluster; default: 1. More than the directory has are added to it.",
        ),
    ] = None,
    combined: Annotated[
        bool,
        typer.Option(
            "--combined", help="Nodes are controllers and brokers at once, as far as both go."
        ),
    ] = False,
    racks: Annotated[
        Any,
        typer.Option(
            parser=_racks, metavar="A,B,C", help="Racks that the brokers are in, in turn."
        ),
    ] = None,
    isolate: Annotated[
        bool,
        typer.Option(
            "--isolate",
            help="A new cluster gets a network of its own, whose links chaos can cut (Linux, "
            "root).",
        ),
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when it is ready, and let it run on.")
    ] = False,
    settings: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A key of Kafka's server.properties, for every node; repeatable.",
        ),
    ] = [],
    detached: Hidden = False,
    lifeline: Hidden = False,
) -> None:
    """Start a ready node, or a cluster.

    It runs in the foreground until Ctrl-C. A new directory is formatted; an existing cluster
    restarts with the same addresses. Internal topics get up to three replicas, and the first
    rebalance of a group is not delayed. On a pipe the first line is
    bootstrap.servers=HOST:PORT[,HOST:PORT...]. kraftbox status, node, logs and down control the
    cluster; a start with more --brokers adds brokers.
    """
    given = dict(locals())
    del given["context"]
    given |= {"racks": racks or (), "settings": _pairs("--set", settings)}
    raise typer.Exit(launch.run(Namespace(command="up", **given), context.obj))


def server(
    context: typer.Context,
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="server.properties; may be left out with KAFKA_*."),
    ] = None,
    settings: Annotated[
        list[str],
        typer.Option(
            "--override",
            metavar="KEY=VALUE",
            help="A key that wins over the file and the environment; repeatable.",
        ),
    ] = [],
) -> None:
    """Run a node from a server.properties with Kafka's defaults, logging to standard output.

    KAFKA_* environment variables follow the rules of Kafka's container image and override the file;
    --override overrides both. The log directory must be formatted first (kraftbox storage format).
    """
    options = Namespace(command="server", file=file, settings=_pairs("--override", settings))
    raise typer.Exit(launch.run(options, context.obj))
