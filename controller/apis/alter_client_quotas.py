"""AlterClientQuotas (key 49), versions 0-1.

Behaviour: sets and removes limits of users, client ids, pairs of both (KIP-546), and addresses
(KIP-612). Each entity succeeds or fails alone. With validate_only nothing is written.

Errors per entity: INVALID_REQUEST (unknown entity type or key, invalid value, an entity or a key
twice). For all: POLICY_VIOLATION, NOT_CONTROLLER.
"""

from __future__ import annotations

from controller.quotas.limits import (
    QuotaAlteration,
    QuotaOperation,
    QuotaOutcome,
    decide_alter_client_quotas,
)
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION = 0
MAX_VERSION = 1


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(_context: RequestContext, request: AlterClientQuotasRequest) -> Reply:
        alterations = [
            QuotaAlteration(
                tuple((part.entity_type, part.entity_name) for part in entry.entity),
                tuple(QuotaOperation(op.key, None if op.remove else op.value) for op in entry.ops),
            )
            for entry in request.entries
        ]
        entities = {alteration.entity: alteration.parts for alteration in alterations}
        return controller.submit(
            lambda view: decide_alter_client_quotas(
                view, alterations, validate_only=request.validate_only
            ),
            _response,
            fail=lambda error: _response(
                tuple(QuotaOutcome(parts, error) for parts in entities.values())
            ),
        )

    table.register(
        ApiKey.ALTER_CLIENT_QUOTAS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )


def _response(outcomes: tuple[QuotaOutcome, ...]) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponse.EntryData(
                error_code=0 if error is None else error.code,
                error_message=None if error is None else error.text,
                entity=[
                    AlterClientQuotasResponse.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in parts
                ],
            )
            for parts, error in outcomes
        ]
    )
