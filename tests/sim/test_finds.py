"""Recorded schedules that once broke a promise: each holds now.

A schedule still finds its bug, if the bug can be planted again.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from broker.replication.partition.remote_replica import RemoteReplica
from broker.tiering.roles import Roles
from simulation import find
from simulation.command import Options, main
from simulation.swarm import run
from storage.log import log, manager
from storage.log.cleaning import rewrite
from storage.log.topic_id_file import take_topic_id
from storage.log.trimming import LogTrimming

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.sim

_delete_oldest = LogTrimming.delete_oldest


def _owes_no_removal(self: LogTrimming, count: int) -> None:
    _delete_oldest(self, count)
    self._durability._durable_removals = self._durability._removals


def _never_flushed(*given: Any, clean: bool) -> Any:
    return take_topic_id(*given, clean=True)


PLANTED: dict[str, tuple[tuple[Any, str, Any], ...]] = {
    "joins-unread": ((RemoteReplica, "may_join", lambda *_arguments: True),),
    "epoch-begin-cleaned": ((rewrite, "_anonymous_frame", lambda _header: None),),
    "removal-undone": ((LogTrimming, "delete_oldest", _owes_no_removal),),
    "topic-id-lost": (
        (manager, "is_unidentified", lambda _log: False),
        (log, "take_topic_id", _never_flushed),
    ),
    "tier-off-then-deleted": ((Roles, "keeps_folder", lambda *_arguments: False),),
}
"""Bugs of recorded schedules, as patches: owner, name, replacement. A second guard has a second
patch."""


@pytest.mark.parametrize("name", find.names())
def test_a_find_holds(name: str) -> None:
    outcome = run(find.named(name).schedule, keep=0)
    assert outcome.broken is None, f"kraftbox sim --schedule {name}: {outcome.broken}"


@pytest.mark.parametrize("name", PLANTED)
def test_a_find_sees_its_bug(name: str) -> None:
    one = find.named(name)
    with contextlib.ExitStack() as planted:
        for patch in PLANTED[name]:
            planted.enter_context(mock.patch.object(*patch))
        broken = run(one.schedule, keep=0).broken
    assert broken is not None and broken.code == one.promise


@pytest.mark.parametrize("name", find.names())
def test_find_names_its_promise_and_its_bug(name: str) -> None:
    one = find.named(name)
    codes = (ROOT / "docs/promises.md").read_text()
    assert re.search(rf"\b{one.promise}\b", codes), one.promise
    assert one.bug and "\n" not in one.bug
    assert len(one.schedule.events) <= 12, "shrink it before it is kept"


def test_a_find_is_played_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(Options(schedule="joins-unread")) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("trace ")
