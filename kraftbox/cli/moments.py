"""Times that users give: `--since 10m`, `--until 12:03`, ISO 8601. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_AGO = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,3}))?)?")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
EPOCH_MS_MIN = 10**11
AGO_MS_MAX = 10**14
FORMS = "12:03, 12:03:05, 2026-05-01T12:03:05, 10m (ago), or ms since 1970"


def parse_moment(text: str, now: datetime) -> int:
    """Return the time in ms since 1970. Times of day and times without a zone are in UTC.

    A time of day is the last one that has passed. Raises ValueError with the allowed forms.
    """
    given = text.strip()
    if match := _AGO.fullmatch(given):
        ago_ms = float(match[1]) * _UNIT_MS[match[2]]
        if ago_ms <= AGO_MS_MAX:
            return round(now.timestamp() * 1000 - ago_ms)
    if match := _CLOCK.fullmatch(given):
        hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
        if hour < 24 and minute < 60 and second < 60:
            micros = int((match[4] or "0").ljust(3, "0")) * 1000
            at = now.astimezone(UTC).replace(
                hour=hour, minute=minute, second=second, microsecond=micros
            )
            return _ms(at if at <= now else at - timedelta(days=1))
    if given.isdecimal() and EPOCH_MS_MIN <= int(given) < 10**14:
        return int(given)
    try:
        at = datetime.fromisoformat(given)
    except ValueError:
        raise ValueError(f"expected a time such as {FORMS}, got {text!r:.60}") from None
    return _ms(at if at.tzinfo else at.replace(tzinfo=UTC))


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def clock(time_ms: int) -> str:
    """Return the time in UTC with milliseconds."""
    at = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03}"
