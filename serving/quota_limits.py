"""Effective client quotas: the most specific limit for a user and a client id (KIP-546).

In order of precedence:

    user and client id, user and default client id, user,
    default user and client id, default user and default client id, default user,
    client id, default client id

A limit of a user is shared by all clients of that user, a limit of a client id by all users with
that client id. A limit of a pair holds for that pair. A default holds separately for each user,
client id or pair that it applies to. Brokers throttle clients by these limits; controllers limit
the rate of partition mutations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from metalog.image.values import QuotaEntity

NAME_CHARS_MAX: Final = 256
"""Clients choose their client ids, up to 32 KB. Longer ones than this are not cached."""
ANSWERS_MAX: Final = 10_000

Bearer: TypeAlias = tuple[str | None, str | None]
"""The user and client id that share a rate; None for a part that does not matter."""


class Limit(NamedTuple):
    """The limit of a request, and the bearer whose rate counts against it."""

    per_second: float
    bearer: Bearer


class _Default(Enum):
    """The default entity, distinct from an entity of any name."""

    DEFAULT = 0


_DEFAULT: Final = _Default.DEFAULT
_Part: TypeAlias = str | _Default | None


class QuotaLimits:
    """All limits of one kind, such as producer_byte_rate, by the key in an entity's quotas."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._levels: dict[tuple[_Part, _Part], float] = {}
        self._answers: dict[tuple[str, str], Limit | None] = {}

    def __bool__(self) -> bool:
        """Return whether any limit of this kind is set."""
        return bool(self._levels)

    def replace(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Replace all limits by the quotas of the cluster; addresses (`ip`) are ignored."""
        self._levels.clear()
        self._answers.clear()
        for entity, values in quotas.items():
            parts = dict(entity)
            if self._key in values and "ip" not in parts:
                place = (_part(parts, "user"), _part(parts, "client-id"))
                self._levels[place] = values[self._key]

    def of(self, user: str, client_id: str) -> Limit | None:
        """Return the limit of this user's client, None without one."""
        if len(client_id) > NAME_CHARS_MAX:
            return self._shortened(user, client_id)
        key = (user, client_id)
        if key not in self._answers:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            self._answers[key] = self._find(user, client_id)
        return self._answers[key]

    def _shortened(self, user: str, client_id: str) -> Limit | None:
        """Return the limit of a client with a long id; the bearer has a digest, to save memory."""
        limit = self._find(user, client_id)
        if limit is None or limit.bearer[1] is None:
            return limit
        digest = hashlib.blake2s(client_id.encode("utf-8", "surrogatepass")).hexdigest()
        return limit._replace(bearer=(limit.bearer[0], f"{client_id[:32]}...{digest}"))

    def _find(self, user: str, client_id: str) -> Limit | None:
        for place, bearer in (
            ((user, client_id), (user, client_id)),
            ((user, _DEFAULT), (user, client_id)),
            ((user, None), (user, None)),
            ((_DEFAULT, client_id), (user, client_id)),
            ((_DEFAULT, _DEFAULT), (user, client_id)),
            ((_DEFAULT, None), (user, None)),
            ((None, client_id), (None, client_id)),
            ((None, _DEFAULT), (None, client_id)),
        ):
            per_second = self._levels.get(place)
            if per_second is not None:
                return Limit(per_second, bearer)
        return None


def _part(parts: Mapping[str, str | None], kind: str) -> _Part:
    if kind not in parts:
        return None
    name = parts[kind]
    return _DEFAULT if name is None else name
