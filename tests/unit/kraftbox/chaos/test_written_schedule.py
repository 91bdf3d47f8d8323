"""Hand-written schedules, and the verdict for a CI server."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from kraftbox.chaos.checks import BROKEN, Finding
from kraftbox.chaos.faults import Hit
from kraftbox.chaos.history import History
from kraftbox.chaos.report import as_junit
from kraftbox.chaos.run import Entry, RunResult
from kraftbox.chaos.schedule import BadSchedule, Step, written_steps

KINDS = ("kill-leader", "pause-leader")


def test_faults_in_their_order() -> None:
    text = """{"faults": [{"kind": "pause-leader", "seconds": 2, "draw": 7},
    {"kind": "kill-leader", "seconds": 0.5}]}"""
    assert written_steps(text, KINDS) == [
        Step("pause-leader", 2.0, 7),
        Step("kill-leader", 0.5, 0),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a map with the keys faults"),
        ("[]", "expected a map with the keys faults"),
        ('{"faults": []}', "faults: []: list should have at least 1 item"),
        ('{"faults": [', "line 1: "),
        ('{"faults": ["kill-leader"]}', "faults.0: 'kill-leader': input should be"),
        (
            '{"faults": [{"kind": "kill-leader", "second": 1}]}',
            "invalid key 'second' of faults.0; allowed: kind, seconds, draw",
        ),
        (
            '{"faults": [{"kind": "kil", "seconds": 1}]}',
            "invalid kind 'kil'; allowed: kill-leader, pause",
        ),
        ('{"faults": [{"kind": "kill-leader"}]}', "faults.0: missing key 'seconds'"),
        ('{"faults": [{"kind": "kill-leader", "seconds": true}]}', "faults.0.seconds: True: "),
        ('{"faults": [{"kind": "kill-leader", "seconds": .NaN}]}', "faults.0.seconds: nan: "),
        ('{"faults": [{"kind": "kill-leader", "seconds": 3600}]}', "should be less than 3600"),
        ('{"faults": [{"kind": "kill-leader", "seconds": 1, "draw": "a"}]}', "draw: 'a': "),
        ('{"faults": [{"kind": "kill-leader", "seconds": 1, "draw": true}]}', "draw: True: "),
        ('{"faults": [], "faults": []}', "duplicate key 'faults'"),
        ("faults: &a [*a]", "an alias"),
    ],
)
def test_invalid_schedule_is_refused_with_reason(text: str, said: str) -> None:
    with pytest.raises(BadSchedule) as refused:
        written_steps(text, KINDS)
    assert said in str(refused.value)


def test_junit_fails_where_a_promise_broke_or_the_cluster_was_never_whole() -> None:
    whole = Entry("kill-leader", Hit([1], "t-0"), 1.0, 3.5, 4.0)
    never = Entry("pause-leader", Hit([2], "t-1"), 5.0, 6.0)
    lost = Finding("H3 lost-write", BROKEN, 2, "lost <records>", ["a", "b"])
    told = ElementTree.fromstring(as_junit(RunResult(History(), [lost], [whole, never])))
    assert (told.get("tests"), told.get("failures")) == ("3", "2")
    cases = {case.get("name"): case for case in told}
    assert cases["1 kill-leader"].get("time") == "2.500" and not len(cases["1 kill-leader"])
    assert cases["2 pause-leader"].findtext("failure") == "t-1"
    failure = cases["H3 lost-write"].find("failure")
    assert failure is not None and failure.get("message") == "lost <records> (2 times)"
    held = ElementTree.fromstring(as_junit(RunResult(History(), [], [whole])))
    assert [case.get("name") for case in held] == ["1 kill-leader", "every promise held"]
    assert held.get("failures") == "0"
