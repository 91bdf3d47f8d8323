"""Length rules for lists in requests: every API with a list has one that fits its message."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from broker.api_table import build_table as broker_table
from controller.api_table import build_table as controller_table
from protocol.api_keys import ApiKey
from protocol.messages import request_class
from protocol.schema import Struct
from protocol.transport.dispatch import Features
from protocol.transport.long_requests import AtOnce, InParts
from runtime.clock import ManualClock
from serving.long_lists import BY_ITSELF, RULES


def served() -> set[int]:
    broker = Mock()
    broker.static.unstable_versions = True
    broker.config.inter_broker_listener_name = "X"
    parts = {name: Mock() for name in ("creator", "coordinator", "offsets", "broker_epoch")}
    controller = controller_table(
        Mock(), Mock(), unstable=True, features=Features, clock=ManualClock()
    )
    return {*broker_table(broker, **parts).entries, *controller.entries}


def lists_of(cls: type[Struct]) -> dict[str, Any]:
    return {f.name: f.kind.element for f in cls.FIELDS if f.kind.element is not None}


def test_every_served_api_with_a_list_has_a_rule() -> None:
    with_lists = {ApiKey(key) for key in served() if lists_of(request_class(ApiKey(key)))}
    assert with_lists == RULES.keys() | BY_ITSELF
    assert not RULES.keys() & BY_ITSELF


@pytest.mark.parametrize("api", RULES, ids=lambda api: api.name)
def test_the_paths_of_a_rule_are_lists_of_the_request(api: ApiKey) -> None:
    rule = RULES[api]
    if isinstance(rule, AtOnce):
        return
    request = request_class(api)
    for path in rule.paths:
        cls: type[Struct] = request
        for name in path:
            element = lists_of(cls)[name]
            if element.struct_name:
                cls = request.struct_class(element)
    assert {path[0] for path in rule.paths} == lists_of(request).keys()


@pytest.mark.parametrize("version", range(4))
def test_elections_are_served_whole_from_the_version_that_limits_them(version: int) -> None:
    """KIP-966: version 3 serves 1,000 partitions and answers the rest with an error."""
    rule = RULES[ApiKey.ELECT_LEADERS]
    assert isinstance(rule, InParts) and rule.whole is not None
    assert rule.whole(request_class(ApiKey.ELECT_LEADERS)(), version) == (version >= 3)
