"""DescribeClientQuotas (key 48), versions 0-1.

Behaviour: the limits of the entities that match a filter, from this broker's image. A component of
the filter matches one type of entity: a name, the default, or any. An entity must match all
components; with `strict` it may have no other parts.

Errors: INVALID_REQUEST (a type twice or empty, a match that does not fit its kind, ip together with
user or client-id), UNSUPPORTED_VERSION (a type that does not exist).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from broker.context import BrokerContext
from metalog.image.values import QuotaEntity
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from protocol.transport.dispatch import HandlerTable, RequestContext

MIN_VERSION: Final = 0
MAX_VERSION: Final = 1

_TYPES: Final = ("user", "client-id", "ip")


class Match(IntEnum):
    """Kind of match of a component."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


_Component = DescribeClientQuotasRequest.ComponentData


def register(table: HandlerTable, broker: BrokerContext) -> None:
    def handle(
        _context: RequestContext, request: DescribeClientQuotasRequest
    ) -> DescribeClientQuotasResponse:
        return describe_client_quotas(broker, request)

    table.register(
        ApiKey.DESCRIBE_CLIENT_QUOTAS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )


def describe_client_quotas(
    broker: BrokerContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        _check(request.components)
    except ApiError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.text, entries=None
        )
    quotas = broker.metadata.image.client_quotas
    chosen = [
        entity for entity in quotas if _matches(entity, request.components, strict=request.strict)
    ]
    return DescribeClientQuotasResponse(
        entries=[
            DescribeClientQuotasResponse.EntryData(
                entity=[
                    DescribeClientQuotasResponse.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity
                ],
                values=[
                    DescribeClientQuotasResponse.ValueData(key=key, value=value)
                    for key, value in sorted(quotas[entity].items())
                ],
            )
            for entity in sorted(chosen, key=_order)
        ]
    )


def _order(entity: QuotaEntity) -> list[tuple[str, str]]:
    return [(kind, name or "") for kind, name in entity]


def _check(components: Sequence[_Component]) -> None:
    seen: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            raise ApiError(ErrorCode.INVALID_REQUEST, "component without an entity type")
        if kind in seen:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"duplicate component for {kind}")
        if kind not in _TYPES:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"invalid entity type {kind!r}")
        seen.add(kind)
        _check_match(component)
    if "ip" in seen and len(seen) > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "ip cannot be combined with other components")


def _check_match(component: _Component) -> None:
    if component.match_type not in Match.__members__.values():
        raise ApiError(ErrorCode.INVALID_REQUEST, f"invalid match type {component.match_type}")
    exact = component.match_type == Match.EXACT
    if exact != (component.match is not None):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "a name must be given for an exact match only",
        )


def _matches(entity: QuotaEntity, components: Sequence[_Component], *, strict: bool) -> bool:
    parts = dict(entity)
    for component in components:
        if component.entity_type not in parts:
            return False
        name = parts[component.entity_type]
        if component.match_type == Match.EXACT and name != component.match:
            return False
        if component.match_type == Match.DEFAULT and name is not None:
            return False
    return not strict or len(parts) == len(components)
