"""kafka-python as an oracle: it decodes our bytes to our values, and encodes the same bytes."""

from __future__ import annotations

import uuid
import warnings
from importlib import import_module
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from protocol import codec
from protocol.ids import ZERO_UUID
from protocol.schema import Message, Struct, parse_versions
from testkit.records.kio_messages import NAMES_BEFORE
from testkit.records.messages import EXAMPLES, message_classes, messages_of

# kafka-python shows these under other names, as sets.
BIT_SETS = {
    "authorized_operations",
    "cluster_authorized_operations",
    "topic_authorized_operations",
}
# kafka-python accepts an ApiVersions response of version 0 for every version, and reads the
# consumer protocol with its version.
SPECIAL = {"ApiVersionsResponse", "ConsumerProtocolAssignment", "ConsumerProtocolSubscription"}
MODULES = ("admin", "consumer", "metadata", "producer", "sasl")
OURS = {cls.__name__: cls for cls in message_classes()}


def theirs() -> dict[str, Any]:
    """Return kafka-python's message classes by name, without its two packages of old ones."""
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # attributes of its schema reader
        for name in MODULES:
            for key, value in vars(import_module(f"kafka.protocol.{name}")).items():
                if isinstance(value, type) and key in OURS and hasattr(value, "valid_versions"):
                    found[key] = value
    return found


CASES = [
    pytest.param(OURS[name], other, version, id=f"{name}-v{version}")
    for name, other in sorted(theirs().items())
    if other.valid_versions is not None and name not in SPECIAL
    for version in OURS[name].VERSIONS.each()
    if other.valid_versions[0] <= version <= other.valid_versions[1]
]


def assert_same_values(ours: Struct, other: Any, version: int) -> None:
    for f in ours.FIELDS:
        if version in parse_versions(f.versions) and f.name not in BIT_SETS:
            name = f.name if hasattr(other, f.name) else NAMES_BEFORE[f.name]
            assert_same(getattr(ours, f.name), getattr(other, name), version)


def assert_same(ours: Any, other: Any, version: int) -> None:
    if other is None:
        assert ours is None or ours == ZERO_UUID or ours == type(ours)()
    elif isinstance(ours, Struct):
        assert_same_values(ours, other, version)
    elif isinstance(ours, list):
        assert len(ours) == len(other)
        for a, b in zip(ours, other, strict=True):
            assert_same(a, b, version)
    elif isinstance(other, uuid.UUID):
        assert ours == other.bytes
    else:
        assert ours == other


@pytest.mark.parametrize(("cls", "other", "version"), CASES)
def test_same_bytes(cls: type[Message], other: Any, version: int) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(messages_of(cls, version, scalars={"records": st.binary(max_size=20)}))
    def run(msg: Message) -> None:
        data = codec.encode(msg, version)
        read = other.decode(data, version=version)
        assert_same_values(msg, read, version)
        read._header = None  # kafka-python cannot encode it
        assert bytes(read.encode(version=version)) == data

    run()


def test_most_client_apis_are_compared() -> None:
    assert len({case.values[0] for case in CASES}) >= 80
