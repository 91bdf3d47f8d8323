"""Selection of quota entities by the filter of DescribeClientQuotas."""

from __future__ import annotations

from typing import Any, cast

import pytest

from broker.apis.describe_client_quotas import describe_client_quotas
from broker.context import BrokerContext
from metalog.image.replay import replay
from metalog.image.values import EMPTY_IMAGE
from protocol.errors import ErrorCode
from protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from protocol.metadata import ClientQuotaRecord

EXACT, DEFAULT, ANY = 0, 1, 2
ENTITIES: list[list[tuple[str, str | None]]] = [
    [("user", "u")],
    [("user", None)],
    [("client-id", "c")],
    [("client-id", "c"), ("user", "u")],
    [("client-id", None), ("user", "u")],
    [("client-id", None), ("user", None)],
    [("ip", "10.0.0.1")],
    [("ip", None)],
]


class Holder:
    """The image of a broker alone."""

    def __init__(self) -> None:
        self.metadata = self
        self.image = EMPTY_IMAGE
        for parts in ENTITIES:
            record = ClientQuotaRecord(
                entity=[
                    ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in parts
                ],
                key="connection_creation_rate" if parts[0][0] == "ip" else "producer_byte_rate",
                value=7.0,
            )
            self.image = replay(self.image, record)


def ask(*components: tuple[str, int, str | None], strict: bool = False) -> Any:
    request = DescribeClientQuotasRequest(
        components=[
            DescribeClientQuotasRequest.ComponentData(
                entity_type=kind, match_type=match_type, match=match
            )
            for kind, match_type, match in components
        ],
        strict=strict,
    )
    return describe_client_quotas(cast(BrokerContext, Holder()), request)


def chosen(*components: tuple[str, int, str | None], strict: bool = False) -> list[Any]:
    response = ask(*components, strict=strict)
    assert response.error_code == 0
    return [
        [(part.entity_type, part.entity_name) for part in entry.entity]
        for entry in response.entries
    ]


def which(*numbers: int) -> list[Any]:
    return [ENTITIES[n] for n in numbers]


def same(found: list[Any], *numbers: int) -> bool:
    return sorted(found, key=repr) == sorted(which(*numbers), key=repr)


def test_without_components_everything() -> None:
    assert same(chosen(), *range(len(ENTITIES)))
    assert chosen(strict=True) == []


def test_matches() -> None:
    assert same(chosen(("user", EXACT, "u")), 0, 3, 4)
    assert same(chosen(("user", EXACT, "u"), strict=True), 0)
    assert same(chosen(("user", DEFAULT, None)), 1, 5)
    assert same(chosen(("user", ANY, None), strict=True), 0, 1)
    assert same(chosen(("user", ANY, None), ("client-id", ANY, None)), 3, 4, 5)
    assert same(chosen(("user", EXACT, "u"), ("client-id", DEFAULT, None)), 4)
    assert same(chosen(("ip", ANY, None)), 6, 7)
    assert chosen(("user", EXACT, "nobody")) == chosen(("user", EXACT, "")) == []


def test_values() -> None:
    (entry,) = ask(("ip", EXACT, "10.0.0.1")).entries
    assert [(one.key, one.value) for one in entry.values] == [("connection_creation_rate", 7.0)]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", -1, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("galaxy", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("ip", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_make_no_sense(components: Any, code: ErrorCode) -> None:
    response = ask(*components)
    assert (response.error_code, response.entries) == (code, None)
    assert response.error_message
