"""The table of replay checks by hook."""

from __future__ import annotations

import pytest

from audit.checks import REPLAY_CHECKS
from audit.checks.base import (
    BatchCheck,
    BrokerCheck,
    Check,
    CheckTable,
    ElectionCheck,
    ShapeCheck,
)


def parts_of(check: Check) -> int:
    table = CheckTable([check])
    return sum(check in getattr(table, name) for name in CheckTable.__slots__)


@pytest.mark.parametrize("kind", REPLAY_CHECKS)
def test_check_table_lists_a_check_once_for_each_of_its_hooks(kind: type[Check]) -> None:
    """A hook that no protocol declares would never be called."""
    hooks = [name for name in dir(kind) if name.startswith("on_")]
    assert hooks
    assert parts_of(kind()) == len(hooks)


def test_check_table_keeps_the_order_of_checks() -> None:
    checks = [kind() for kind in REPLAY_CHECKS]
    table = CheckTable(checks)
    for name in CheckTable.__slots__:
        listed = [checks.index(check) for check in getattr(table, name)]
        assert listed
        assert listed == sorted(listed)


def test_protocols_of_different_hooks_are_distinct() -> None:
    """A check of elections is not called for batches, brokers or shapes."""

    class Elections(ElectionCheck):
        name = "elections"

        def on_election(self, election):  # type: ignore[no-untyped-def]
            return ()

    check = Elections()
    assert isinstance(check, ElectionCheck)
    assert not isinstance(check, BatchCheck | BrokerCheck | ShapeCheck)
