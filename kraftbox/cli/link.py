"""`kraftbox link`: faults on single links of an isolated cluster: slow, lossy or cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from kraftbox.chaos.faults import LOSSY, SLOW
from kraftbox.chaos.target import CUT, HOST
from kraftbox.cli.clusters import not_running
from kraftbox.cli.nodes import DIR_DEFAULT, DirOption
from kraftbox.cli.output import CommandFailed, JsonFlag, command_group, say, say_json, table
from kraftbox.launcher import control
from kraftbox.launcher.links import WHOLE, Link, LinkRule
from kraftbox.launcher.place import ClusterPlace
from kraftbox.launcher.router import NetworkControl, NetworkError

CLIENTS = "clients"
"""The name of this machine as an end of a link."""

app = command_group(
    "Delay, drop or cut traffic between two nodes, and heal links (clusters of `up --isolate`)."
)


def _end(text: str) -> int:
    if text == CLIENTS:
        return HOST
    if not text.isdecimal() or int(text) == HOST:
        raise typer.BadParameter(f"{text!r}: expected a node's id or {CLIENTS!r}")
    return int(text)


First = Annotated[
    int,
    typer.Argument(
        metavar="A",
        parser=_end,
        help=f"One end: a node's id, or `{CLIENTS}` for clients on this machine.",
    ),
]
Second = Annotated[int, typer.Argument(metavar="B", parser=_end, help="Other end of the link.")]
OneWay = Annotated[
    bool, typer.Option("--one-way", help="Change the direction from A to B only; default: both.")
]


@app.command()
def slow(
    a: First,
    b: Second,
    delay: Annotated[
        float,
        typer.Option("--delay", metavar="MS", min=0, help="Delay of each packet in milliseconds."),
    ] = SLOW.delay_ms,
    jitter: Annotated[
        float,
        typer.Option(
            "--jitter", metavar="MS", min=0, help="Random deviation from the delay in milliseconds."
        ),
    ] = SLOW.jitter_ms,
    rate: Annotated[
        int,
        typer.Option(
            "--rate", metavar="BYTES", min=0, help="Bandwidth in bytes per second; 0: unlimited."
        ),
    ] = SLOW.rate_bytes_per_s,
    one_way: OneWay = False,
    directory: DirOption = DIR_DEFAULT,
) -> None:
    """Delay packets between A and B."""
    link = Link(delay_ms=delay, jitter_ms=jitter, rate_bytes_per_s=rate)
    _change(directory, a, b, link, "is slow", one_way=one_way)


@app.command()
def lossy(
    a: First,
    b: Second,
    loss: Annotated[
        float,
        typer.Option(
            "--loss", metavar="PERCENT", min=0, max=100, help="Percentage of packets to drop."
        ),
    ] = 100 * LOSSY.loss,
    one_way: OneWay = False,
    directory: DirOption = DIR_DEFAULT,
) -> None:
    """Lose packets between A and B, duplicate some and reorder some."""
    link = LOSSY._replace(loss=loss / 100)
    _change(directory, a, b, link, "is lossy", one_way=one_way)


@app.command()
def cut(a: First, b: Second, one_way: OneWay = False, directory: DirOption = DIR_DEFAULT) -> None:
    """Drop all packets between A and B: connections are not refused, they get no answer."""
    _change(directory, a, b, CUT, "is cut", one_way=one_way)


@app.command()
def heal(
    a: Annotated[
        int | None,
        typer.Argument(
            metavar="[A]", parser=_end, help="One end; without it every link is healed."
        ),
    ] = None,
    b: Annotated[
        int | None, typer.Argument(metavar="[B]", parser=_end, help="Other end of the link.")
    ] = None,
    directory: DirOption = DIR_DEFAULT,
) -> None:
    """Make the links between A and B whole again, in both directions."""
    if (a is None) != (b is None):
        raise typer.BadParameter("give both ends of a link, or neither to heal every link")
    if a is None or b is None:
        try:
            _network(directory)[0].set_links([])
        except NetworkError as error:
            raise CommandFailed(str(error)) from None
        say("healed every link")
        return
    _change(directory, a, b, WHOLE, "is healed", one_way=False)


@app.command("list")
def list_links(directory: DirOption = DIR_DEFAULT, as_json: JsonFlag = False) -> None:
    """List every link that is not whole."""
    network, _ = _network(directory)
    try:
        found = network.links()
    except NetworkError as error:
        raise CommandFailed(str(error)) from None
    if as_json:
        say_json([{"from": r.source, "to": r.target, **r.link._asdict()} for r in found])
        return
    table(
        ("FROM", "TO", "LOST", "DELAY MS", "BYTES/S", "COPIED", "OVERTAKES"),
        [
            (
                _name(rule.source),
                _name(rule.target),
                f"{rule.link.loss:.0%}",
                f"{rule.link.delay_ms:g} +- {rule.link.jitter_ms:g}",
                rule.link.rate_bytes_per_s or None,
                f"{rule.link.duplicate:.0%}",
                f"{rule.link.reorder:.0%}",
            )
            for rule in found
        ],
    )


def rules(a: int, b: int, link: Link, *, one_way: bool) -> list[LinkRule]:
    """Return the rule from A to B, and the rule back unless `one_way`."""
    there, back = LinkRule(a, b, link), LinkRule(b, a, link)
    return [there] if one_way else [there, back]


def check_ends(ends: Sequence[int], nodes: Sequence[int]) -> None:
    """Raise CommandFailed if an end is not a node, or if both ends are equal."""
    for end in ends:
        if end != HOST and end not in nodes:
            known = ", ".join(map(str, nodes))
            raise CommandFailed(f"unknown node {end}; known: {known} and {CLIENTS}")
    if len(set(ends)) < len(ends):
        raise CommandFailed(f"invalid link: both ends are {_name(ends[0])}")


def _change(directory: object, a: int, b: int, link: Link, done: str, *, one_way: bool) -> None:
    network, nodes = _network(directory)
    check_ends((a, b), nodes)
    try:
        network.change_links(rules(a, b, link, one_way=one_way))
    except NetworkError as error:
        raise CommandFailed(str(error)) from None
    between = f"from {_name(a)} to {_name(b)}" if one_way else f"between {_name(a)} and {_name(b)}"
    say(f"the link {between} {done}")


def _network(directory: object) -> tuple[NetworkControl, list[int]]:
    """Return the network and the node IDs of a running cluster. Raises CommandFailed."""
    place = ClusterPlace(str(directory))
    try:
        nodes = [int(node["id"]) for node in control.status(place)["nodes"]]
    except control.NotRunning as error:
        raise not_running(error) from None
    except control.RequestFailed as error:
        raise CommandFailed(str(error)) from None
    known = place.remembered()
    if known is None or not known.network:
        raise CommandFailed(
            "this cluster has no isolated network: create one with `kraftbox up "
            "--isolate` (Linux, root); `kraftbox node cut-off ID` disconnects a node "
            "completely"
        )
    return NetworkControl(place), nodes


def _name(end: int) -> str:
    return CLIENTS if end == HOST else str(end)
