"""The router's control socket; the e2e tests cover devices and namespaces."""

from __future__ import annotations

import random
import socket
from typing import Any

import msgpack
import pytest

from kraftbox.launcher import frames
from kraftbox.launcher.callers import Caller, RequestRefused
from kraftbox.launcher.links import Link, LinkRule, Links
from kraftbox.launcher.router import RULES_MAX, _packed, answer

SLOW = [1, 2, [0.0, 50.0, 0.0, 0, 0.0, 0.0]]


@pytest.fixture
def links() -> Links:
    made = Links(random.Random(1))
    made.set([LinkRule(1, 2, Link(loss=1.0))])
    return made


@pytest.fixture
def caller():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Caller(ours)


@pytest.mark.parametrize(
    "request_",
    [
        {"rules": None},
        {"rules": {}},
        {"rules": [[1, 2]]},
        {"rules": [SLOW, [1, 3, [0.0]]]},
        {"rules": [SLOW, 7]},
        {"rules": [["1", 2, SLOW[2]]]},
        {"rules": [[1, 256, SLOW[2]]]},
        {"rules": [[-1, 2, SLOW[2]]]},
        {"rules": [[1, True, SLOW[2]]]},
        {"change": [[1, 2, [0.0, "50", 0.0, 0, 0.0, 0.0]]]},
        {"change": [[1, 2, [float("nan"), 0.0, 0.0, 0, 0.0, 0.0]]]},
        {"change": [[1, 2, [0.0, float("inf"), 0.0, 0, 0.0, 0.0]]]},
        {"change": [[1, 2, [1.1, 0.0, 0.0, 0, 0.0, 0.0]]]},
        {"change": [[1, 2, [0.0, -1.0, 0.0, 0, 0.0, 0.0]]]},
        {"change": [[1, 2, [0.0, 0.0, 0.0, None, 0.0, 0.0]]]},
        {"rules": [SLOW], "change": [[]]},
        {"from": -1},
        {"from": "0"},
    ],
    ids=lambda one: repr(one)[:70],
)
def test_malformed_request_is_refused_and_leaves_the_links(links, caller, request_: Any) -> None:
    before = links.rules
    with pytest.raises(RequestRefused):
        answer(links, caller, request_)
    assert links.rules == before


def test_request_without_rules_returns_the_links(links, caller) -> None:
    assert answer(links, caller, {}) == {
        "rules": [[1, 2, [1.0, 0.0, 0.0, 0, 0.0, 0.0]]],
        "count": 1,
    }


def fits(message: frames.Message) -> bool:
    return len(msgpack.packb(message)) <= frames.BODY_BYTES_MAX


def test_links_of_a_large_network_are_answered_in_pages_that_fit(links, caller) -> None:
    """Regression: an answer larger than a frame was lost, and the caller got an error."""
    link = Link(0.5, 1.5, 1.5, 1 << 30, 0.5, 0.5)
    rules = [LinkRule(a, b, link) for a in range(100) for b in range(100)]
    for at in range(0, len(rules), RULES_MAX):
        request = {"change": _packed(rules[at : at + RULES_MAX])}
        assert fits(request)
        answer(links, caller, request)
    found: list[Any] = []
    while True:
        page = answer(links, caller, {"from": len(found)})
        assert fits(page)
        found += page["rules"]
        if len(found) >= page["count"]:
            break
    assert found == _packed(rules)
