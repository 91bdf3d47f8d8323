"""Error codes and their exceptions."""

from __future__ import annotations

import gc
import re
import weakref
from pathlib import Path

import pytest

from protocol.errors import RETRIABLE, ApiError, EncodeError, ErrorCode, ProtocolError


def test_codes_are_dense_and_described() -> None:
    assert [int(code) for code in sorted(ErrorCode)] == [*range(-1, 137), 10000]
    for code in ErrorCode:
        assert code.text.endswith("."), code
        assert code.retriable == (code in RETRIABLE)


def test_the_code_that_kafka_has_no_number_for_is_retriable_and_beyond_kafkas() -> None:
    """KIP-966: a client over the limit retries."""
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


def test_error_as_value_dies_with_its_last_reference() -> None:
    """Answers of a request with 100,000 names kept 200 MB for good, as frozen cycles."""

    def decide() -> list[ApiError]:
        outcomes = []
        try:
            try:
                raise KeyError("x")
            except KeyError:
                raise ApiError(ErrorCode.INVALID_REQUEST)  # noqa: B904 - its context matters
        except ApiError as error:
            outcomes.append(error.as_value())
        return outcomes

    gc.disable()
    try:
        outcomes = decide()
        kept = weakref.ref(outcomes[0])
        del outcomes
        assert kept() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("path", ["controller", "broker/admin"], ids=["controller", "broker admin"])
def test_errors_that_are_kept_as_outcomes_have_no_frames(path: str) -> None:
    """No handler stores the error that it caught in a collection of its own frame."""
    stored = re.compile(r"(outcomes\S*\] = |outcomes\.append\().*\berror\b(?!\.as_value|\.)")
    root = Path(__file__).resolve().parents[3]
    found = []
    for file in sorted((root / path).rglob("*.py")):
        text = file.read_text()
        for block in re.findall(r"except ApiError as error:\n((?: +.*\n)+?)(?=\S|\n|$)", text):
            found += [
                f"{file.name}: {line}" for line in block.splitlines()[:3] if stored.search(line)
            ]
    assert found == []
