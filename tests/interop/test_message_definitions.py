"""Our message classes compared, field by field, with the definitions inside Kafka's jars."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.ids import ZERO_UUID
from protocol.json_form import camel
from protocol.schema import (
    FRESH,
    ApiMessage,
    ControlRecord,
    CoordinatorRecord,
    Field,
    Kind,
    Message,
    MetadataRecord,
    Request,
    Struct,
    parse_versions,
)
from testkit.kafka.beyond import BEYOND_KAFKA, Beyond, kafka_versions
from testkit.kafka.jars import kafka_libs
from testkit.records.messages import message_classes
from tools.generate_messages import definitions

pytestmark = pytest.mark.interop

CONTROL_TYPES = {
    "EndTxnMarker": -1,
    "LeaderChangeMessage": 2,
    "SnapshotHeaderRecord": 3,
    "SnapshotFooterRecord": 4,
    "KRaftVersionRecord": 5,
    "VotersRecord": 6,
}


PRIVATE_TAG_MIN = 10000
ZEROS: dict[str, Any] = {"bool": False, "string": "", "bytes": b"", "records": b"", "float64": 0.0}


@pytest.fixture(scope="module")
def kafka() -> dict[str, dict[str, Any]]:
    """Return Kafka's definitions by message name, without those of removed APIs."""
    libs = kafka_libs()
    if libs is None:
        pytest.skip("no Java or Maven to get Kafka's jars with (docs/gaps.md)")
    return {d["name"]: d for d in definitions(libs) if d["validVersions"] != "none"}


@pytest.fixture(scope="module")
def ours() -> dict[str, type[Message]]:
    return {cls.__name__: cls for cls in message_classes()}


def test_every_message_is_there(
    kafka: dict[str, dict[str, Any]], ours: dict[str, type[Message]]
) -> None:
    whole = {name for name, beyond in BEYOND_KAFKA.items() if beyond.whole}
    assert ours.keys() == kafka.keys() | whole
    assert not kafka.keys() & whole


def test_messages(kafka: dict[str, dict[str, Any]], ours: dict[str, type[Message]]) -> None:
    for name, definition in kafka.items():
        cls = ours[name]
        assert str(kafka_versions(cls)) == definition["validVersions"], name
        assert str(cls.FLEXIBLE) == definition["flexibleVersions"], name
        check_kind_of_message(cls, definition)
        check_fields(cls, cls, definition["fields"])
        structs = dict(all_structs(definition))
        beyond = BEYOND_KAFKA.get(name, Beyond())
        assert cls.structs().keys() == structs.keys() | beyond.structs, name
        for struct_name, fields in structs.items():
            check_fields(cls, cls.structs()[struct_name], fields)


def check_kind_of_message(cls: type[Message], definition: dict[str, Any]) -> None:
    kind = definition["type"]
    if kind in ("request", "response"):
        assert issubclass(cls, ApiMessage)
        assert definition["apiKey"] == cls.API_KEY
    if kind == "request":
        assert issubclass(cls, Request)
        assert list(cls.LISTENERS) == definition.get("listeners", [])
        last = kafka_versions(cls).last
        unstable = [last] if definition.get("latestVersionUnstable") else []
        # Versions that Kafka has not released are offered to others only as unstable.
        unstable += range(last + 1, cls.VERSIONS.last + 1)
        assert list(cls.UNSTABLE.each()) == unstable
        assert cls.response_class().API_KEY == cls.API_KEY
    elif kind == "metadata" or kind.startswith("coordinator"):
        assert issubclass(cls, MetadataRecord | CoordinatorRecord)
        assert definition["apiKey"] == cls.RECORD_TYPE
    elif cls.__name__ in CONTROL_TYPES:
        assert issubclass(cls, ControlRecord)
        assert CONTROL_TYPES[cls.__name__] == cls.CONTROL_TYPE


def all_structs(definition: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    found = [(s["name"], s["fields"]) for s in definition.get("commonStructs", [])]
    pending = [definition["fields"], *(fields for _, fields in found)]
    while pending:
        for spec in pending.pop():
            if spec.get("fields"):
                found.append((spec["type"].removeprefix("[]"), spec["fields"]))
                pending.append(spec["fields"])
    return found


def check_fields(message: type[Message], struct: type[Struct], specs: list[dict[str, Any]]) -> None:
    where = struct.__qualname__
    names = [spec["name"][0].lower() + spec["name"][1:] for spec in specs]
    beyond = BEYOND_KAFKA.get(message.__name__, Beyond())
    private = {f.name: f.tag for f in struct.FIELDS if (f.tag or 0) >= PRIVATE_TAG_MIN}
    assert private == (beyond.tagged if struct is message else {}), where
    newer = beyond.fields.get(struct.__name__, frozenset())
    fields = [f for f in struct.FIELDS if f.name not in private and f.name not in newer]
    assert len(fields) + len(private) + len(newer) == len(struct.FIELDS), where
    for f in struct.FIELDS:
        if f.name in newer:
            assert beyond.versions_from is not None, where
            assert parse_versions(f.versions).first >= beyond.versions_from, where
    assert [camel(f.name) for f in fields] == names, where
    for f, spec in zip(fields, specs, strict=True):
        check_field(message, f, spec, f"{where}.{f.name}")


def check_field(message: type[Message], f: Field, spec: dict[str, Any], where: str) -> None:
    versions = spec.get("versions", spec.get("taggedVersions"))
    assert f.versions == versions, where
    assert wire_type(f.kind) == spec["type"], where
    assert parse_versions(f.nullable) == parse_versions(spec.get("nullableVersions", "none"))
    assert f.tag == spec.get("tag"), where
    if f.tag is not None:
        assert spec["taggedVersions"] == versions, where
    assert f.ignorable == (spec.get("ignorable") in (True, "true")), where
    assert f.flexible == spec.get("flexibleVersions"), where
    assert f.default == default_value(spec), where
    assert type(f.default) is type(default_value(spec)), where


def wire_type(kind: Kind) -> str:
    return repr(kind)


def default_value(spec: dict[str, Any]) -> Any:
    kind = spec["type"]
    scalar = kind in ZEROS or kind.startswith(("int", "uint"))
    text = spec.get("default")
    if text is None:
        text = ""  # a bare JSON null gives no default, unlike the string "null"
    if text == "null":
        return None
    if kind == "uuid":
        assert text == ""
        return ZERO_UUID
    if not scalar:
        assert text == ""
        return FRESH
    if kind in ZEROS:
        return str(text).lower() == "true" if kind == "bool" else ZEROS[kind]
    return int(str(text), 0) if text != "" else 0
