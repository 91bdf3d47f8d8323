"""Client quotas in the metadata log (KIP-546): limits of users, client ids and addresses.

An entity is a user, a client id, both, or an address; a name of None stands for the default of its
type. This module validates and writes limits; brokers enforce them (`broker.quota.quotas`).
"""

from __future__ import annotations

import ipaddress
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from controller.decision import ControllerView, Decision, check_record_count
from metalog.image.values import QuotaEntity
from protocol.errors import ApiError, ErrorCode
from protocol.metadata.client_quota_record import ClientQuotaRecord
from protocol.schema import MetadataRecord
from runtime.config.schema import Type
from runtime.config.tables import CLIENT_QUOTA_KEYS, IP_QUOTA_KEYS

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

_KINDS: Final = (USER, CLIENT_ID, IP)
_CLIENT_KEYS: Final = {key.name: key.type for key in CLIENT_QUOTA_KEYS.values()}
_IP_KEYS: Final = {key.name: key.type for key in IP_QUOTA_KEYS.values()}
_WHOLE_MAX: Final = {Type.INT: 2.0**31 - 1, Type.LONG: 2.0**63 - 1}
_FRACTION: Final = 1e-6
"""A value this close to a whole number is rounded to it."""


class QuotaOperation(NamedTuple):
    """One key of an entity; a value of None removes it."""

    key: str
    value: float | None


class QuotaAlteration(NamedTuple):
    """The changes that a request makes to one entity, with its parts in the order of the
    request."""

    parts: tuple[tuple[str, str | None], ...]
    operations: tuple[QuotaOperation, ...]

    @property
    def entity(self) -> QuotaEntity:
        return tuple(sorted(self.parts, key=lambda part: part[0]))


class QuotaOutcome(NamedTuple):
    parts: tuple[tuple[str, str | None], ...]
    error: ApiError | None


def decide_alter_client_quotas(
    view: ControllerView, alterations: Sequence[QuotaAlteration], *, validate_only: bool
) -> Decision[tuple[QuotaOutcome, ...]]:
    """Set and remove limits; each entity succeeds or fails independently.

    Raises:
        ApiError: POLICY_VIOLATION, the request is too large for one operation.
    """
    counts = Counter(alteration.entity for alteration in alterations)
    records: list[MetadataRecord] = []
    outcomes: dict[QuotaEntity, QuotaOutcome] = {}
    for alteration in alterations:
        entity = alteration.entity
        if entity in outcomes:
            continue
        try:
            if counts[entity] > 1:
                raise _invalid("duplicate entity in the request")
            _check_entity(alteration.parts)
            changes = _changes(view, alteration)
        except ApiError as error:
            outcomes[entity] = QuotaOutcome(alteration.parts, error.as_value())
            continue
        records += changes
        outcomes[entity] = QuotaOutcome(alteration.parts, None)
    check_record_count(len(records))
    return Decision(() if validate_only else tuple(records), tuple(outcomes.values()))


def _check_entity(parts: Sequence[tuple[str, str | None]]) -> None:
    if not parts:
        raise _invalid("the client quota entity must not be empty")
    kinds = [kind for kind, _ in parts]
    for kind, name in parts:
        if kind not in _KINDS:
            raise _invalid(f"invalid client quota entity type {kind!r}")
        if kinds.count(kind) > 1:
            raise _invalid(f"duplicate entity type {kind}")
        if name == "":
            raise _invalid(f"the {kind} must not be empty")
        if kind == IP and len(kinds) > 1:
            raise _invalid("ip cannot be combined with user or client-id")
        if kind == IP and name is not None:
            _check_address(name)


def _check_address(text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise _invalid(f"invalid IP address {text!r}") from None


def _changes(view: ControllerView, alteration: QuotaAlteration) -> list[ClientQuotaRecord]:
    kinds = _IP_KEYS if alteration.parts[0][0] == IP else _CLIENT_KEYS
    stored: Mapping[str, float] = view.image.client_quotas.get(alteration.entity) or {}
    seen: set[str] = set()
    records = []
    for key, value in alteration.operations:
        if key in seen:
            raise _invalid(f"duplicate key {key}")
        seen.add(key)
        if value is None:
            if key in stored:
                records.append(_record(alteration, key, 0.0, remove=True))
            continue
        if key not in kinds:
            raise _invalid(f"{key!r} is not a quota of this entity type")
        whole = _check_value(key, kinds[key], value)
        if stored.get(key) != whole:
            records.append(_record(alteration, key, whole, remove=False))
    return records


def _check_value(key: str, kind: Type, value: float) -> float:
    """Return the value to store. Raises ApiError: INVALID_REQUEST."""
    if not math.isfinite(value) or value <= 0.0:
        raise _invalid(f"{key} must be above 0")
    most = _WHOLE_MAX.get(kind)
    if most is None:
        return value
    whole = float(round(value))
    if abs(value - whole) > _FRACTION or whole < 1.0:
        raise _invalid(f"{key} must be an integer")
    if whole >= most:
        raise _invalid(f"{key} must be below {most:.0f}")
    return whole


def _record(
    alteration: QuotaAlteration, key: str, value: float, *, remove: bool
) -> ClientQuotaRecord:
    return ClientQuotaRecord(
        entity=[
            ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name)
            for kind, name in alteration.entity
        ],
        key=key,
        value=value,
        remove=remove,
    )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
