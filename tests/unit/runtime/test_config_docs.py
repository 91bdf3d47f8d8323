"""Every key that something acts on says what it is for."""

from pathlib import Path

from runtime.config.docs import DOCS, NO_EFFECT
from runtime.config.dynamic import broker_key
from runtime.config.tables import (
    BROKER_DYNAMIC_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    NODE_KEYS,
    TOPIC_KEYS,
)

ROOT = Path(__file__).parents[3]
ACTING = ("broker", "controller", "kraftbox", "metalog", "protocol", "storage")
KEYS = {**BROKER_DYNAMIC_KEYS, **CLIENT_METRICS_KEYS, **GROUP_KEYS, **NODE_KEYS, **TOPIC_KEYS}


def test_keys_in_use_are_documented():
    sources = "".join(
        path.read_text() for folder in ACTING for path in (ROOT / folder).rglob("*.py")
    )
    used = {name for name in KEYS if f'"{name}"' in sources}
    used |= {
        synonym for name, key in TOPIC_KEYS.items() if name in used for synonym, _ in key.synonyms
    }
    assert sorted(used - DOCS.keys()) == []


def test_only_keys_are_documented():
    assert sorted(DOCS.keys() - KEYS.keys()) == []


def test_a_key_without_effect_says_so_and_an_unknown_one_nothing():
    assert NODE_KEYS["queued.max.requests"].doc == NO_EFFECT
    assert broker_key("my.plug.in").doc == ""
