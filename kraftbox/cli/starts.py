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
        help=(
            "Client port of the first broker; the others use the following ports. "
            "0: free ports. Default: the directory's own port, or 9092."
        ),
    ),
]
Hidden = Annotated[bool, typer.Option(hidden=True)]


FileOption = Annotated[
    str | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help=(
            "Read a testbed in YAML or JSON: nodes, racks, roles, settings, "
            "topics, links, faults (kraftbox schema testbed)."
        ),
    ),
]
BrokersOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help=(
            "Number of brokers; default: 1. A larger number than the directory has adds brokers."
        ),
    ),
]
CombinedOption = Annotated[
    bool,
    typer.Option(
        "--combined",
        help="Give nodes both roles, broker and controller, as far as the numbers allow.",
    ),
]
RacksOption = Annotated[
    Any,
    typer.Option(
        parser=_racks,
        metavar="A,B,C",
        help="Comma-separated racks, assigned to the brokers in turn.",
    ),
]
IsolateOption = Annotated[
    bool,
    typer.Option(
        "--isolate",
        help=("Create the cluster in a network of its own, where links can be cut (Linux, root)."),
    ),
]
SettingsOption = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a key of server.properties for every node; repeatable.",
    ),
]


def up(
    context: typer.Context,
    dir: Annotated[
        str,
        typer.Option(
            envvar="KRAFTBOX_DIR", help="Directory for all data of the nodes.", metavar="FOLDER"
        ),
    ] = launch.DIR_DEFAULT,
    file: FileOption = None,
    port: PortOption = None,
    controllers: Annotated[
        int | None, typer.Option(metavar="N", help="Number of controllers; default: 1.")
    ] = None,
    brokers: BrokersOption = None,
    combined: CombinedOption = False,
    racks: RacksOption = None,
    isolate: IsolateOption = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Exit when the cluster is ready, and leave it running.")
    ] = False,
    settings: SettingsOption = [],
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
        typer.Argument(
            metavar="[FILE]", help="server.properties; optional if KAFKA_* variables are set."
        ),
    ] = None,
    settings: Annotated[
        list[str],
        typer.Option(
            "--override",
            metavar="KEY=VALUE",
            help="Set a key, with precedence over file and environment; repeatable.",
        ),
    ] = [],
) -> None:
    """Run a node from a server.properties with Kafka's defaults, logging to standard output.

    KAFKA_* environment variables follow the rules of Kafka's container image and override the file;
    --override overrides both. The log directory must be formatted first (kraftbox storage format).
    """
    options = Namespace(command="server", file=file, settings=_pairs("--override", settings))
    raise typer.Exit(launch.run(options, context.obj))
