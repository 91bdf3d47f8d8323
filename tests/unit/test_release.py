"""The checks of `make release`, and the README as a package index shows it."""

from pathlib import Path

import pytest

from hatch_build import readme, urls
from scripts.release import NotReady, changes_of, check_metadata, main, release

ROOT = Path(__file__).parents[2]
HOME = "https://host.test/owner/kraftbox"


def metadata(version="0.1.0", home=HOME, text=None):
    shown = readme((ROOT / "README.md").read_text() if text is None else text, home, version)
    lines = [f"Project-URL: {name}, {url}\n" for name, url in (urls(home) if home else {}).items()]
    return f"Metadata-Version: 2.4\nName: kraftbox\nVersion: {version}\n{''.join(lines)}\n{shown}"


def test_links_of_the_readme_hold_on_an_index():
    check_metadata(metadata(), "0.1.0")
    shown = metadata()
    assert f"]({HOME}/blob/v0.1.0/docs/gaps.md)" in shown
    assert "](docs/" not in shown
    assert readme("[a](b.md) [c](https://d) [e](#f)", "", "1") == "a [c](https://d) [e](#f)"


def test_pictures_of_the_readme_hold_on_an_index():
    """A page of a file is no picture: an index needs the file itself."""
    assert readme("![p](x.svg)\n\na", HOME, "1") == f"![p]({HOME}/raw/v1/x.svg)\n\na"
    assert readme("![p](x.svg)\n\na", "", "1") == "a"


def test_unready_release_is_refused_with_reason():
    with pytest.raises(
        NotReady, match=r"package version 0\.1\.0 differs from 0\.2\.0 in pyproject.toml"
    ):
        check_metadata(metadata(), "0.2.0")
    with pytest.raises(NotReady, match="project URLs: none"):
        check_metadata(metadata(home=""), "0.1.0")
    with pytest.raises(NotReady, match=r"lead nowhere on an index: docs/x\.md"):
        check_metadata(metadata() + "\n[x](docs/x.md)\n", "0.1.0")


@pytest.mark.parametrize("home", ["", "kraftbox", "http://host/owner/x", "https://host"])
def test_a_release_needs_a_home(home):
    with pytest.raises(NotReady, match="KRAFTBOX_HOME: the address of the repository"):
        release(home, with_image=False)


def test_the_exit_code(monkeypatch, capsys):
    monkeypatch.delenv("KRAFTBOX_HOME", raising=False)
    assert main([]) == 1
    assert capsys.readouterr().err.startswith("release: KRAFTBOX_HOME")


def test_the_changes_of_a_version():
    text = "# Changes\n\n## 0.2.0, later\n\n- b\n\n## 0.1.0\n\n- a\n\n## 0.0.9\n"
    assert changes_of("0.1.0", text) == "## 0.1.0\n\n- a\n"
    assert changes_of("0.2.0", text) == "## 0.2.0, later\n\n- b\n"
    for absent in ("0.0.9", "0.3.0", "0.1"):
        with pytest.raises(NotReady, match=f"has no section for {absent}"):
            changes_of(absent, text)
