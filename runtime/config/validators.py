"""Validators of configuration values: a phrase for the allowed values, and a predicate."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple


class Validator(NamedTuple):
    """A rule for a value; `allowed` is the phrase that completes "must be ..."."""

    allowed: str
    accepts: Callable[[Any], bool]


def at_least(low: float) -> Validator:
    kind = "a number" if isinstance(low, float) else "an integer"
    return Validator(f"{kind} of at least {low}", lambda value: value is None or value >= low)


def between(low: float, high: float) -> Validator:
    kind = "a number" if isinstance(high, float) else "an integer"
    return Validator(
        f"{kind} from {low} to {high}", lambda value: value is None or low <= value <= high
    )


def one_of(*choices: str) -> Validator:
    return Validator(f"one of {', '.join(choices)}", lambda value: value in choices)


def one_of_any_case(*choices: str) -> Validator:
    upper = {choice.upper() for choice in choices}
    return Validator(
        f"one of {', '.join(choices)} (in any case)",
        lambda value: isinstance(value, str) and value.upper() in upper,
    )


def a_list(*choices: str, empty: bool) -> Validator:
    """Return the validator of a comma-separated list without empty entries, of `choices` if
    given.
    """
    phrase = "a list without empty entries"
    if choices:
        phrase += f" of {', '.join(choices)}"
    if not empty:
        phrase += " and at least one entry"

    def accepts(value: list[str] | None) -> bool:
        if value is None:
            return True
        if not value:
            return empty
        return all(entry in choices if choices else entry for entry in value)

    return Validator(phrase, accepts)


NON_EMPTY = Validator("not empty", lambda value: value is None or bool(value))
NOT_NULL = Validator("given", lambda value: value is not None)
GZIP_LEVEL = Validator("from 1 to 9, or -1", lambda value: value == -1 or 1 <= value <= 9)
THROTTLED_REPLICAS = Validator(
    "* or a list of partition:broker pairs",
    lambda value: value == ["*"] or all(re.fullmatch("[0-9]+:[0-9]+", entry) for entry in value),
)
DEAD_LETTER_TOPIC = Validator(
    "a name that does not begin with __", lambda value: not value.startswith("__")
)
# A pattern as text: compiling it would cost every start a millisecond.
_DURATION = r"(?i)by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d{1,9})?S)?)?"
SHARE_RESET = Validator(
    "latest, earliest or by_duration:PnDTnHnMn.nS",
    lambda value: value.lower() in ("latest", "earliest") or bool(re.fullmatch(_DURATION, value)),
)


def repeats(text: str) -> bool:
    """Return whether a list in a configuration repeats an entry; parsing would drop it."""
    entries = [entry.strip() for entry in text.split(",")]
    return len(set(entries)) != len(entries)
