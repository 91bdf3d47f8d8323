"""API keys, versions and error codes that Kraftbox's nodes and tools use only among themselves.

Kafka may give the same version numbers another meaning in any release (4.4.0 did so with key 93).
Therefore two rules hold on every connection:

- A sender uses a private version only if the ApiVersions response of its peer lists a private key,
  which no Kafka release has. Every node lists one to each kind of node and tool of its own.
- A server offers private keys and versions only to those software names (`own_names`), or, for
  versions, to everyone under `unstable.api.versions.enable`.

A test compares this table with the definitions in the jars of the Kafka release that we follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.schema import VersionRange

PRIVATE_MIN: Final = 10_000
"""First number of the ranges that are ours: API keys, error codes, and tags of metadata records."""

PRIVATE_KEYS: Final = frozenset({ApiKey.EXPLAIN_ELECTION, ApiKey.GET_REPLICA_LOG_INFO})

PRIVATE_VERSIONS: Final[Mapping[ApiKey, int]] = {
    ApiKey.FETCH: 19,
    ApiKey.ELECT_LEADERS: 3,
    ApiKey.ALTER_PARTITION: 4,
}
"""The single private version of each API that has one: the version after Kafka's last."""

PRIVATE_ERROR_CODES: Final = frozenset({ErrorCode.REQUEST_LIMIT_REACHED})


def lists_private_key(api_keys: Iterable[int]) -> bool:
    """Return whether an ApiVersions response with these keys comes from a Kraftbox node."""
    return any(key >= PRIVATE_MIN for key in api_keys)


def usable(offers: Mapping[int, VersionRange]) -> Mapping[int, VersionRange]:
    """Return the versions that a sender may use, of those that a peer `offers` by API key.

    Private version numbers are removed if the peer is not a Kraftbox node.
    """
    if lists_private_key(offers):
        return offers
    return {key: without_private(key, offered) for key, offered in offers.items()}


def without_private(api_key: int, versions: VersionRange) -> VersionRange:
    """Return those of an API's `versions` that are below its private one."""
    private = _PRIVATE_BY_KEY.get(api_key)
    if private is None or versions.last < private:
        return versions
    return VersionRange(versions.first, private - 1)


_PRIVATE_BY_KEY: Final[Mapping[int, int]] = {int(api): v for api, v in PRIVATE_VERSIONS.items()}
