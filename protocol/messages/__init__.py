"""Request and response classes, one module per API key, imported on demand.

A node uses only part of the APIs; importing only those keeps its start short.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, cast

from protocol.api_keys import ApiKey
from protocol.schema import Request, Response

# Keys that Kafka 4.0 removed. They keep their numbers and have no messages.
REMOVED_APIS = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
    }
)


@cache
def request_class(api_key: ApiKey) -> type[Request[Any]]:
    """Return the request class of an API. Raises LookupError for one that Kafka 4.0 removed."""
    return cast("type[Request[Any]]", _message_class(api_key, "Request"))


@cache
def response_class(api_key: ApiKey) -> type[Response]:
    """Return the response class of an API. Raises LookupError for one that Kafka 4.0 removed."""
    return cast("type[Response]", _message_class(api_key, "Response"))


def _message_class(api_key: ApiKey, kind: str) -> object:
    if api_key in REMOVED_APIS:
        raise LookupError(f"{api_key.name} was removed from the protocol")
    module = import_module(f"{__name__}.{api_key.name.lower()}")
    name = "".join(word.capitalize() for word in api_key.name.split("_"))
    return getattr(module, name + kind)
