"""Requests with many names for each API that has a list, to measure how long they hold an event
loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from protocol.api_keys import ApiKey
from protocol.errors import ApiError
from protocol.messages import request_class
from protocol.schema import Kind, Request, Struct, parse_versions
from protocol.transport.dispatch import (
    Body,
    CloseConnection,
    EncodedReply,
    HandlerTable,
    RequestContext,
    error_reply,
    is_body,
    reply_parts,
)
from testkit.memory.broker import Peer

# Fields for which zero is not an ordinary value.
VALUES: dict[str, Any] = {
    "acks": 1,
    "timeout_ms": 600_000,
    "replica_id": -1,
    "timestamp": -1,
    "current_leader_epoch": -1,
    "generation_id_or_member_epoch": -1,
    "resource_type": 2,
    "num_partitions": 1,
    "replication_factor": 1,
    "session_epoch": 0,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "protocol_type": "consumer",
    "group_id": "g",
    "group_instance_id": None,
    "member_id": "m",
    "response_partition_limit": 2_000,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
}
EMPTY = ("desired_leaders", "forgotten_topics_data", "assignments", "configs")
"""Lists that an ordinary request leaves empty where another list is long."""


def lists_of(cls: type[Struct], version: int) -> list[str]:
    """Return the names of the list fields of a struct."""
    return [
        field.name
        for field in cls.FIELDS
        if field.kind.element is not None
        and version in parse_versions(field.versions)
        and field.tag is None
    ]


def long_request(api: ApiKey, version: int, name: str, count: int, *, deep: bool) -> Request[Any]:
    """Return a request with `count` elements in its list `name`, all of them unknown to every node;
    with `deep` in the innermost list of its only element."""
    cls = request_class(api)
    request = cast("Request[Any]", _filled(cls, cls, version, 0, 0, False))
    (field,) = (field for field in cls.FIELDS if field.name == name)
    assert field.kind.element is not None
    outer = 1 if deep else count
    values = [_value(field.kind.element, cls, version, n, count, deep) for n in range(outer)]
    return request.replace(**{name: values})


def is_deep(api: ApiKey, version: int, name: str) -> bool:
    """Return whether the elements of a list have lists themselves."""
    cls = request_class(api)
    (field,) = (field for field in cls.FIELDS if field.name == name)
    return field.kind.element is not None and _has_lists(field.kind.element, cls, version)


def _has_lists(kind: Kind, owner: type[Any], version: int) -> bool:
    return bool(kind.struct_name and lists_of(owner.struct_class(kind), version))


def _value(kind: Kind, owner: type[Any], version: int, n: int, count: int, deep: bool) -> Any:
    if kind.struct_name:
        return _filled(owner.struct_class(kind), owner, version, n, count, deep)
    if kind.name == "string":
        return f"n{n:x}"
    if kind.name == "uuid":
        return (n + 1).to_bytes(16, "big")
    return b"" if kind.name == "bytes" else n % 127 if kind.name == "int8" else n


def _filled(
    cls: type[Struct], owner: type[Any], version: int, n: int, count: int, deep: bool
) -> Struct:
    values: dict[str, Any] = {}
    for field in cls.FIELDS:
        kind = field.kind
        if version not in parse_versions(field.versions) or field.tag is not None:
            continue
        if kind.element is not None:
            inner = 0 if field.name in EMPTY else min(count, 1)
            if deep and inner and not _has_lists(kind.element, owner, version):
                inner = count
            values[field.name] = [
                _value(kind.element, owner, version, i, count, deep) for i in range(inner)
            ]
            # Only one of several lists is long.
            count = min(count, 1)
        elif field.name in VALUES:
            values[field.name] = VALUES[field.name]
        elif kind.name in ("string", "uuid") and field.default is not None:
            values[field.name] = _value(kind, owner, version, n, count, deep)
        elif "index" in field.name or field.name == "partition":
            values[field.name] = n
    return cls(**values)


class LongList(NamedTuple):
    """A list of an API; with `deep` the innermost list of its only element is long."""

    api: ApiKey
    version: int
    name: str
    deep: bool

    def __str__(self) -> str:
        return f"{self.api.name} {self.name}{' deep' if self.deep else ''}"

    def request(self, count: int) -> Request[Any]:
        """Return a request in which the list has `count` elements."""
        return long_request(self.api, self.version, self.name, count, deep=self.deep)


def all_long_lists(table: HandlerTable) -> Iterator[LongList]:
    """Yield every list of every API of a table, in its newest version."""
    for key in sorted(table.entries):
        api, version = ApiKey(key), table.entries[key].own_version_max
        for name in lists_of(request_class(api), version):
            for deep in (False, True) if is_deep(api, version, name) else (False,):
                yield LongList(api, version, name, deep)


async def serve(
    table: HandlerTable, request: Request[Any], version: int, peer: Peer, received_ms: float
) -> tuple[int, Sequence[Any]] | None:
    """Serve a request as a listener does behind the decoder. Returns: None if it closes the
    connection."""
    entry = table.entries[request.API_KEY]
    context = RequestContext(
        cast(Any, peer), ApiKey(request.API_KEY), version, 1, "c", received_ms, "User:ANONYMOUS",
        "127.0.0.1", "PLAINTEXT", 1 << 20,
    )  # fmt: skip
    body: Body
    try:
        reply = entry.handler(context, request)
        body = reply if is_body(reply) else await cast("Awaitable[Body]", reply)
    except ApiError as error:
        try:
            body = error_reply(entry, version, error)
        except CloseConnection:
            return None
    except CloseConnection:
        return None
    if body is None:
        return None
    parts = reply_parts(body, entry, version, 1)
    if not isinstance(body, EncodedReply):
        entry.count_errors(body, lambda code: None)
    return parts


class CallCountingLoop(asyncio.SelectorEventLoop):
    """Counts the calls of Python functions and builtins in each iteration: the same on every
    machine. `longest` is the most in one iteration since `reset`."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = self.total = self._calls = 0

    def reset(self) -> None:
        """Count from scratch, from the next iteration on."""
        self.longest = self.total = self._calls = 0

    def count(self) -> Callable[[], None]:
        """Start counting. Returns: a function that stops it."""

        def call(_frame: object, event: str, _argument: object) -> None:
            if event == "call" or event == "c_call":
                self._calls += 1

        sys.setprofile(call)
        return lambda: sys.setprofile(None)

    def _run_once(self) -> None:
        self._calls = 0
        super()._run_once()  # type: ignore[misc]
        self.total += self._calls
        self.longest = max(self.longest, self._calls)
