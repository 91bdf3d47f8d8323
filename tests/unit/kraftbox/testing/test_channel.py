"""The channel to the helper, with matching requests and answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kraftbox.launcher import frames
from kraftbox.testing import channel, helper
from kraftbox.testing.channel import ClusterError, Helper

ECHO = """
import os, sys
from kraftbox.launcher import frames
decoder = frames.Decoder()
while data := os.read(0, 1 << 16):
    for question in decoder.feed(data):
        number = question["number"]
        for stale in ({"number": number - 1, "value": "stale"}, {"value": "without a number"}):
            os.write(1, frames.encode(stale))
        os.write(1, frames.encode({"number": number, "value": [question["do"], os.getpid()]}))
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Helper]:
    """Yield a helper that echoes the request and its process id, after stale answers."""
    monkeypatch.setattr(channel, "own_command", lambda *_: [sys.executable, "-c", ECHO])
    made = Helper()
    yield made
    made.close()


def test_question_gets_its_own_answer_and_no_other_one(asked: Helper) -> None:
    """Regression: after one interrupted request every answer was that of the request before."""
    assert [asked.ask({"do": name})[0] for name in ("a", "b", "c")] == ["a", "b", "c"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, pytest.fail.Exception, OSError])
def test_interrupted_question_discards_the_helper_and_the_next_one_is_answered(
    asked: Helper, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    _, first = asked.ask({"do": "a"})
    process = asked._process
    read = os.read

    def interrupted(*_: Any) -> bytes:
        monkeypatch.setattr(os, "read", read)
        raise kind("interrupted")

    monkeypatch.setattr(os, "read", interrupted)
    with pytest.raises(ClusterError if kind is OSError else kind):
        asked.ask({"do": "b"})
    assert process is not None and process.returncode is not None
    name, second = asked.ask({"do": "c"})
    assert name == "c"
    assert second != first


def test_helper_that_has_ended_is_started_again(asked: Helper) -> None:
    _, first = asked.ask({"do": "a"})
    assert asked._process is not None
    asked._process.kill()
    asked._process.wait()
    name, second = asked.ask({"do": "b"})
    assert (name, first == second) == ("b", False)


@pytest.mark.parametrize(
    "question", [{}, {"do": "no such"}, {"do": "status"}, {"do": "ends", "bootstrap": 7}], ids=repr
)
async def test_question_that_fails_unforeseen_is_answered_with_its_number(
    question: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    framed = await helper.answer({**question, "number": 3}, helper.Connected())
    (answer,) = frames.Decoder().feed(framed)
    assert answer["number"] == 3
    assert answer["error"].startswith("the helper failed: ")
    assert "Traceback" in capsys.readouterr().err
