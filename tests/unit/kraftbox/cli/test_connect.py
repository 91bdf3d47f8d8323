"""The cluster that the options and variables of a command name."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from client.cluster_client import ClusterClient
from kraftbox.cli import connect
from kraftbox.cli.connect import BOOTSTRAP_DEFAULT, DIR_DEFAULT, choose
from kraftbox.cli.main import imported
from kraftbox.cli.main import main as cli
from kraftbox.cli.output import CommandFailed

BOTH = {"KRAFTBOX_BOOTSTRAP": "env:1", "KRAFTBOX_DIR": "envdir"}


@pytest.mark.parametrize(
    ("bootstrap", "directory", "environ", "here", "expected"),
    [
        ("h:1", None, BOTH, True, ("h:1", None)),
        (None, "d", BOTH, True, (BOOTSTRAP_DEFAULT, "d")),
        (None, None, BOTH, True, ("env:1", None)),
        (None, None, {"KRAFTBOX_DIR": "envdir"}, True, (BOOTSTRAP_DEFAULT, "envdir")),
        (None, None, {"KRAFTBOX_DIR": ""}, True, (BOOTSTRAP_DEFAULT, DIR_DEFAULT)),
        (None, None, {}, False, (BOOTSTRAP_DEFAULT, None)),
    ],
)
def test_choice_prefers_options_then_variables_then_the_folder_here(
    bootstrap: str | None,
    directory: str | None,
    environ: dict[str, str],
    here: bool,
    expected: tuple[str, str | None],
) -> None:
    given = {"bootstrap": bootstrap, "dir": directory}
    assert choose(given, environ, lambda _: here) == expected


def test_choice_refuses_both_options() -> None:
    with pytest.raises(typer.BadParameter, match="not both"):
        choose({"bootstrap": "h:1", "dir": "d"}, {}, lambda _: False)


GROUPS = ("topics", "configs", "groups", "elect", "reassign", "produce", "consume")


@pytest.mark.parametrize("name", GROUPS)
def test_command_with_an_address_takes_a_folder(name: str) -> None:
    """One way to name a cluster: --dir works for every command that needs one."""
    command = imported(name)
    for one in getattr(command, "commands", {"": command}).values():
        options = {option for param in one.params for option in param.opts}
        assert {"--bootstrap-server", "--dir", "--wait"} <= options


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Replace the network: return the addresses that a command checks and connects to."""
    found: list[Any] = []

    async def answering_first(addresses: Any, wait_ms: float, _notice: Any) -> Any:
        found.append((addresses, wait_ms))
        return addresses

    async def no_connection(*arguments: Any, **_: Any) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(connect, "answering_first", answering_first)
    monkeypatch.setattr(ClusterClient, "connect", no_connection)
    for name in ("KRAFTBOX_DIR", "KRAFTBOX_BOOTSTRAP"):
        monkeypatch.delenv(name, raising=False)
    return found


def test_folder_of_a_command_is_resolved_to_its_brokers(
    reached: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def servers_of(directory: str) -> str:
        asked.append(directory)
        return "127.0.0.1:26001"

    monkeypatch.setattr("kraftbox.cli.clusters.servers_of", servers_of)
    assert cli(["topics", "list", "--dir", "tb", "--wait", "2.5"]) == 1
    assert (asked, reached) == (["tb"], [([("127.0.0.1", 26001)], 2500.0)])
    monkeypatch.setenv("KRAFTBOX_DIR", "other")
    assert cli(["groups", "list"]) == 1
    assert (asked, reached[1:]) == (["tb", "other"], [([("127.0.0.1", 26001)], 0.0)])


def test_address_of_a_command_wins_over_the_folder_of_the_environment(
    reached: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRAFTBOX_DIR", "other")
    assert cli(["topics", "list", "-b", "h"]) == 1
    assert reached == [([("h", 9092)], 0.0)]


def test_failure_of_a_check_names_running_clusters(
    reached: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable(*_: Any) -> None:
        raise connect.Unreachable("h:1: Connection refused")

    monkeypatch.setattr(connect, "answering_first", unreachable)
    monkeypatch.setattr("kraftbox.cli.clusters.suggestions", lambda: ["running: --dir /tb (h:2)"])
    with pytest.raises(CommandFailed) as failed:
        connect.run("h:1", lambda client: client.metadata([]))
    assert failed.value.args == (
        "cannot reach h:1: Connection refused",
        "running: --dir /tb (h:2)",
    )
