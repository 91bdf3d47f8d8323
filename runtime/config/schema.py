"""Types and typed keys of configuration.

A key is a row: Kafka's name, type, default, allowed values, importance, whether it may change while
the node runs, and the keys that it falls back to. Each resource has its own class of keys: a
topic's key cannot index a node's configuration. Parsing is as strict as Kafka's: numbers in their
ranges, booleans only as true or false, lists split at commas.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Final, Generic, Never, TypeVar, cast

from runtime.config.errors import ConfigError
from runtime.config.validators import Validator


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
    """The scope in which a node's key can change at run time."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


HIGH: Final = Importance.HIGH
LOW: Final = Importance.LOW
CLUSTER: Final = Dynamic.CLUSTER_WIDE
PER_BROKER: Final = Dynamic.PER_BROKER
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

T_co = TypeVar("T_co", covariant=True)


class Kind(Generic[T_co]):
    """A value type with the Python type of its values.

    The type of a key is inferred from both its kind and its default: `LONG` with a default of None
    gives `int | None`.
    """

    __slots__ = ("type",)

    def __init__(self, type: Type) -> None:
        self.type = type


UNKNOWN: Final[Kind[str]] = Kind(Type.UNKNOWN)
BOOLEAN: Final[Kind[bool]] = Kind(Type.BOOLEAN)
STRING: Final[Kind[str]] = Kind(Type.STRING)
INT: Final[Kind[int]] = Kind(Type.INT)
SHORT: Final[Kind[int]] = Kind(Type.SHORT)
LONG: Final[Kind[int]] = Kind(Type.LONG)
DOUBLE: Final[Kind[float]] = Kind(Type.DOUBLE)
LIST: Final[Kind[list[str]]] = Kind(Type.LIST)
CLASS: Final[Kind[str]] = Kind(Type.CLASS)
PASSWORD: Final[Kind[str]] = Kind(Type.PASSWORD)

_REQUIRED: Final = object()
REQUIRED: Never = cast("Never", _REQUIRED)
"""Default of a key that must be given; it fits every kind and adds nothing to the key's type."""


class ConfigKey(Generic[T_co]):
    """One configuration key, generic in the type of its values.

    `synonyms` are (node key, factor to this key's unit) pairs in their order of precedence. The
    value of a sensitive key is never shown; passwords are sensitive by default.
    """

    __slots__ = (
        "default",
        "dynamic",
        "importance",
        "internal",
        "kind",
        "name",
        "sensitive",
        "synonyms",
        "validator",
    )

    def __init__(
        self,
        name: str,
        kind: Kind[T_co],
        default: T_co,
        validator: Validator | None = None,
        importance: Importance = Importance.MEDIUM,
        *,
        dynamic: Dynamic = Dynamic.READ_ONLY,
        synonyms: Sequence[tuple[NodeKey[Any], int]] = (),
        internal: bool = False,
        sensitive: bool | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.default = default
        self.validator = validator
        self.importance = importance
        self.dynamic = dynamic
        self.synonyms = tuple(synonyms)
        self.internal = internal
        self.sensitive = kind is PASSWORD if sensitive is None else sensitive

    def __repr__(self) -> str:
        return f"ConfigKey({self.name!r}, {self.type.name})"

    @property
    def type(self) -> Type:
        return self.kind.type

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED

    @property
    def doc(self) -> str:
        """The key's documentation in one or two sentences; empty for an unknown key."""
        from runtime.config.docs import DOCS, NO_EFFECT

        return DOCS.get(self.name, "" if self.type is Type.UNKNOWN else NO_EFFECT)

    def parse(self, text: str) -> T_co:
        """Return the typed value of `text`. Raises ConfigError."""
        value: T_co = self._convert(text.strip())
        self.check(value, text)
        return value

    def check(self, value: Any, text: object = None) -> None:
        """Raise ConfigError unless the validator accepts `value`."""
        if self.validator is not None and not self.validator.accepts(value):
            shown = text if text is not None else format_value(value, self.type)
            raise ConfigError(self.name, shown, f"must be {self.validator.allowed}")

    def format(self, value: Any) -> str | None:
        return format_value(value, self.type)

    def _convert(self, text: str) -> Any:
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


class NodeKey(ConfigKey[T_co]):
    """A key of a node, that is, of server.properties."""

    __slots__ = ()


class BrokerDynamicKey(ConfigKey[T_co]):
    """A key of brokers' dynamic configuration that server.properties does not have."""

    __slots__ = ()


class TopicKey(ConfigKey[T_co]):
    __slots__ = ()


class GroupKey(ConfigKey[T_co]):
    __slots__ = ()


class ClientMetricsKey(ConfigKey[T_co]):
    """A key of a client-metrics subscription (KIP-714)."""

    __slots__ = ()


class ClientQuotaKey(ConfigKey[T_co]):
    """A quota of a user or a client ID."""

    __slots__ = ()


class IpQuotaKey(ConfigKey[T_co]):
    """A quota of an IP address."""

    __slots__ = ()


_INTEGER_LIMITS = {Type.SHORT: 2**15 - 1, Type.INT: 2**31 - 1, Type.LONG: 2**63 - 1}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")
_COMMA = re.compile(r"\s*,\s*")


def format_value(value: Any, type: Type) -> str | None:
    """Return a value as Kafka prints it; None stays None."""
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
    """Return a double in Java's form: 0.5, 1.7976931348623157E308."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    sign, digit_tuple, exponent = Decimal(repr(value)).normalize().as_tuple()
    digits = "".join(map(str, digit_tuple))
    power = int(exponent) + len(digits) - 1
    return f"{'-' if sign else ''}{digits[0]}.{digits[1:] or '0'}E{power}"
