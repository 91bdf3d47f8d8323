"""The page in a browser: axe-core, a narrow screen and a printer."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.report_pages import Look, complaints, installed, main, missing_programs, seen

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

BAD_PAGE = """<!doctype html><html lang="en"><title>bad</title><main><h1>bad</h1>
<img src="missing.png" alt="nothing">
<div class="tiles" style="display: grid; grid-template-columns: 400px 400px 400px">
<p style="color: #ccc; background: #fff; width: 900px">hard to read</p></div>
<details><summary>more</summary><p style="color: #ddd; background: #fff">folded</p></details>
<a href="#nowhere">leads nowhere</a></main></html>
"""


@pytest.fixture(autouse=True)
def browser() -> None:
    if missing := missing_programs():
        pytest.skip(f"needs {missing[0]} (docs/gaps.md)")


def test_no_page_has_a_serious_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """With 3, 300 and 30,000 partitions, light, dark, wide, narrow, on paper."""
    code = main([])
    said = capsys.readouterr().out
    assert code == 0, said
    assert "18 looks, 0 complaints" in said


def test_each_fault_of_a_page_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(BAD_PAGE)
    look = Look(3, "light", 500)
    (found,) = seen(installed(tmp_path), [(look, page)], None)
    said = "\n".join(complaints(look, found))
    for fault in (
        "axe-core: serious: Elements must meet minimum color contrast ratio thresholds, 2 times",
        "it is 408 px wider than its screen",
        "it has 3 columns of cards",
        "1 of 1 links lead nowhere",
        "missing.png",
    ):
        assert fault in said, said
