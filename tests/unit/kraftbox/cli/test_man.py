"""Manual pages generated from the parser, with no text that roff treats as a request."""

import re

import pytest

from kraftbox.cli.examples import EXAMPLES
from kraftbox.cli.main import LISTED, main
from kraftbox.cli.man import _text, all_pages


@pytest.fixture(scope="module")
def pages():
    return dict(all_pages())


def test_each_command_has_a_page_with_its_options_and_examples(pages):
    assert {"kraftbox", *(f"kraftbox-{listed.name}" for listed in LISTED)} <= pages.keys()
    for path, examples in EXAMPLES.items():
        page = pages["-".join(["kraftbox", *path.split()])]
        for title in (".TH ", ".SH NAME", ".SH SYNOPSIS", ".SH EXIT STATUS", ".SH EXAMPLES"):
            assert title in page, path
        assert all(_text(example) in page for example in examples), path
    assert "\\-\\-until\\-broken" in pages["kraftbox-chaos"]
    assert "lifeline" not in pages["kraftbox-up"], "hidden options stay hidden"


def test_man_page_text_has_no_roff_requests(pages):
    known = (".TH", ".SH", ".TP", ".B", ".PP", ".nf", ".fi")
    for name, page in pages.items():
        for line in page.splitlines():
            if line[:1] in (".", "'"):
                assert line.split()[0] in known, (name, line)
            assert line == line.rstrip() and line, (name, line)
            assert not re.search(r"\\(?![-e&])", line), (name, line)


def test_a_page_is_printed_and_all_are_written(capsys, tmp_path, pages):
    assert main(["man", "topics", "create"]) == 0
    assert capsys.readouterr().out == pages["kraftbox-topics-create"]
    assert main(["man", "--out", str(tmp_path)]) == 0
    assert len(list((tmp_path / "man1").iterdir())) == len(pages)
    assert main(["man", "nonsense"]) == 2
    assert "unknown command 'nonsense'" in capsys.readouterr().err
    assert main(["man", "up", "--out", str(tmp_path)]) == 2
    assert main(["man", "--out", "/dev/null"]) == 1
    assert "kraftbox: --out /dev/null: " in capsys.readouterr().err
