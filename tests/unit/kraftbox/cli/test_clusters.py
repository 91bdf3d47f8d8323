"""Local clusters by their directories: addresses, states, and errors that name the next step."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kraftbox.cli import clusters
from kraftbox.cli.clusters import LocalCluster, in_words, servers_of, suggestions
from kraftbox.cli.main import main as cli
from kraftbox.cli.output import CommandFailed
from kraftbox.launcher import control


def node(node_id: int, state: str = "running", **more: Any) -> dict[str, Any]:
    return {
        "id": node_id,
        "state": state,
        "roles": "broker",
        "cutOff": False,
        "addresses": [f"127.0.0.1:{26000 + node_id}"] if state == "running" else [],
        **more,
    }


CONTROLLER = {**node(101), "roles": "controller", "addresses": []}


@pytest.fixture
def supervised(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Replace the supervisor; return the list of the nodes that it reports."""
    nodes: list[dict[str, Any]] = []
    monkeypatch.setattr(control, "status", lambda *_: {"nodes": nodes})
    return nodes


def test_servers_are_the_brokers_that_can_answer(supervised: list[dict[str, Any]]) -> None:
    """First hours, fault 5: two dead brokers in a list hid the third, which lived."""
    supervised += [
        node(1, "killed"),
        node(2),
        node(3, cutOff=True),
        node(4),
        node(5, "paused", addresses=["127.0.0.1:26005"]),
        CONTROLLER,
    ]
    assert servers_of("d") == "127.0.0.1:26002,127.0.0.1:26004"


def test_servers_of_a_cluster_without_brokers_name_the_remedy(
    supervised: list[dict[str, Any]],
) -> None:
    supervised += [node(1, "killed"), node(2, "killed"), node(3, cutOff=True), CONTROLLER]
    with pytest.raises(CommandFailed) as failed:
        servers_of("/d")
    assert failed.value.args == (
        "no broker of /d can answer: brokers 1, 2 are killed (kraftbox node start 1 2); "
        "broker 3 is cut off (kraftbox node reconnect 3)",
    )


def test_folder_without_cluster_names_those_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [LocalCluster(f"/{name}", "running", [node(1)]) for name in "abcd"]
    monkeypatch.setattr(clusters, "running", lambda: [LocalCluster("/x", "stopping"), *found])
    assert suggestions() == [
        "running: --dir /a (127.0.0.1:26001)",
        "running: --dir /b (127.0.0.1:26001)",
        "running: --dir /c (127.0.0.1:26001)",
        "and 1 more: kraftbox ls",
    ]
    with pytest.raises(CommandFailed, match="no cluster is running in /nowhere\nrunning: --dir /a"):
        servers_of("/nowhere")


def test_nodes_in_words_count_the_states() -> None:
    assert in_words([]) is None
    assert in_words([node(1)]) == "1 of 1 running"
    nodes = [node(1), node(2, "killed"), node(3, cutOff=True)]
    assert in_words(nodes) == "1 of 3 running, 1 killed, 1 cut off"


def test_ls_prints_directory_state_nodes_and_addresses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [
        LocalCluster("/tb", "running", [node(1), node(2, "killed")]),
        LocalCluster("/old", "stopping"),
    ]
    monkeypatch.setattr(clusters, "running", lambda: found)
    assert cli(["ls"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "DIRECTORY  STATE     NODES                     ADDRESSES",
        "/tb        running   1 of 2 running, 1 killed  127.0.0.1:26001",
        "/old       stopping  -                         -",
    ]
    assert cli(["ls", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == {
        "dir": "/tb",
        "state": "running",
        "nodes": [{"id": 1, "state": "running"}, {"id": 2, "state": "killed"}],
        "bootstrapServers": ["127.0.0.1:26001"],
    }


@pytest.mark.parametrize(
    ("error", "state"),
    [(control.NotRunning("x"), "stopping"), (control.RequestFailed("x"), "no answer")],
)
def test_cluster_without_answer_has_a_state(
    monkeypatch: pytest.MonkeyPatch, error: Exception, state: str
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(control, "status", fail)
    assert clusters.look_at("/tb") == LocalCluster("/tb", state)
