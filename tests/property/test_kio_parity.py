"""kio as an oracle: an independent implementation with the same bytes for every message it has.

docs/codec-oracles.md lists what kio lacks.
"""

from __future__ import annotations

import io
from pkgutil import resolve_name
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from protocol import codec
from protocol.errors import ErrorCode
from protocol.schema import (
    CoordinatorRecord,
    Message,
    MetadataRecord,
    Struct,
)
from testkit.kafka.beyond import kafka_versions
from testkit.records.kio_messages import (
    kio_classes,
    kio_fields,
    kio_struct,
    to_kio,
)
from testkit.records.messages import EXAMPLES, message_classes, messages_of

# Types of kio with a smaller range than the wire format.
NARROW: dict[str, st.SearchStrategy[Any]] = {
    "error_code": st.sampled_from([code.value for code in KioErrorCode]),
    "timedelta_i64": st.integers(-(2**50), 2**50),
    # kio reads points in time through a float, so whole seconds only.
    "datetime_i64": st.integers(0, 2**35).map(lambda second: second * 1000),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
}


NEWER = {
    "AbortedTxn",
    "StreamsGroupTopologyDescriptionUpdateRequest",
    "StreamsGroupTopologyDescriptionUpdateResponse",
    *("UnregisterControllerRequest", "UnregisterControllerResponse"),
    *("ApiVersionsRequest", "ApiVersionsResponse"),
    *("DeleteGroupsRequest", "DeleteGroupsResponse"),
    *("StreamsGroupDescribeRequest", "StreamsGroupDescribeResponse"),
    *("StreamsGroupHeartbeatRequest", "StreamsGroupHeartbeatResponse"),
    *("TxnOffsetCommitRequest", "TxnOffsetCommitResponse"),
}
"""Messages that are new, or have a new version, in Kafka 4.4. kio follows 4.3; Kafka's own classes
check them (tests/interop)."""
NEWER_CODES = {
    ErrorCode.GROUP_DELETION_FAILED,
    ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED,
    ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
}
OURS = {cls.__name__: cls for cls in message_classes()}
CASES = [
    pytest.param(OURS[name], version, path, id=f"{name}-v{version}")
    for name, version, path in kio_classes()
    if name in OURS and version in OURS[name].VERSIONS
]


def narrowed(cls: type[Struct], kio_class: Any, version: int) -> dict[str, Any]:
    """Return strategies for our fields whose kio type has a smaller range."""
    found: dict[str, Any] = {}
    for f, g, hint in kio_fields(cls, kio_class, version):
        kind = g.metadata.get("kafka_type")
        if kind in NARROW:
            found[f.name] = NARROW[kind]
        inner = kio_struct(hint)
        if inner is not None:
            found |= narrowed(cls.struct_class(f.kind.element or f.kind), inner, version)
    return found


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
    """docs/codec-oracles.md lists these messages; Kafka's own classes check them
    (tests/interop)."""
    known = {(name, version) for name, version, _ in kio_classes()}
    lacking = {
        name
        for name, cls in OURS.items()
        for version in cls.VERSIONS.each()
        if (name, version) not in known
    }
    stored = {n for n, c in OURS.items() if issubclass(c, MetadataRecord | CoordinatorRecord)}
    beyond = {name for name, cls in OURS.items() if kafka_versions(cls) != cls.VERSIONS}
    assert lacking == stored | beyond | NEWER | {"ProducerSnapshot", "QuorumStateData"}


def test_kio_knows_the_same_error_codes() -> None:
    kafkas = set(ErrorCode) - NEWER_CODES - {ErrorCode.REQUEST_LIMIT_REACHED}
    assert {code.value: code.name.upper() for code in KioErrorCode} == {
        int(code): code.name for code in kafkas
    }
    assert {code.value for code in KioErrorCode if code.retriable} == {
        int(code) for code in kafkas if code.retriable
    }
