"""The site in a browser: axe-core, two colour schemes, a wide and a narrow screen."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from scripts.report_pages import installed, missing_programs
from scripts.site_looks import complaints, looks, main

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

BAD_PAGE = """<!doctype html><html lang="en"><title>bad</title><main><h1>bad</h1>
<img src="https://host.invalid/x.png" alt="nothing">
<p style="color: #ccc; background: #fff; width: 1500px">hard to read</p></main></html>
"""


@pytest.fixture(autouse=True)
def browser() -> None:
    if missing := missing_programs():
        pytest.skip(f"needs {missing[0]} (docs/gaps.md)")
    if find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed (docs/gaps.md)")


def test_pages_of_the_site_have_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    code = main([])
    assert code == 0, capsys.readouterr().out


def test_looks_find_each_fault_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(BAD_PAGE)
    found = list(looks(installed(tmp_path), [page]))
    assert [(one["width"], one["scheme"]) for one in found] == [
        (1280, "light"),
        (1280, "dark"),
        (400, "light"),
        (400, "dark"),
    ]
    for one in found:
        listed = "\n".join(complaints(one))
        for fault in ("minimum color contrast", "wider than its screen by", "host.invalid"):
            assert fault in listed
