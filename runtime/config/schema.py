"""The vocabulary of configuration: types, validators, keys.

A key is a row of facts: Kafka's name, type, default, what is allowed, importance, whether it may
change while the node runs, and which other keys can stand in for it. Parsing follows Kafka's
strictness: numbers in their ranges, booleans only as true or false, lists split at commas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, NamedTuple, TypeAlias

from runtime.config.errors import ConfigError

Value: TypeAlias = Any  # bool | int | float | str | list[str] | None, as the key's type says


class Type(IntEnum):
    """Value types with the numbers that DescribeConfigs uses."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Dynamic(Enum):
    """Whether a node's key can change at run time, and for whom."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Validator(NamedTuple):
    """`allowed` is the phrase that completes "must be ..."."""

    allowed: str
    accepts: Callable[[Value], bool]


_REQUIRED = object()
REQUIRED: Value = _REQUIRED
"""Default of a key that must be given."""


class ConfigKey:
    """One configuration key. `synonyms` are (node key, factor to this key's unit) pairs in the
    order in which they are asked. A sensitive key's value is shown to nobody: passwords, unless
    it is said otherwise."""

    __slots__ = (
        "default",
        "dynamic",
        "importance",
        "internal",
        "name",
        "sensitive",
        "synonyms",
        "type",
        "validator",
    )

    def __init__(
        self,
        name: str,
        type: Type,
        default: Value = None,
        validator: Validator | None = None,
        importance: Importance = Importance.MEDIUM,
        *,
        dynamic: Dynamic = Dynamic.READ_ONLY,
        synonyms: Sequence[tuple[str, int]] = (),
        internal: bool = False,
        sensitive: bool | None = None,
    ) -> None:
        self.name = name
        self.type = type
        self.default = default
        self.validator = validator
        self.importance = importance
        self.dynamic = dynamic
        self.synonyms = tuple(synonyms)
        self.internal = internal
        self.sensitive = type is Type.PASSWORD if sensitive is None else sensitive

    def __repr__(self) -> str:
        return f"ConfigKey({self.name!r}, {self.type.name})"

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED

    @property
    def doc(self) -> str:
        """One or two sentences; empty for keys that nobody knows."""
        from runtime.config.docs import DOCS, NO_EFFECT

        return DOCS.get(self.name, "" if self.type is Type.UNKNOWN else NO_EFFECT)

    def parse(self, text: str) -> Value:
        """The typed value of `text`; raises ConfigError."""
        value = self._convert(text.strip())
        self.check(value, text)
        return value

    def check(self, value: Value, text: object = None) -> None:
        """Raise ConfigError unless the validator accepts `value`."""
        if self.validator is not None and not self.validator.accepts(value):
            shown = text if text is not None else format_value(value, self.type)
            raise ConfigError(self.name, shown, f"must be {self.validator.allowed}")

    def format(self, value: Value) -> str | None:
        return format_value(value, self.type)

    def _convert(self, text: str) -> Value:
        kind = self.type
        if kind in _INTEGER_LIMITS:
            return self._integer(text)
        if kind is Type.BOOLEAN:
            lowered = text.lower()
            if lowered not in ("true", "false"):
                raise ConfigError(self.name, text, "must be true or false")
            return lowered == "true"
        if kind is Type.DOUBLE:
            return self._double(text)
        if kind is Type.LIST:
            entries = _COMMA.split(text) if text else []
            # Kafka drops repeated entries and keeps the first.
            return list(dict.fromkeys(entries))
        return text

    def _integer(self, text: str) -> int:
        limit = _INTEGER_LIMITS[self.type]
        if not _INTEGER.fullmatch(text):
            raise ConfigError(self.name, text, f"must be {self._number_phrase()}")
        number = int(text)
        if not -limit - 1 <= number <= limit:
            raise ConfigError(self.name, text, f"must be {self._number_phrase()}")
        return number

    def _double(self, text: str) -> float:
        if not _DOUBLE.fullmatch(text):
            raise ConfigError(self.name, text, f"must be {self._number_phrase()}")
        return float(text.rstrip("dDfF") if not text.lower().endswith("inf") else text)

    def _number_phrase(self) -> str:
        if self.validator is not None:
            return self.validator.allowed
        if self.type is Type.DOUBLE:
            return "a number"
        limit = _INTEGER_LIMITS[self.type]
        return f"an integer from {-limit - 1} to {limit}"


_INTEGER_LIMITS = {Type.SHORT: 2**15 - 1, Type.INT: 2**31 - 1, Type.LONG: 2**63 - 1}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")
_COMMA = re.compile(r"\s*,\s*")


def format_value(value: Value, type: Type) -> str | None:
    """A value as Kafka prints it; None stays None."""
    if value is None:
        return None
    if type is Type.BOOLEAN:
        return "true" if value else "false"
    if type is Type.LIST:
        return ",".join(value)
    if type is Type.DOUBLE:
        return format_double(value)
    return str(value)


def format_double(value: float) -> str:
    """A double in Java's form: 0.5, 1.7976931348623157E308."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    sign, digit_tuple, exponent = Decimal(repr(value)).normalize().as_tuple()
    digits = "".join(map(str, digit_tuple))
    power = int(exponent) + len(digits) - 1
    return f"{'-' if sign else ''}{digits[0]}.{digits[1:] or '0'}E{power}"


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
    """A comma list without empty entries, of `choices` if there are any."""
    phrase = "a list without empty entries"
    if choices:
        phrase += f" of {', '.join(choices)}"
    if not empty:
        phrase += " and at least one entry"

    def accepts(value: Value) -> bool:
        if value is None:
            return True
        if not value:
            return empty
        return all(entry in choices if choices else entry for entry in value)

    return Validator(phrase, accepts)


NON_EMPTY = Validator("not empty", lambda value: value is None or bool(value))
NOT_NULL = Validator("given", lambda value: value is not None)
GZIP_LEVEL = Validator("from 1 to 9, or -1", lambda value: value == -1 or 1 <= value <= 9)
_THROTTLED = re.compile(r"[0-9]+:[0-9]+")
THROTTLED_REPLICAS = Validator(
    "* or a list of partition:broker pairs",
    lambda value: value == ["*"] or all(_THROTTLED.fullmatch(entry) for entry in value),
)
_DURATION = re.compile(
    r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d{1,9})?S)?)?", re.IGNORECASE
)
SHARE_RESET = Validator(
    "latest, earliest or by_duration:PnDTnHnMn.nS",
    lambda value: value.lower() in ("latest", "earliest") or bool(_DURATION.fullmatch(value)),
)
