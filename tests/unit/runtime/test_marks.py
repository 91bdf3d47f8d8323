"""Marks: without effect unless counted; each name is in the table and in the product's code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.marks import MARKS, counted, mark

ROOT = Path(__file__).resolve().parents[3]
PRODUCT = (
    "broker",
    "client",
    "controller",
    "kraftbox",
    "metalog",
    "protocol",
    "serving",
    "storage",
)
ONE, OTHER = list(MARKS)[:2]


def test_mark_without_counter_has_no_effect() -> None:
    mark(ONE)
    mark("whatever")


def test_marks_are_counted_within_the_block_only() -> None:
    mark(ONE)
    with counted() as found:
        mark(ONE)
        mark(ONE)
        mark(OTHER)
    mark(ONE)
    assert (found[ONE], found[OTHER], sum(found.values())) == (2, 1, 3)
    assert set(found) == set(MARKS)


def test_the_inner_block_counts_alone_and_the_outer_one_goes_on() -> None:
    with counted() as outer:
        with counted() as inner:
            mark(ONE)
        mark(ONE)
    assert (outer[ONE], inner[ONE]) == (1, 1)


def test_counting_ends_with_an_error() -> None:
    with pytest.raises(ValueError), counted() as found:
        raise ValueError
    mark(ONE)
    assert found[ONE] == 0


def test_a_name_that_is_not_in_the_table_is_refused_where_it_is_counted() -> None:
    with counted(), pytest.raises(KeyError, match="whatever"):
        mark("whatever")


def _marked(tree: ast.Module) -> Iterator[str]:
    """Return names in calls, and the texts of tables that calls look up."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in MARKS:
            yield node.value
        called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if called and node.func.id == "mark" and isinstance(node.args[0], ast.Constant):
            assert node.args[0].value in MARKS, node.args[0].value


def test_every_mark_stands_in_the_product_once() -> None:
    found: list[str] = []
    for package in PRODUCT:
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            if "runtime.marks" in text:
                found += _marked(ast.parse(text))
    twice = {name for name in found if found.count(name) > 1}
    assert set(found) == set(MARKS)
    # Two kinds of election; a plain batch, and one whose records a worker has validated.
    assert twice == {"controller.unclean-election", "replication.append-ahead"}


def test_every_mark_has_room_name_and_text() -> None:
    for name, text in MARKS.items():
        room, _, what = name.partition(".")
        assert room in {"quorum", "replication", "session", "log", "producer", "controller"}
        assert what and text and not text.endswith(".")
