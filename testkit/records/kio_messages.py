"""Our messages converted to those of kio, an independent implementation that encodes them for
comparison.

kio has one dataclass per message and version. Its fields stand in wire order, as ours do, and are
matched by position; some names differ ("timeout" for timeout_ms), and types are more specific
(durations, points in time, an enum of errors).
"""

from __future__ import annotations

import dataclasses
import datetime
import re
import typing
import uuid
from typing import Any

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import schema_name_map

from protocol.schema import Field, Struct, parse_versions

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)


def kio_classes() -> list[tuple[str, int, str]]:
    """Return (class name, version, path) of all messages of kio."""
    return [
        (path.partition(":")[2], version, path)
        for versions in schema_name_map.values()
        for version, entities in versions.items()
        for path in entities.values()
    ]


NAMES_BEFORE = {
    "generation_id_or_member_epoch": "generation_id",
    "acceptable_recovery_lag_legacy": "acceptable_recovery_lag",
}
"""Names of fields before Kafka 4.4, by the present name: other implementations still use them."""


def kio_fields(cls: type[Struct], kio_class: Any, version: int) -> list[tuple[Field, Any, Any]]:
    """Return our field, kio's field and the resolved type of kio's field."""
    ours = [f for f in cls.FIELDS if version in parse_versions(f.versions)]
    theirs = dataclasses.fields(kio_class)
    assert len(ours) == len(theirs), (cls, [f.name for f in theirs])
    hints = typing.get_type_hints(kio_class)
    for f, g in zip(ours, theirs, strict=True):
        names = {
            f.name,
            f.name + "_",
            re.sub("_ms$", "", f.name),
            f.name.replace("kraft", "k_raft"),
            NAMES_BEFORE.get(f.name, f.name),
        }
        assert g.name in names, (cls, f.name, g.name)
    return [(f, g, hints[g.name]) for f, g in zip(ours, theirs, strict=True)]


def kio_struct(hint: Any) -> Any:
    """Return the dataclass inside `X`, `X | None` or `tuple[X, ...]`, else None."""
    if dataclasses.is_dataclass(hint):
        return hint
    return next((found for inner in typing.get_args(hint) if (found := kio_struct(inner))), None)


def to_kio(value: Struct, kio_class: Any, version: int) -> Any:
    arguments = {}
    for f, g, hint in kio_fields(type(value), kio_class, version):
        item = getattr(value, f.name)
        arguments[g.name] = value_to_kio(item, g.metadata.get("kafka_type"), hint, version)
    return kio_class(**arguments)


def value_to_kio(value: Any, kind: str | None, hint: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return tuple(value_to_kio(item, kind, hint, version) for item in value)
    if isinstance(value, Struct):
        return to_kio(value, kio_struct(hint), version)
    match kind:
        case "error_code":
            return KioErrorCode(value)
        case "uuid":
            return uuid.UUID(bytes=value) if any(value) else None
        case "timedelta_i32" | "timedelta_i64":
            return value * MILLISECOND
        case "datetime_i64":
            return EPOCH + value * MILLISECOND
    return value
