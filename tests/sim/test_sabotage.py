"""A simulation that cannot fail proves nothing: each planted fault must be found.

A fault is a lie of one layer to the one above it. It is planted for a few seeds, and one of them
must end with a broken promise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from metalog.quorum.log import MetadataLog
from storage.files import LossyFiles
from storage.log.log import Log
from storage.log.manager import LogManager
from storage.log.producers import ProducerStates
from tests.sim import one_node

pytestmark = pytest.mark.sim

SEEDS = range(1, 11)


async def _flush_nothing(self: Log) -> int:
    self.recovery_point = self.log_end_offset
    return self.recovery_point


async def _flush_no_metadata(self: MetadataLog) -> int:
    return self.end_offset


def _write_in_place(self: LossyFiles, path: str, data: bytes) -> None:
    file = self.open(path, create=True)
    file.truncate(0)
    file.append(data)


def _know_no_duplicates(_self: ProducerStates, *_arguments: Any) -> None:
    return None


def _always_clean(_self: LogManager) -> bool:
    return True


@pytest.mark.parametrize(
    ("owner", "name", "lie"),
    [
        (Log, "flush", _flush_nothing),
        (MetadataLog, "flush", _flush_no_metadata),
        (LossyFiles, "write_atomic", _write_in_place),
        (ProducerStates, "check", _know_no_duplicates),
        (LogManager, "_take_clean_marker", _always_clean),
    ],
)
def test_a_planted_fault_is_found(owner: type, name: str, lie: Callable[..., Any]) -> None:
    with mock.patch.object(owner, name, lie), pytest.raises(one_node.WorldFailed) as failed:
        for seed in SEEDS:
            one_node.run(seed)
    assert f"python -m tests.sim.run --seeds {failed.value.seed}-{failed.value.seed}" in str(
        failed.value
    )
