"""The comparison of a commit with the working tree: parsed results, and rows that count as
slower."""

from __future__ import annotations

import pytest

from bench.compare import Round, figures_of, judged, main

OUTPUT = """\
one record of 100 B, acks=all              12.1 us user     1.9 us system    14.0 us
request header, decode                                       1.29 us
a line without a figure
"""


def test_the_last_figure_of_a_row_is_its_sum() -> None:
    assert figures_of(OUTPUT) == {
        "one record of 100 B, acks=all": 14.0,
        "request header, decode": 1.29,
    }


def test_the_commit_on_both_sides_takes_the_drift_out() -> None:
    one = Round(before=10.0, tree=11.0, after=12.0)
    assert one.ratio == 1.0
    assert one.noise == pytest.approx(1 / 11)


@pytest.mark.parametrize(
    ("rounds", "word"),
    [
        ([Round(10, 11, 10), Round(10, 10.5, 10), Round(10, 12, 10)], "slower"),
        ([Round(10, 9, 10), Round(10, 9.5, 10)], "faster"),
        ([Round(10, 10.1, 10), Round(10, 10.15, 10)], ""),  # within 2 %
        ([Round(10, 11, 10), Round(10, 10, 10)], ""),  # not in all rounds
        ([Round(9, 11, 11), Round(10, 10.6, 10)], ""),  # the same code differs as much
    ],
)
def test_row_is_slower_if_all_rounds_agree_beyond_noise(rounds: list[Round], word: str) -> None:
    assert judged("row", rounds).word == word


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["HEAD", "--cases", "fetch_paht"], "fetch_paht"), (["HEAD", "--rounds", "0"], "at least 1")],
)
def test_wrong_usage_ends_with_two_and_names_it(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_commit_that_is_not_there_is_named() -> None:
    with pytest.raises(SystemExit, match="no tree of 'no-such-commit'"):
        main(["no-such-commit", "--rounds", "1"])
