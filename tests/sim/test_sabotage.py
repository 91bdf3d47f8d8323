"""Planted faults in the simulation's layers, each of which a judge must find.

A fault is a wrong answer of one layer to the one above it. It is planted for a few seeds, and one
of them must end with the broken promise that belongs to it. An exception of the fault's own code
does not count.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from metalog.quorum.log import MetadataLog
from simulation import one_node
from simulation.world.invariants import Violation
from storage.files import LossyFiles
from storage.log import producers
from storage.log.log import Log
from storage.log.manager import LogManager
from storage.log.producers import ProducerStates

pytestmark = pytest.mark.sim

SEEDS = range(1, 41)


async def _flush_nothing(self: Log) -> int:
    self.recovery_point = self.log_end_offset
    return self.recovery_point


async def _flush_no_metadata(self: MetadataLog) -> int:
    return self.end_offset


def _write_in_place(self: LossyFiles, path: str, data: bytes) -> None:
    file = self.open(path, create=True)
    file.truncate(0)
    file.append(data)


def _knows_nothing(*_arguments: Any) -> None:
    return None


def _always_clean(_self: LogManager) -> bool:
    return True


LOST = r"ends at \d+ after the reboot, durable was"
WENT_BACK = r"broker epoch \d+ after|metadata was committed up to|quorum epoch went back"


Patches = list[tuple[Any, str, Callable[..., Any]]]


@pytest.mark.parametrize(
    ("patches", "promise"),
    [
        # The metadata log uses a log, too.
        ([(Log, "flush", _flush_nothing)], f"{LOST}|{WENT_BACK}"),
        ([(MetadataLog, "flush", _flush_no_metadata)], WENT_BACK),
        ([(LossyFiles, "write_atomic", _write_in_place)], r"does not start: .*Refused\("),
        # Two guards, so both are disabled.
        (
            [
                (ProducerStates, "check", _knows_nothing),
                (producers, "_check_sequence", _knows_nothing),
            ],
            "was acknowledged at|is there twice",
        ),
        ([(LogManager, "_take_clean_marker", _always_clean)], LOST),
    ],
    ids=["flush", "metadata flush", "write_atomic", "duplicates", "clean marker"],
)
def test_a_planted_fault_is_found(patches: Patches, promise: str) -> None:
    with contextlib.ExitStack() as stack, pytest.raises(one_node.WorldFailed) as failed:
        for patch in patches:
            stack.enter_context(mock.patch.object(*patch))
        for seed in SEEDS:
            one_node.run(seed)
    broken = failed.value.__cause__
    assert isinstance(broken, Violation), repr(broken)
    assert re.search(promise, str(broken)), broken
    assert f"python -m simulation.run --seeds {failed.value.seed}-{failed.value.seed}" in str(
        failed.value
    )
