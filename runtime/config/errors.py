"""Errors of invalid configuration: the key, the value, what is allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "(hidden)"
OPEN_NAMES: set[str] = set()
"""Names whose values may be shown: every key with such a name is known and not sensitive. The
tables of keys fill it, because this module cannot import them: they import its errors.
"""
_LISTENER = re.compile(r"^listener\.name\.[^.]*\.")


class ConfigError(Exception):
    """A value is not allowed. `key`, `value` (None if missing), `allowed` (a phrase).

    `others` holds further errors of the same configuration, so that all are shown at once. The text
    goes to logs, terminals and other clients. So it contains the value only of a known key that is
    not sensitive: any other value may be a password.
    """

    def __init__(
        self,
        key: str,
        value: object,
        allowed: str,
        *,
        others: Sequence[ConfigError] = (),
        is_open: bool = False,
    ) -> None:
        """Initialize; `is_open` marks a value as not secret although its key is in no table."""
        super().__init__(key, value, allowed)
        self.key = key
        self.value = value
        self.allowed = allowed
        self.others = tuple(others)
        self.is_open = is_open

    @classmethod
    def join(cls, errors: Sequence[ConfigError]) -> ConfigError:
        """Return the first error, with the others attached."""
        first = errors[0]
        rest = errors[1:]
        return cls(first.key, first.value, first.allowed, others=rest, is_open=first.is_open)

    def __str__(self) -> str:
        return "\n".join([self._line(), *(str(other) for other in self.others)])

    def _line(self) -> str:
        if self.value is None:
            return f"{self.key} is missing: {self.allowed}"
        return f"{self.key}={self.shown}: {self.allowed}"

    @property
    def shown(self) -> str:
        """The value, or HIDDEN if it may be secret."""
        name = _LISTENER.sub("", self.key)
        return str(self.value) if self.is_open or name in OPEN_NAMES else HIDDEN

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class UnknownKey(ConfigError):
    """A name that the resource does not have."""

    def __init__(self, key: str, value: object, resource: str) -> None:
        super().__init__(key, value, f"unknown {resource} configuration")
