"""Changes that judges look for, recorded by hooks in the objects: most callbacks make none.

While the hooks are installed, assigning one of the attributes below marks its object. The product
is unaware of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

from broker.replication.partition.partition import Partition
from kraftbox.node import Node
from metalog.quorum.core.replica import Replica
from storage.log.bounds import LogBounds

WATCHED: dict[type, frozenset[str]] = {
    Partition: frozenset({"role", "leader_epoch", "partition_epoch", "isr", "maximal_isr", "log"}),
    LogBounds: frozenset(
        {
            "high_watermark",
            "log_end_offset",
            "recovery_point",
            "log_start_offset",
            "local_log_start_offset",
            "bootstrapping",
        }
    ),
    Replica: frozenset({"epoch", "state", "leader_id", "high_watermark", "flushed_end"}),
    Node: frozenset({"loader", "broker", "quorum"}),
}


class Changes:
    """`marked` has the ids of objects that were written to, until `looked`. A judge that finds
    something inside a node's own code marks itself, so that its `after` is called at once."""

    def __init__(self) -> None:
        self.marked: set[int] = set()
        self._found: tuple[Iterable[Partition], list[Partition]] | None = None

    def among(self, replicas: Iterable[Partition]) -> list[Partition]:
        """Return the replicas of a broker that were written to, or whose logs were. The result is
        cached, since several judges need it after the same callback."""
        if self._found is None or self._found[0] is not replicas:
            marked = self.marked
            some = [one for one in replicas if id(one) in marked or id(one.log.bounds) in marked]
            self._found = replicas, some
        return self._found[1]

    def looked(self) -> None:
        """Clear the marks: every judge has seen them."""
        self.marked.clear()
        self._found = None

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Install the hooks: inside, objects of the watched classes mark themselves."""
        with contextlib.ExitStack() as stack:
            for kind, names in WATCHED.items():
                # The classes inherit this attribute from `object`; so the patch creates it, and
                # removes it again.
                setter = _setter(self.marked, names)
                stack.enter_context(mock.patch.object(kind, "__setattr__", setter))
            yield


def _setter(marked: set[int], names: frozenset[str]) -> Callable[[Any, str, Any], None]:
    assign = object.__setattr__

    def set_and_mark(one: Any, name: str, value: Any) -> None:
        assign(one, name, value)
        if name in names:
            marked.add(id(one))

    return set_and_mark
