"""docs/howto.md and docs/configuration.md: existing commands, options and anchors.

Every key of ours is described as the node describes it.
"""

import re
from pathlib import Path

import pytest

from kraftbox.__main__ import main
from runtime.config.tables import BROKER_DYNAMIC_KEYS, NODE_KEYS, TOPIC_KEYS

DOCS = Path(__file__).parents[2] / "docs"
HOWTO = (DOCS / "howto.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"`kraftbox ([^`]+)`", HOWTO)))


def command_of(words):
    """Return the words that name a command: groups have a second one."""
    groups = ("topics", "groups", "configs", "storage")
    return words[:2] if words[0] in groups else words[:1]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_recipe_names_a_command_and_options_that_exist(line, capsys):
    words = line.split()
    assert main([*command_of(words), "--help"]) == 0
    told = capsys.readouterr().out
    assert [word for word in words if word.startswith("--") and word not in told] == []


def test_anchors_are_headings():
    for target, anchor in re.findall(r"\]\(([^)#]+)#([^)]+)\)", HOWTO):
        text = (DOCS / target).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        slugs = {re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in headings}
        assert anchor in slugs, f"{target}#{anchor}"


def test_every_document_is_a_way_from_a_question():
    reached = set(re.findall(r"\]\((?:\.\./)?([\w-]+\.md)", HOWTO))
    inside = {"architecture.md", "decisions.md", "codec-oracles.md", "fatal-tasks.md", "howto.md"}
    measured = {"benchmarks.md", "interop.md", "kip-966.md", "kip-1023.md", "kip-1303.md"}
    assert {path.name for path in DOCS.glob("*.md")} - reached == inside | measured


def test_every_key_of_ours_is_described():
    keys = {**TOPIC_KEYS, **BROKER_DYNAMIC_KEYS, **NODE_KEYS}
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(kraftbox\.[^`]+)` \| `([^`]*)` \| (.+) \|$", text, re.MULTILINE)
    ours = {name: key for name, key in keys.items() if name.startswith("kraftbox.")}
    wanted = [
        (
            name,
            str(key.default).lower() if isinstance(key.default, bool) else str(key.default),
            key.doc,
        )
        for name, key in sorted(ours.items())
    ]
    assert rows == wanted
