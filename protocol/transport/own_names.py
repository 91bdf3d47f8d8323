"""Software names of Kraftbox's own nodes and tools in ApiVersions requests."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Flag, auto

TOOL_SOFTWARE_NAME = "kraftbox"
BROKER_SOFTWARE_NAME = "kraftbox-broker"
CONTROLLER_SOFTWARE_NAME = "kraftbox-controller"


class Own(Flag):
    """Kinds of Kraftbox's own nodes and tools."""

    NOBODY = 0
    TOOL = auto()
    BROKER = auto()
    CONTROLLER = auto()


EVERY_KIND = Own.TOOL | Own.BROKER | Own.CONTROLLER
OWN_BY_NAME: Mapping[str, Own] = {
    TOOL_SOFTWARE_NAME: Own.TOOL,
    BROKER_SOFTWARE_NAME: Own.BROKER,
    CONTROLLER_SOFTWARE_NAME: Own.CONTROLLER,
}
