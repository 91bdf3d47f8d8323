"""Levels of loggers under Kafka's names."""

from collections.abc import Iterator

import pytest

from protocol.errors import ApiError, ErrorCode
from runtime import log
from serving.log_levels import ConfigChange, change_levels, current_level


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    before = log.level()
    yield
    log.set_level(before)


@pytest.mark.parametrize(
    ("given", "ours", "shown"),
    [
        ("DEBUG", "debug", "DEBUG"),
        ("info", "info", "INFO"),
        ("WARN", "warning", "WARN"),
        ("ERROR", "error", "ERROR"),
        ("TRACE", "debug", "DEBUG"),
        ("FATAL", "error", "ERROR"),
    ],
)
def test_levels(given: str, ours: str, shown: str) -> None:
    change_levels([ConfigChange("root", 0, given)], validate_only=True)
    change_levels([ConfigChange("root", 0, given)], validate_only=False)
    assert (log.level(), current_level()) == (ours, shown)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (ConfigChange("root", 0, "LOUD"), ErrorCode.INVALID_CONFIG),
        (ConfigChange("root", 0, None), ErrorCode.INVALID_REQUEST),
        (ConfigChange("other", 0, "INFO"), ErrorCode.INVALID_CONFIG),
        (ConfigChange("root", 1, None), ErrorCode.INVALID_REQUEST),
        (ConfigChange("root", 2, "INFO"), ErrorCode.INVALID_REQUEST),
        (ConfigChange("root", 9, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_one_refusal_changes_nothing(change: ConfigChange, code: ErrorCode) -> None:
    before = log.level()
    with pytest.raises(ApiError) as refusal:
        change_levels([ConfigChange("root", 0, "ERROR"), change], validate_only=False)
    assert refusal.value.code is code
    assert log.level() == before
