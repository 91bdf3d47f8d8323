"""The client quota in force: the most specific for a user and a client id (KIP-546).

    user and client id, user and default client id, user,
    default user and client id, default user and default client id, default user,
    client id, default client id

Whoever shares a limit shares what is measured against it: a limit of a user is spent by all of the
user's clients, one of a client id by all users of it, but the limits of a pair, and defaults, are
each pair's own. Brokers hold clients to their rates with this, controllers to how much they change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from metalog.image.values import QuotaEntity

NAME_CHARS_MAX: Final = 256
"""Clients choose their ids, of up to 32 KB; longer ones than this are not kept."""
ANSWERS_MAX: Final = 10_000

Bearer: TypeAlias = tuple[str | None, str | None]
"""Who shares a rate: user and client id, None where it does not matter."""


class Limit(NamedTuple):
    """The limit of a request, and whose rate it is held against."""

    per_second: float
    bearer: Bearer


class _Default(Enum):
    """The default entity, which is not the entity of any name."""

    DEFAULT = 0


_DEFAULT: Final = _Default.DEFAULT
_Part: TypeAlias = str | _Default | None


class QuotaLimits:
    """All limits of one kind, by the key that they have in an entity's quotas."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._levels: dict[tuple[_Part, _Part], float] = {}
        self._answers: dict[tuple[str, str], Limit | None] = {}

    def __bool__(self) -> bool:
        """Whether anybody can have a limit."""
        return bool(self._levels)

    def replace(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """These are the quotas of the cluster now."""
        self._levels.clear()
        self._answers.clear()
        for entity, values in quotas.items():
            parts = dict(entity)
            if self._key in values and "ip" not in parts:
                place = (_part(parts, "user"), _part(parts, "client-id"))
                self._levels[place] = values[self._key]

    def of(self, user: str, client_id: str) -> Limit | None:
        """The limit of this user's client, None without one."""
        if len(client_id) > NAME_CHARS_MAX:
            return self._shortened(user, client_id)
        key = (user, client_id)
        if key not in self._answers:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            self._answers[key] = self._find(user, client_id)
        return self._answers[key]

    def _shortened(self, user: str, client_id: str) -> Limit | None:
        """The limit of a client with a long id. Nobody keeps the id: its bearer has a digest."""
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
