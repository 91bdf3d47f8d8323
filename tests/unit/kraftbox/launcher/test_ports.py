"""The ports that a cluster on this machine chooses itself."""

from __future__ import annotations

import random

import pytest

from kraftbox.launcher.place import PORTS, PORTS_VARIABLE, PortChooser, port_is_free, ports_of
from runtime.errors import StartupRefused


def test_below_what_systems_lend_to_outgoing_connections() -> None:
    assert ports_of({}) == ports_of({PORTS_VARIABLE: ""}) == PORTS
    assert PORTS.stop <= 32_768


def test_a_range_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PORTS_VARIABLE, "30000-30400")
    chooser = PortChooser(random.Random(7), set())
    chosen = {chooser.choose() for _ in range(40)}
    assert len(chosen) == 40 and chosen <= set(range(30_000, 30_400))


def test_none_left() -> None:
    free = next(port for port in PORTS if port_is_free(port))
    chooser = PortChooser(random.Random(7), set(), range(free, free + 1))
    assert chooser.choose() == free
    with pytest.raises(StartupRefused, match=f"no free port from {free} to {free}"):
        chooser.choose()


@pytest.mark.parametrize("given", ["7", "a-b", "-1-5", "80-2000", "3000-3000", "3000-65537", "-"])
def test_invalid_port_range_is_refused(given: str) -> None:
    with pytest.raises(StartupRefused, match="KRAFTBOX_PORTS: expected LOW-HIGH"):
        ports_of({PORTS_VARIABLE: given})
