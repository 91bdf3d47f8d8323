"""The prose of this project: the counts of habits that make it hard to read may only shrink."""

from __future__ import annotations

from functools import cache

import pytest

from scripts import prose_counts
from scripts.prose_counts import COUNTS_FILE, Counts, count_markdown, count_prose, count_python


def listed() -> dict[str, tuple[int, ...]]:
    return prose_counts.read_counts(COUNTS_FILE.read_text())


@cache
def counted() -> dict[str, Counts]:
    return prose_counts.count_all(prose_counts.files_of_repository())


@pytest.mark.slow
def test_no_file_has_more_habits_than_are_listed() -> None:
    """An unlisted file must have none, so a new file begins without them."""
    known = listed()
    none = (0,) * len(Counts().habits)
    worse = [
        f"{path}: {found.habits} instead of {known.get(path, none)}"
        for path, found in counted().items()
        if any(
            now > before for now, before in zip(found.habits, known.get(path, none), strict=True)
        )
    ]
    assert not worse, (
        "relatives, persons, figures, short docstrings, test names; "
        "`python scripts/prose_counts.py --show PATH` prints the sentences\n" + "\n".join(worse)
    )


@pytest.mark.slow
def test_counts_file_lists_no_more_than_there_is() -> None:
    """After a file has improved, `python scripts/prose_counts.py --write` updates its counts."""
    assert listed() == prose_counts.read_counts(prose_counts.write_counts(counted()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Whether it ran.", (1, 0, 0, 0, 0)),
        ("It ends. What is left stays.", (1, 0, 0, 0, 0)),
        ("Rules:\n- Who leads decides.\n- The leader decides.", (1, 0, 0, 0, 0)),
        ("What does it cost? Nothing.", (0, 0, 0, 0, 0)),
        ("The replica, which is fenced, waits where it is.", (0, 0, 0, 0, 0)),
        ("The code is in `What`.", (0, 0, 0, 0, 0)),
        ("Nobody waits, and whoever asks is told.", (0, 2, 2, 0, 0)),
        ("The high watermark moves at last.", (0, 0, 1, 0, 0)),
        ("The task is closed. The tasks close.", (0, 0, 0, 0, 0)),
    ],
)
def test_count_of_habits_in_a_sentence(text: str, expected: tuple[int, ...]) -> None:
    assert count_prose(text).habits == expected


def test_count_of_a_module_has_docstrings_descriptions_and_comments() -> None:
    source = '''"""What this is."""

LIMIT = 1
"""Whoever is above it waits."""
# Whether it holds
# nobody knows.
TEXT = "Whether this counts"


def first() -> None:
    """Closes."""


def second() -> None:
    """Close the log and its segments."""
'''
    assert count_python(source).habits == (3, 2, 0, 1, 0)


def test_count_of_a_module_has_help_texts_errors_and_log_events() -> None:
    source = """
parser.add_argument("--topic", help="which topic to read")
raise ValueError(f"{name} is none of " + ", ".join(NAMES) if NAMES else "nobody knows it")
log.info("leader asked", reason="whoever reads it")
re.compile("tells (nobody)")
"""
    assert count_python(source).habits == (2, 2, 2, 0, 0)


def test_count_of_a_test_module_has_names_and_no_messages() -> None:
    source = """
def test_it_ends() -> None:
    raise ValueError("nobody knows it")


def test_broker_is_told_the_epoch() -> None: ...


def test_broker_with_an_old_epoch_is_refused() -> None: ...


def what_it_is() -> None: ...
"""
    assert count_python(source, is_test=True).habits == (0, 0, 0, 0, 2)


def test_count_of_a_page_leaves_its_code_out() -> None:
    page = "# What\n\nText.\n\n```\nWhat is told\n```\n\nThe broker tells.\n"
    assert count_markdown(page).habits[2] == 1


def test_counts_file_with_a_wrong_line_is_refused() -> None:
    with pytest.raises(ValueError, match="expected PATH and 5 numbers, got 'a.py 1'"):
        prose_counts.read_counts("a.py 1\n")
