"""docs/howto.md and docs/configuration.md: existing commands, options and anchors.

Every key of ours is described as the node describes it.
"""

import re
from pathlib import Path

import pytest

from kraftbox.__main__ import main
from kraftbox.cli.main import LISTED, imported
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


PAGES = [DOCS.parent / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += [path for path in sorted(DOCS.rglob("*.md")) if path.name != "mistakes.md"]
TYPED = re.compile(
    r"(?:^\s*|[`$|;&] ?)kraftbox ([a-z][a-z0-9-]*)((?: [^`|;&\n#()]*)?)", re.MULTILINE
)
OPTION = re.compile(r"--[a-z][a-z0-9-]*|-[a-zA-Z]")
OF_THE_IMAGE = "container"
"""A command that only the image's entry point uses."""


def unknown_words(name, rest):
    """Return the words of a typed command that its parser does not know."""
    known = {listed.name for listed in LISTED}
    if name.startswith("kafka-") or name == OF_THE_IMAGE:
        return []
    if name not in known:
        return [name]
    command, words = imported(name), rest.split()
    inside = getattr(command, "commands", {})
    if inside and words:
        if words[0] not in inside:
            return words[:1] if words[0].islower() else []
        command = inside[words[0]]
    options = {"--help", "-h", *(one for param in command.params for one in param.opts)}
    options |= {one for param in command.params for one in param.secondary_opts}
    given = [word.split("=")[0].rstrip(".,:") for word in words]
    return [word for word in given if OPTION.fullmatch(word) and word not in options]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_of_a_page_exist(page):
    """Every `kraftbox ...` in code has a known command, subcommand and options."""
    text = page.read_text(encoding="utf-8")
    assert [
        (found[0].strip(), unknown)
        for found in TYPED.finditer(text)
        if (unknown := unknown_words(found[1], found[2]))
    ] == []


def test_unknown_words_are_found():
    assert unknown_words("upp", "") == ["upp"]
    assert unknown_words("topics", "make orders") == ["make"]
    assert unknown_words("topics", "create orders --partition 3") == ["--partition"]
    assert unknown_words("up", "--detach --set a=b -b x") == ["-b"]


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
