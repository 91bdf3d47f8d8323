"""Completion of names from a running cluster."""

from __future__ import annotations

from typing import Any

import pytest

from kraftbox.cli import completion
from kraftbox.cli.connect import Chosen
from kraftbox.cli.main import imported
from kraftbox.launcher import control


class Context:
    """The part of a typer context that completions use."""

    def __init__(self, **params: Any) -> None:
        self.params = params


def complete(function: Any, incomplete: str, **params: Any) -> Any:
    return function(Context(**params), incomplete)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"orders": 2, "other": 1}
    monkeypatch.setattr(completion, "_topic_partitions", lambda _: found)


@pytest.mark.usefixtures("cluster")
def test_topics_and_partitions_begin_with_the_word() -> None:
    assert complete(completion.topics, "o") == ["orders", "other"]
    assert complete(completion.partitions, "or") == ["orders-0", "orders-1"]
    assert complete(completion.partitions, "orders-1") == ["orders-1"]


def test_nodes_have_their_states(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [{"id": 1, "state": "killed"}, {"id": 101, "state": "running"}, {"id": 2, "state": "x"}]
    monkeypatch.setattr(control, "status", lambda *_: {"nodes": nodes})
    assert complete(completion.nodes, "1") == [("1", "killed"), ("101", "running")]


def test_cluster_that_does_not_answer_completes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    assert complete(completion.topics, "", bootstrap="127.0.0.1:1") == []
    assert complete(completion.groups, "", bootstrap=Chosen("", str(tmp_path))) == []
    assert complete(completion.nodes, "", directory=tmp_path) == []


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("topics", "describe"), "names"),
        (("topics", "delete"), "names"),
        (("groups", "describe"), "group"),
        (("node", "kill"), "ids"),
        (("node", "start"), "ids"),
        (("logs",), "node_ids"),
        (("elect",), "partitions"),
        (("elect",), "explain"),
        (("configs", "alter"), "topic"),
    ],
)
def test_argument_is_completed_from_the_cluster(words: tuple[str, ...], name: str) -> None:
    command = imported(words[0])
    for word in words[1:]:
        command = command.commands[word]
    (param,) = (one for one in command.params if one.name == name)
    assert param._custom_shell_complete is not None
