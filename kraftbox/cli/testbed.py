"""The parts of a testbed besides its nodes: topics, links and faults, in separate processes.

`up --file` reads the testbed file. When the nodes are ready it starts `_testbed ROOT BOOTSTRAP
prepare`, which creates topics and sets links before the cluster counts as ready. Then it starts
`... faults`, which runs the fault schedule and ends with its standard input. Both read the document
as one line of JSON from standard input.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from kraftbox.launcher import control
from kraftbox.launcher.links import WHOLE, Link, LinkRule
from kraftbox.launcher.place import ClusterPlace
from kraftbox.launcher.router import NetworkControl, NetworkError
from runtime.printable import escape

TOPICS_MS_MAX = 30_000.0
ACTION_MS_MAX = 60_000
UNDO = {"kill": "start", "stop": "start", "pause": "resume", "cut-off": "reconnect"}
HOST = 0
CLIENTS = "clients"


class Read(NamedTuple):
    """The content of a testbed file: the options of the start, and the document for later steps."""

    asked: Any
    port: int | None
    settings: Mapping[str, str]
    own: Mapping[int, Mapping[str, str]]
    isolate: bool
    after: Mapping[str, Any] | None


def read(file: str) -> Read:
    """Parse a testbed file. Raises OSError, UnicodeDecodeError, BadDocument."""
    from kraftbox.documents.base import parse
    from kraftbox.documents.testbed import Testbed

    found = parse(Testbed, Path(file).read_text(encoding="utf-8"))
    after = found.model_dump(include={"topics", "links", "faults"})
    return Read(
        found.asked,
        found.port,
        found.settings,
        found.own_settings,
        found.network == "isolated",
        after if any(after.values()) else None,
    )


class Step(NamedTuple):
    """One step of a fault schedule: an action on a node, or new rules of a link."""

    at_s: float
    text: str
    action: str = ""
    node_id: int = 0
    rules: tuple[LinkRule, ...] = ()


def timeline(document: Mapping[str, Any]) -> list[Step]:
    """Return all steps sorted by time; at equal times the end of a fault comes first."""
    whole = {(rule.source, rule.target): rule for rule in starting_links(document)}
    found: list[tuple[float, bool, Step]] = []
    for fault in document["faults"]:
        begin, what = fault["at_seconds"], fault["do"]
        end = None if fault["seconds"] is None else begin + fault["seconds"]
        for node_id in fault["nodes"]:
            found.append((begin, True, Step(begin, f"{what} {node_id}", what, node_id)))
            if end is not None:
                undo = UNDO[what]
                found.append((end, False, Step(end, f"{undo} {node_id}", undo, node_id)))
        if fault["link"]:
            a, b = map(_end, fault["link"])
            ends = ((a, b), (b, a))
            text = "-".join(map(str, fault["link"]))
            rules = tuple(LinkRule(*one, _fault_link(what)) for one in ends)
            found.append((begin, True, Step(begin, f"{what} {text}", rules=rules)))
            if end is not None:
                back = tuple(whole.get(one, LinkRule(*one, WHOLE)) for one in ends)
                found.append((end, False, Step(end, f"heal {text}", rules=back)))
    return [step for _, _, step in sorted(found, key=lambda one: one[:2])]


def starting_links(document: Mapping[str, Any]) -> list[LinkRule]:
    """Return the rules of the links that are not whole at the start."""
    found = []
    for one in document["links"]:
        a, b = map(_end, one["between"])
        link = Link(
            loss=one["loss_percent"] / 100,
            delay_ms=one["delay_ms"],
            jitter_ms=one["jitter_ms"],
            rate_bytes_per_s=one["rate_bytes_per_s"],
        )
        found.append(LinkRule(a, b, link))
        if not one["one_way"]:
            found.append(LinkRule(b, a, link))
    return found


def _end(end: int | str) -> int:
    return HOST if end == CLIENTS else int(end)


def _fault_link(what: str) -> Link:
    from kraftbox.chaos.faults import LOSSY, SLOW
    from kraftbox.chaos.target import CUT

    return {"slow": SLOW, "lossy": LOSSY, "cut": CUT}[what]


def main(arguments: Sequence[str]) -> int:
    """Run `_testbed ROOT BOOTSTRAP prepare|faults`, which `up` starts with the cluster."""
    root, bootstrap, what = arguments
    document = json.loads(sys.stdin.readline())
    place = ClusterPlace(root)
    if what == "faults":
        _do_faults(place, timeline(document))
        return 0
    from kraftbox.cli.output import CommandFailed, say_error

    try:
        _make_topics(bootstrap, document["topics"])
        rules = starting_links(document)
        if rules:
            NetworkControl(place).change_links(rules)
    except (CommandFailed, NetworkError) as error:
        say_error(f"cannot prepare the testbed: {error}")
        return 1
    return 0


def _make_topics(bootstrap: str, topics: Mapping[str, Mapping[str, Any]]) -> None:
    """Create the topics that do not exist. Raises CommandFailed."""
    if not topics:
        return
    from client.admin import Admin, NewTopic
    from client.cluster_client import ClusterClient
    from kraftbox.cli.connect import run

    async def work(client: ClusterClient) -> None:
        wanted = [
            NewTopic(name, one["partitions"], one["replicas"], one["settings"])
            for name, one in topics.items()
        ]
        await Admin(client, TOPICS_MS_MAX).create_topics(wanted, exist_ok=True)
        for topic in topics:
            await client.topic(topic, TOPICS_MS_MAX, is_new=True)

    run(bootstrap, work)


def _do_faults(place: ClusterPlace, steps: Sequence[Step]) -> None:
    """Run the steps until all are done or standard input ends."""
    began_s = time.monotonic()
    for step in steps:
        while (left_s := began_s + step.at_s - time.monotonic()) > 0:
            if select.select([sys.stdin], [], [], left_s)[0]:
                return
        done = escape(_done(place, step))
        clock = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z"
        sys.stderr.write(f"kraftbox: {clock} {step.at_s:g} s: {escape(step.text)}{done}\n")
        sys.stderr.flush()


def _done(place: ClusterPlace, step: Step) -> str:
    """Carry out a step; return the error as `: ERROR`, empty after success."""
    try:
        if step.rules:
            NetworkControl(place).change_links(step.rules)
        else:
            control.act(place, step.action, step.node_id, ACTION_MS_MAX)
    except (control.NotRunning, control.RequestFailed, NetworkError) as error:
        return f": {error}"
    return ""
