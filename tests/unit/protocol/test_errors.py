"""Error codes and the errors that carry them."""

from __future__ import annotations

import pytest

from protocol.errors import RETRIABLE, ApiError, EncodeError, ErrorCode, ProtocolError


def test_codes_are_dense_and_described() -> None:
    assert [int(code) for code in sorted(ErrorCode)] == [*range(-1, 134), 10000]
    for code in ErrorCode:
        assert code.text.endswith("."), code
        assert code.retriable == (code in RETRIABLE)


def test_the_code_that_kafka_has_no_number_for_is_retriable_and_beyond_kafkas() -> None:
    """KIP-966: who was over the limit asks again."""
    assert ErrorCode.REQUEST_LIMIT_REACHED.retriable
    assert ErrorCode.REQUEST_LIMIT_REACHED >= 10_000


def test_api_error_speaks_for_its_code() -> None:
    plain = ApiError(ErrorCode.NOT_COORDINATOR)
    assert (plain.code, plain.message) == (ErrorCode.NOT_COORDINATOR, None)
    assert str(plain) == f"NOT_COORDINATOR: {ErrorCode.NOT_COORDINATOR.text}"
    assert str(ApiError(ErrorCode.INVALID_CONFIG, "no")) == "INVALID_CONFIG: no"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ProtocolError("a ready sentence"), "a ready sentence"),
        (ProtocolError("magic", 3), "magic: 3"),
        (ProtocolError("magic", 3, "0-2"), "magic: 3 (allowed: 0-2)"),
        (EncodeError("port", "x", "an int"), "port: 'x' (allowed: an int)"),
    ],
)
def test_texts(error: Exception, text: str) -> None:
    assert str(error) == text


def test_a_code_of_a_newer_node_is_an_error_like_any_unknown_one():
    assert ErrorCode(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(ValueError, match="NOPE"):
        ErrorCode("NOPE")  # type: ignore[arg-type]
