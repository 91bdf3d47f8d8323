"""Each API file says in its first line which key and versions it serves; that must be true."""

from __future__ import annotations

import re
from types import ModuleType

import pytest

from controller.assembly import CONTROLLER_APIS
from protocol.api_keys import ApiKey
from protocol.transport.dispatch import HandlerTable

HEADER = re.compile(r"(\w+) \(key (\d+)\), versions? (\d+)(?:-(\d+))?[.:]")


@pytest.mark.parametrize("api", CONTROLLER_APIS, ids=lambda api: api.__name__.rpartition(".")[2])
def test_the_header_says_what_is_registered(api: ModuleType) -> None:
    match = HEADER.match(api.__doc__ or "")
    assert match is not None, "the docstring does not begin with key and versions"
    table = HandlerTable()
    api.register(table, object())
    ((key, entry),) = table.entries.items()
    name, number, first, last = match.groups()
    assert ApiKey(key).name.replace("_", "").lower() == name.lower()
    assert key == int(number)
    assert (entry.version_min, entry.version_max) == (int(first), int(last or first))
    assert api.__name__.rpartition(".")[2] == ApiKey(key).name.lower()
