"""Configuration keys: a constant of its own name each, with code that uses it or a reason against
it."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.config import tables
from runtime.config.docs import DOCS, NO_EFFECT
from runtime.config.dynamic import broker_key
from runtime.config.schema import ConfigKey
from runtime.config.without_effect import WITHOUT_EFFECT

ROOT = Path(__file__).parents[4]
ACTING = ("broker", "controller", "kraftbox", "metalog", "protocol", "serving", "storage")
DERIVING = ("effective", "node_values", "topic")
"""Modules of the engine that derive values from the keys. All others refuse, store or show them."""

KEYS: dict[str, list[ConfigKey[Any]]] = {
    "node": [*tables.NODE_KEYS.values()],
    "broker": [*tables.BROKER_DYNAMIC_KEYS.values()],
    "topic": [*tables.TOPIC_KEYS.values()],
    "group": [*tables.GROUP_KEYS.values()],
    "client metrics": [*tables.CLIENT_METRICS_KEYS.values()],
    "client quotas": [*tables.CLIENT_QUOTA_KEYS.values(), *tables.IP_QUOTA_KEYS.values()],
}
IDLE = {name for names in WITHOUT_EFFECT.values() for name in names}


def constants() -> Iterator[tuple[str, ConfigKey[Any]]]:
    for path in sorted((ROOT / "runtime/config").glob("keys_*.py")):
        module = importlib.import_module(f"runtime.config.{path.stem}")
        for name, value in vars(module).items():
            if isinstance(value, ConfigKey):
                yield name, value


def read_by(path: Path) -> Iterator[ConfigKey[Any]]:
    """Return the keys whose constants a module names."""
    text = path.read_text()
    if "runtime.config" not in text:
        return
    nodes = list(ast.walk(ast.parse(text)))
    names: dict[str, Any] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("runtime.config"):
            module = importlib.import_module(str(node.module))
            names |= {each.asname or each.name: getattr(module, each.name) for each in node.names}
    for node in nodes:
        found: object = None
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found = getattr(names.get(node.value.id), node.attr, None)
        elif isinstance(node, ast.Name):
            found = names.get(node.id)
        if isinstance(found, ConfigKey):
            yield found


@pytest.fixture(scope="module")
def read() -> set[ConfigKey[Any]]:
    paths = [path for folder in ACTING for path in (ROOT / folder).rglob("*.py")]
    paths += [ROOT / "runtime/config" / f"{name}.py" for name in DERIVING]
    found = {key for path in paths for key in read_by(path)}
    # A topic's key takes its default from the node's.
    return found | {synonym for key in found for synonym, _ in key.synonyms}


def test_a_constant_is_named_like_its_key() -> None:
    for name, key in constants():
        assert name == key.name.upper().replace(".", "_")


def test_every_constant_is_in_one_table() -> None:
    in_tables = [key for keys in KEYS.values() for key in keys]
    assert len(in_tables) == len(set(in_tables))
    assert {key for _, key in constants()} == set(in_tables)


def test_every_default_fits_its_key() -> None:
    for keys in KEYS.values():
        for key in keys:
            if key.required or key.default is None:
                continue
            key.check(key.default)
            text = key.format(key.default)
            assert text is not None
            assert key.parse(text) == key.default
            assert type(key.parse(text)) is type(key.default), key.name


@pytest.mark.parametrize("resource", KEYS)
def test_every_key_is_read_or_has_a_reason_not_to_be(
    resource: str, read: set[ConfigKey[Any]]
) -> None:
    keys = KEYS[resource]
    assert sorted(key.name for key in keys if key not in read and key.name not in IDLE) == []
    assert sorted(key.name for key in keys if key in read and key.name in IDLE) == []


def test_each_key_has_one_reason() -> None:
    assert sum(map(len, WITHOUT_EFFECT.values())) == len(IDLE)
    assert sorted(IDLE - {key.name for keys in KEYS.values() for key in keys}) == []


def test_the_keys_that_are_read_are_documented_and_no_others() -> None:
    shown = {key.name for resource in KEYS if resource != "client quotas" for key in KEYS[resource]}
    assert sorted(shown - IDLE - DOCS.keys()) == []
    assert sorted(DOCS.keys() - (shown - IDLE)) == []


def test_doc_of_key_without_effect_is_fixed_and_of_unknown_key_empty() -> None:
    assert tables.NODE_KEYS["queued.max.requests"].doc == NO_EFFECT
    assert broker_key("my.plug.in").doc == ""
