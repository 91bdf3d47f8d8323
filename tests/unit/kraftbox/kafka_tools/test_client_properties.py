"""Client properties that Kafka's tools observe."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from client.cluster_client import ClusterClient
from kraftbox.cli.connect import Bootstrap, run
from kraftbox.cli.output import CommandFailed
from kraftbox.kafka_tools.options import bootstrap_of

CHECK, STRATEGY = "metadata.cluster.check.enable", "metadata.recovery.strategy"


def bootstrap(tmp_path: Path, **files: str) -> Bootstrap:
    """Return the bootstrap servers with one file of properties for each option."""
    given = argparse.Namespace(bootstrap_server="h:1")
    for option, text in files.items():
        path = tmp_path / option
        path.write_text(text)
        setattr(given, option, str(path))
    return bootstrap_of(given)


@pytest.mark.parametrize(
    ("text", "checks"),
    [
        ("", True),
        (f"{CHECK}=true\n{STRATEGY}=rebootstrap", True),
        (f"{CHECK}=TRUE", True),
        (f"{CHECK}=false", False),
        (f"{STRATEGY}=none", False),
        (f"{STRATEGY}=None\n{CHECK}=true", False),
    ],
)
def test_tool_checks_the_cluster_unless_its_properties_turn_that_off(
    tmp_path: Path, text: str, checks: bool
) -> None:
    """KIP-1242: a client without a recovery strategy sends no cluster id, either."""
    found = bootstrap(tmp_path, command_config=text)
    assert (found, found.check_cluster) == ("h:1", checks)
    assert bootstrap(tmp_path, consumer_config=text).check_cluster is checks


@pytest.mark.parametrize("text", [f"{CHECK}=yes", f"{STRATEGY}=retry", f"{STRATEGY}="])
def test_tool_refuses_values_that_kafkas_client_does_not_have(tmp_path: Path, text: str) -> None:
    with pytest.raises(CommandFailed, match=r"metadata\.\w+\.\w+.*: expected"):
        bootstrap(tmp_path, command_config=text)


@pytest.mark.parametrize("checks", [True, False])
def test_run_connects_with_the_choice_of_the_properties(
    monkeypatch: pytest.MonkeyPatch, checks: bool
) -> None:
    chosen: list[bool] = []

    async def connect(*_: Any, check_cluster: bool) -> None:
        chosen.append(check_cluster)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(ClusterClient, "connect", connect)
    with pytest.raises(CommandFailed, match="cannot reach h:1"):
        run(Bootstrap("h:1", check_cluster=checks), lambda client: client.metadata([]))
    assert chosen == [checks]
