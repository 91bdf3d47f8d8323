"""kio, an independent implementation, writes and reads the same bytes, for every message it has.

kio has one dataclass per message and version. Its fields stand in wire order, as ours do, and are
matched by position; some names differ ("timeout" for timeout_ms), types say more (durations,
points in time, an enum of errors). docs/codec-oracles.md lists what kio lacks.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import re
import typing
import uuid
from pkgutil import resolve_name
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer

from protocol import codec
from protocol.errors import ErrorCode
from protocol.schema import (
    CoordinatorRecord,
    Field,
    Message,
    MetadataRecord,
    Struct,
    parse_versions,
)
from testkit.records.messages import EXAMPLES, message_classes, messages_of

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)

# Where kio's type holds less than the wire does.
NARROW: dict[str, st.SearchStrategy[Any]] = {
    "error_code": st.sampled_from([code.value for code in KioErrorCode]),
    "timedelta_i64": st.integers(-(2**50), 2**50),
    # kio reads points in time through a float, so whole seconds only.
    "datetime_i64": st.integers(0, 2**35).map(lambda second: second * 1000),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
}


def kio_classes() -> list[tuple[str, int, str]]:
    """(class name, version, where it is) of all messages of kio."""
    return [
        (path.partition(":")[2], version, path)
        for versions in schema_name_map.values()
        for version, entities in versions.items()
        for path in entities.values()
    ]


OURS = {cls.__name__: cls for cls in message_classes()}
CASES = [
    pytest.param(OURS[name], version, path, id=f"{name}-v{version}")
    for name, version, path in kio_classes()
    if name in OURS and version in OURS[name].VERSIONS
]


def kio_fields(cls: type[Struct], kio_class: Any, version: int) -> list[tuple[Field, Any, Any]]:
    """Our field, kio's field and the resolved type of kio's field."""
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
        }
        assert g.name in names, (cls, f.name, g.name)
    return [(f, g, hints[g.name]) for f, g in zip(ours, theirs, strict=True)]


def kio_struct(hint: Any) -> Any:
    """The dataclass inside `X`, `X | None` or `tuple[X, ...]`; None when there is none."""
    if dataclasses.is_dataclass(hint):
        return hint
    return next((found for inner in typing.get_args(hint) if (found := kio_struct(inner))), None)


def narrowed(cls: type[Struct], kio_class: Any, version: int) -> dict[str, Any]:
    """Strategies for our fields whose kio type holds less."""
    found: dict[str, Any] = {}
    for f, g, hint in kio_fields(cls, kio_class, version):
        kind = g.metadata.get("kafka_type")
        if kind in NARROW:
            found[f.name] = NARROW[kind]
        inner = kio_struct(hint)
        if inner is not None:
            found |= narrowed(cls.struct_class(f.kind.element or f.kind), inner, version)
    return found


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


@pytest.mark.parametrize(("cls", "version", "path"), CASES)
def test_same_bytes(cls: type[Message], version: int, path: str) -> None:
    kio_class = resolve_name(path)
    write, read = entity_writer(kio_class), entity_reader(kio_class)
    by_name = narrowed(cls, kio_class, version)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(messages_of(cls, version, by_name=by_name, scalars={"float64": NARROW["float64"]}))
    def run(msg: Message) -> None:
        theirs = to_kio(msg, kio_class, version)
        buffer = io.BytesIO()
        write(buffer, theirs)
        data = codec.encode(msg, version)
        assert data == buffer.getvalue()
        assert codec.decode(cls, data, version) == (msg, len(data))
        assert read(data, 0) == (theirs, len(data))

    run()


def test_kio_lacks_only_what_never_crosses_a_client_connection() -> None:
    """docs/codec-oracles.md says so; Kafka's own classes judge these (tests/interop)."""
    known = {(name, version) for name, version, _ in kio_classes()}
    lacking = {
        name
        for name, cls in OURS.items()
        for version in cls.VERSIONS.each()
        if (name, version) not in known
    }
    stored = {n for n, c in OURS.items() if issubclass(c, MetadataRecord | CoordinatorRecord)}
    assert lacking == stored | {"ProducerSnapshot", "QuorumStateData"}


def test_kio_knows_the_same_error_codes() -> None:
    assert {code.value: code.name.upper() for code in KioErrorCode} == {
        int(code): code.name for code in ErrorCode
    }
    assert {code.value for code in KioErrorCode if code.retriable} == {
        int(code) for code in ErrorCode if code.retriable
    }
