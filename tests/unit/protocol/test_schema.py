"""The schema language itself."""

from __future__ import annotations

import copy
import pickle

import pytest

from protocol.ids import ZERO_UUID
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.schema import (
    MAX_VERSION,
    NO_VERSIONS,
    VersionRange,
    array,
    int32,
    parse_versions,
    string,
)


@pytest.mark.parametrize(
    ("text", "first", "last"), [("0+", 0, MAX_VERSION), ("4-18", 4, 18), ("3", 3, 3)]
)
def test_version_ranges(text: str, first: int, last: int) -> None:
    versions = parse_versions(text)
    assert versions == (first, last)
    assert str(versions) == text
    assert first in versions and last in versions
    assert first - 1 not in versions and last + 1 not in versions
    assert "3" not in versions


def test_no_versions() -> None:
    assert parse_versions("none") is NO_VERSIONS
    assert not NO_VERSIONS and str(NO_VERSIONS) == "none" and list(NO_VERSIONS.each()) == []
    assert not VersionRange(0, 3).intersect(VersionRange(4, 6))
    assert VersionRange(0, 5).intersect(VersionRange(4, 6)) == (4, 5)


def test_facts_of_a_message() -> None:
    assert FetchRequest.API_KEY == 1
    assert FetchRequest.VERSIONS == (4, 19)
    assert FetchRequest.LISTENERS == ("broker", "controller")
    assert 12 in FetchRequest.FLEXIBLE and 11 not in FetchRequest.FLEXIBLE
    assert FetchRequest.response_class() is FetchResponse
    assert InitProducerIdRequest.UNSTABLE == (6, 6)
    assert list(FetchRequest.structs()) == [
        "ReplicaState",
        "FetchTopic",
        "FetchPartition",
        "ForgottenTopic",
    ]


def test_kinds_print_as_in_kafka_definitions() -> None:
    assert repr(array("FetchTopic")) == "[]FetchTopic"
    assert repr(array(int32)) == "[]int32"
    assert repr(string) == "string"


def test_every_field_has_a_default() -> None:
    request = FetchRequest()
    assert request.max_bytes == 0x7FFFFFFF
    assert request.replica_state == FetchRequest.ReplicaState(replica_id=-1, replica_epoch=-1)
    assert FetchRequest.FetchTopic().topic_id == ZERO_UUID
    assert FetchRequest().topics is not FetchRequest().topics
    assert FetchRequest().replica_state is not FetchRequest().replica_state


def test_constructor_takes_only_fields_by_keyword() -> None:
    with pytest.raises(TypeError):
        FetchRequest(no_such_field=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        FetchRequest("cluster")  # type: ignore[misc]
    with pytest.raises(AttributeError):
        FetchRequest().no_such_field = 1  # type: ignore[attr-defined]


def test_equality_is_by_value_and_type() -> None:
    assert FetchRequest(rack_id="a") == FetchRequest(rack_id="a") != FetchRequest(rack_id="b")
    assert FetchRequest() != FetchResponse()
    assert FetchRequest(unknown_tags={9: b""}) != FetchRequest()
    with pytest.raises(TypeError):
        hash(FetchRequest())


def test_replace_copies_shallowly() -> None:
    before = FetchRequest(rack_id="a", unknown_tags={9: b"x"})
    after = before.replace(rack_id="b")
    assert (before.rack_id, after.rack_id) == ("a", "b")
    assert after.topics is before.topics
    assert after.unknown_tags == {9: b"x"}
    with pytest.raises(TypeError):
        before.replace(no_such_field=1)


def test_copies_and_pickles() -> None:
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic="t")])
    assert copy.deepcopy(request) == request
    assert pickle.loads(pickle.dumps(request)) == request


def test_repr_names_the_fields() -> None:
    text = repr(FetchRequest.ReplicaState(replica_id=3, unknown_tags={7: b"x"}))
    assert text == (
        "FetchRequest.ReplicaState(replica_id=3, replica_epoch=-1, unknown_tags={7: b'x'})"
    )
    assert dict(FetchRequest.ReplicaState().items()) == {"replica_id": -1, "replica_epoch": -1}
