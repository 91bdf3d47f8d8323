"""The first line of each API file, which must name the key and versions that it serves."""

from __future__ import annotations

import re
from types import ModuleType
from unittest.mock import Mock

import pytest

from controller.api_table import DECIDING_APIS, build_table
from protocol.api_keys import FORWARDABLE, ApiKey
from protocol.messages import request_class
from protocol.transport.dispatch import Features, HandlerTable
from runtime.clock import ManualClock
from serving.controller_apis import CONTROLLER_APIS

HEADER = re.compile(r"(\w+) \(key (\d+)\), versions? (\d+)(?:-(\d+))?[.:]")


@pytest.mark.parametrize("api", DECIDING_APIS, ids=lambda api: api.__name__.rpartition(".")[2])
def test_api_docstring_names_key_and_versions(api: ModuleType) -> None:
    match = HEADER.match(api.__doc__ or "")
    assert match is not None, "the docstring does not begin with key and versions"
    table = HandlerTable()
    api.register(table, object())
    ((key, entry),) = table.entries.items()
    name, number, first, last = match.groups()
    assert ApiKey(key).name.replace("_", "").lower() == name.lower()
    assert key == int(number)
    assert (entry.version_min, entry.own_version_max) == (int(first), int(last or first))
    assert api.__name__.rpartition(".")[2] == ApiKey(key).name.lower()


def test_both_roles_agree_on_what_a_controller_serves() -> None:
    table = build_table(Mock(), Mock(), unstable=False, features=Features, clock=ManualClock())
    assert set(table.entries) == CONTROLLER_APIS
    for api in CONTROLLER_APIS:
        assert "controller" in request_class(api).LISTENERS, api.name


def test_forwardable_api_is_served_or_listed_as_unsupported() -> None:
    not_built = {
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
    assert not_built == FORWARDABLE - CONTROLLER_APIS
