"""One event of a schedule: which fault, or which wish of an operator, when, and to whom.

A target is a node or a role that is resolved when the event is due (`simulation.targets`): equal
run, equal resolution. An event's own chance comes from the seed and its name, so that taking one
out changes no other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """One fault. `name` is its own in the schedule and names its chance; `args` are its kind's."""

    name: str
    at_ms: int
    kind: str
    target: str
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def for_ms(self) -> int:
        """How long it lasts."""
        return int(self.args.get("for_ms", 0))

    def details(self) -> str:
        """How long and how, for people; begins with a comma unless there is nothing to say."""
        lasts = [f"for {self.for_ms / 1000:g} s"] if self.for_ms else []
        args = [f"{key} {value}" for key, value in self.args.items() if key != "for_ms"]
        return "".join(f", {one}" for one in [*lasts, *args])
