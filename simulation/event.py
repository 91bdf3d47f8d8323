"""One event of a schedule: its fault or operator's request, its time, and its target.

A target is a node or a role that is resolved when the event is due (`simulation.targets`): equal
run, equal resolution. An event's random stream comes from the seed and its name, so that removing
an event changes no other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """One event. `name` is unique in the schedule and names its random stream; `args` depend on the
    kind."""

    name: str
    at_ms: int
    kind: str
    target: str
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def for_ms(self) -> int:
        """Return the event's duration in milliseconds."""
        return int(self.args.get("for_ms", 0))

    def details(self) -> str:
        """Return duration and arguments for people, with a leading comma; may be empty."""
        lasts = [f"for {self.for_ms / 1000:g} s"] if self.for_ms else []
        args = [f"{key} {value}" for key, value in self.args.items() if key != "for_ms"]
        return "".join(f", {one}" for one in [*lasts, *args])
