"""Comparison of two nodes: one request to both, and the differences of their responses.

Requests are written as plain dicts and lists and made into messages by the schema, so that a table
of hundreds stays readable. `{v}` in a text is the version of the request, and an `Id` is the id
that the topic of this name has at the node. Responses become plain values again, in which values
that always differ between two nodes are replaced by placeholders.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from protocol.schema import Message, Struct

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
UNSHARED = frozenset(
    {
        *("throttle_time_ms", "cluster_id", "host", "port", "broker_epoch", "controller_epoch"),
        *("last_fetch_timestamp", "last_caught_up_timestamp", "last_timestamp", "log_dir"),
        *("total_bytes", "usable_bytes", "replica_directory_id", "finalized_features_epoch"),
        *("client_host", "log_append_time_ms", "producer_id", "records", "session_id"),
    }
)
"""Fields whose values belong to a node and a moment."""
TEXTS = frozenset({"error_message", "batch_index_error_message", "documentation"})
"""Fields with texts: each node has its own wording, so only null, empty and text are
distinguished."""


class Id(NamedTuple):
    """The id of a topic by its name."""

    topic: str


class Difference(NamedTuple):
    """A value that differs between two responses; list indexes are left out of `path`."""

    path: str
    ours: Any
    theirs: Any


def built(
    kind: type[Struct], body: Mapping[str, Any], version: int, ids: Mapping[str, bytes]
) -> Any:
    """Return a struct of this class from plain values."""
    fields = {field.name: field for field in kind.FIELDS}
    return kind(
        **{
            name: _built(kind, fields[name].kind, value, version, ids)
            for name, value in body.items()
        }
    )


def _built(
    owner: type[Struct], kind: Any, value: Any, version: int, ids: Mapping[str, bytes]
) -> Any:
    if isinstance(value, Id):
        return ids[value.topic]
    if isinstance(value, str):
        return value.replace("{v}", str(version))
    if isinstance(value, list):
        return [_built(owner, kind.element, item, version, ids) for item in value]
    if isinstance(value, dict):
        return built(owner.struct_class(kind), value, version, ids)
    return value


def plain(
    value: Any, names: Mapping[bytes, str], unshared: frozenset[str] = UNSHARED, field: str = ""
) -> Any:
    """Return a response as dicts, lists and values; `names` are the topics by their ids, `unshared`
    the fields that are not compared."""
    if field in unshared:
        return "*"
    if isinstance(value, Message | Struct):
        return {name: plain(part, names, unshared, name) for name, part in value.items()}
    if isinstance(value, list):
        return sorted((plain(item, names, unshared, field) for item in value), key=repr)
    if field in TEXTS and value:
        return "text"
    if isinstance(value, str):
        return UUID.sub("UUID", value)
    if isinstance(value, bytes | bytearray | memoryview):
        found = bytes(value)
        if field == "topic_id" and any(found):
            return f"id of {names.get(found, 'a topic')}"
        return found
    return value


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[Difference]:
    """Yield the differences between two plain values."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in ours:
            yield from differences(ours[name], theirs.get(name), f"{path}.{name}".lstrip("."))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for one, other in zip(ours, theirs, strict=True):
            yield from differences(one, other, path)
    elif ours != theirs:
        yield Difference(path, ours, theirs)
