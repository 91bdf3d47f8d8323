"""Errors of bad configuration: the key, the value, what is allowed."""

from __future__ import annotations

from collections.abc import Sequence


class ConfigError(Exception):
    """A value that is not allowed. `key`, `value` (None when missing), `allowed` (a phrase).

    `others` holds further errors of the same configuration, so that all are shown at once.
    """

    def __init__(
        self, key: str, value: object, allowed: str, *, others: Sequence[ConfigError] = ()
    ) -> None:
        super().__init__(key, value, allowed)
        self.key = key
        self.value = value
        self.allowed = allowed
        self.others = tuple(others)

    @classmethod
    def join(cls, errors: Sequence[ConfigError]) -> ConfigError:
        """The first error, carrying the rest."""
        first = errors[0]
        return cls(first.key, first.value, first.allowed, others=errors[1:])

    def __str__(self) -> str:
        return "\n".join([self._line(), *(str(other) for other in self.others)])

    def _line(self) -> str:
        if self.value is None:
            return f"{self.key} is missing: {self.allowed}"
        return f"{self.key}={self.value}: {self.allowed}"


class UnknownKey(ConfigError):
    """A name that the resource does not have."""

    def __init__(self, key: str, value: object, resource: str) -> None:
        super().__init__(key, value, f"there is no {resource} configuration of this name")
