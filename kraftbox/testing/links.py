"""Faults on the network between two nodes of an isolated cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kraftbox.testing.channel import Helper

__tracebackhide__ = True


class KafkaLink:
    """The link between nodes `a` and `b`, in both directions unless `one_way` (from a to b).

    Each method replaces the fault that the link had. Raises ClusterError.
    """

    def __init__(
        self,
        helper: Helper,
        directory: Path,
        a: int | str,
        b: int | str,
        changed: Callable[[], None],
    ) -> None:
        self._helper = helper
        self._changed = changed
        self._ends = {"dir": str(directory), "a": str(a), "b": str(b)}

    def __repr__(self) -> str:
        return f"<KafkaLink {self._ends['a']} - {self._ends['b']}>"

    def slow(
        self,
        delay_ms: float = 100.0,
        *,
        jitter_ms: float = 0.0,
        rate_bytes_per_s: int = 0,
        one_way: bool = False,
    ) -> None:
        """Delay each packet; `rate_bytes_per_s` 0 does not limit the bandwidth."""
        link = {"delay_ms": delay_ms, "jitter_ms": jitter_ms, "rate_bytes_per_s": rate_bytes_per_s}
        self._change(link, one_way=one_way)

    def lossy(self, loss: float = 0.1, *, one_way: bool = False) -> None:
        """Drop this share of the packets, from 0 to 1."""
        self._change({"loss": loss}, one_way=one_way)

    def cut(self, *, one_way: bool = False) -> None:
        """Drop every packet: connections are not refused, they get no answer."""
        self._change({"loss": 1.0}, one_way=one_way)

    def heal(self) -> None:
        """Make the link whole in both directions."""
        self._change({}, one_way=False)

    def _change(self, link: dict[str, Any], *, one_way: bool) -> None:
        self._helper.ask({"do": "link", **self._ends, "link": link, "one_way": one_way})
        self._changed()
