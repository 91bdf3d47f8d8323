"""The site of `make docs`: links of its pages, generated references, and the strict build."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from kraftbox.cli.main import LISTED, imported
from protocol.errors import ErrorCode
from runtime.config import tables
from scripts import site_pages

ROOT = Path(__file__).resolve().parents[2]
HOME = "https://host/owner/kraftbox"
PAGES = ("index.md", "gaps.md", "tutorials/first.md", "changes.md")


@pytest.mark.parametrize(
    ("uri", "text", "home", "expected"),
    [
        ("gaps.md", "[a](../README.md#quick-start)", "", "[a](index.md#quick-start)"),
        ("index.md", "[a](docs/gaps.md) [b](CHANGELOG.md)", "", "[a](gaps.md) [b](changes.md)"),
        ("tutorials/first.md", "[a](../gaps.md#x)", "", "[a](../gaps.md#x)"),
        ("index.md", "![a](docs/pictures/x.png)", "", "![a](pictures/x.png)"),
        ("index.md", "[a](docker-compose.yml)", "", "a"),
        ("index.md", "[a](LICENSE)", HOME, f"[a]({HOME}/blob/main/LICENSE)"),
        ("gaps.md", "`[a](../LICENSE)`", HOME, "`[a](../LICENSE)`"),
        ("gaps.md", "[a](https://x.org/y) [b](#here)", "", "[a](https://x.org/y) [b](#here)"),
        # A dead link stays, so that the strict build refuses it.
        ("index.md", "[a](docs/nothing.md)", "", "[a](nothing.md)"),
        ("gaps.md", "[a](../nothing.md)", "", "[a](../nothing.md)"),
    ],
)
def test_site_links_lead_to_pages_of_the_site(
    uri: str, text: str, home: str, expected: str
) -> None:
    assert site_pages.site_links(text, uri, home, PAGES) == expected


def test_empty_header_cells_are_plain_cells() -> None:
    """A screen reader would announce a header without a name (axe-core: empty-table-header)."""
    table = '<tr><th></th><th style="text-align: left"></th><th>a</th></tr>'
    shown = site_pages.on_page_content(table, None, None, None)
    assert shown == '<tr><td></td><td style="text-align: left"></td><th>a</th></tr>'


def sections(page: str) -> dict[str, str]:
    """Return the text below each heading of a page."""
    parts = re.split(r"^#+ (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_commands_page_has_every_option_of_every_command() -> None:
    found = sections(site_pages.commands_page())
    wanted = {f"kraftbox {listed.name}": imported(listed.name) for listed in LISTED}
    for name, command in list(wanted.items()):
        wanted |= {
            f"{name} {sub}": inside for sub, inside in getattr(command, "commands", {}).items()
        }
    assert wanted.keys() <= found.keys()
    for name, command in wanted.items():
        shown = [one for one in command.params if not getattr(one, "hidden", False)]
        options = [word for one in shown for word in one.opts if word.startswith("-")]
        assert [word for word in options if word not in found[name]] == [], name


def test_keys_page_has_every_key_once() -> None:
    page = site_pages.keys_page()
    without = page.partition("## Without effect")[2]
    for title, keys in (("Nodes", tables.NODE_KEYS), ("Topics", tables.TOPIC_KEYS)):
        rows = re.findall(r"^\| `([^`]+)`", sections(page)[title], re.MULTILINE)
        assert len(rows) == len(set(rows))
        lost = [
            name
            for name, key in keys.items()
            if not key.internal and name not in rows and f"`{name}`" not in without
        ]
        assert lost == []


def test_errors_page_has_every_code() -> None:
    rows = re.findall(r"^\| (-?\d+) \| `(\w+)`", site_pages.errors_page(), re.MULTILINE)
    assert {(int(number), name) for number, name in rows} == {
        (code.value, code.name) for code in ErrorCode
    }


def built(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(config)]
    return subprocess.run(
        [*command, "--site-dir", str(site)], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.fixture
def mkdocs() -> None:
    if find_spec("mkdocs") is None or find_spec("material") is None:
        pytest.skip("mkdocs is not installed (docs/gaps.md)")


SMALL = """\
INHERIT: {root}/mkdocs.yml
docs_dir: pages
hooks: [anchors.py]
plugins: []
nav: [index.md, other.md]
"""


@pytest.mark.slow
@pytest.mark.usefixtures("mkdocs")
@pytest.mark.parametrize(
    ("link", "complaint"),
    [
        ("other.md#a--b-kip-966", ""),
        ("nothing.md", "'nothing.md', but the target is not found"),
        ("other.md#nowhere", "does not contain an anchor '#nowhere'"),
        ("#nowhere", "there is no such anchor on this page"),
    ],
)
def test_site_with_a_dead_link_is_not_built(link: str, complaint: str, tmp_path: Path) -> None:
    """The settings of mkdocs.yml, on two pages."""
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/index.md").write_text(f"# One\n\n[other]({link})\n")
    (tmp_path / "pages/other.md").write_text("# Other\n\n## A & B (KIP-966)\n")
    (tmp_path / "anchors.py").write_text("from scripts.site_pages import on_config\n")
    config = tmp_path / "mkdocs.yml"
    config.write_text(SMALL.format(root=ROOT))
    done = built(config, tmp_path / "site")
    assert (done.returncode == 0) == (not complaint), done.stderr
    assert complaint in done.stderr


FETCHED = re.compile(
    r"<(?:script|img|iframe)[^>]+src=\"?(?:https?:)?//|<link[^>]+href=\"?(?:https?:)?//"
)


@pytest.mark.slow
@pytest.mark.usefixtures("mkdocs")
def test_site_is_built_and_fetches_nothing_from_other_hosts(tmp_path: Path) -> None:
    done = built(ROOT / "mkdocs.yml", tmp_path)
    assert done.returncode == 0, done.stderr
    pages = {page: page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html")}
    assert len(pages) > 30
    assert [page.name for page, text in pages.items() if FETCHED.search(text)] == []
    testing = (tmp_path / "reference/kraftbox-testing.html").read_text(encoding="utf-8")
    assert "KafkaCluster.create_topic" in testing
