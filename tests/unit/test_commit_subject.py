"""The hook that checks the subject of a commit message."""

from __future__ import annotations

import pytest

from scripts.commit_subject import problems, subject_of


@pytest.mark.parametrize(
    "subject",
    [
        "log: Re-read a cached batch header before trusting it",
        "Bound what a fetch session keeps",
        "x" * 3 + ": " + "Y" * 67,
        "Merge branch 'a'; what a merge says is git's own.",
        "fixup! anything",
    ],
)
def test_subject_of_one_imperative_change_is_taken(subject: str) -> None:
    assert problems(subject) == []


@pytest.mark.parametrize(
    ("subject", "problem"),
    [
        ("", "empty"),
        ("x: " + "Y" * 70, "73 characters"),
        ("Close the log; flush it", "several changes"),
        ("Close the log.", "full stop"),
        ("What a replica is stands apart", "imperative"),
        ("tiering: A leader deletes nothing", "imperative"),
        ("log: close it", "capital letter"),
    ],
)
def test_subject_that_breaks_a_rule_is_refused_with_its_reason(subject: str, problem: str) -> None:
    (found,) = problems(subject)
    assert problem in found


def test_subject_is_the_first_line_that_is_no_comment() -> None:
    assert subject_of("# please enter\n\n log: Close it \n\nbody\n") == "log: Close it"
    assert subject_of("# please enter\n") == ""
