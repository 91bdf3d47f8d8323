"""A history's EDN as read by Clojure, with the rules of jepsen.history and Elle's list-append.

Elle itself is published on Clojars only; Clojure, in which it is written, is on Maven Central.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from kraftbox.chaos.edn import edn_lines
from kraftbox.chaos.history import History, Poll, Send, SendOutcome, Topic
from testkit.memory.chaos_history import clean_history
from tests.interop.foreign_programs import BUILD_TIMEOUT_S, HERE, QUICK_START, need, run

pytestmark = [pytest.mark.interop, pytest.mark.core]

TYPES = {SendOutcome.OK: "ok", SendOutcome.FAILED: "fail", SendOutcome.UNKNOWN: "info"}


@pytest.fixture(scope="module")
def clojure(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the command that reads files."""
    need("java", "mvn")
    place, program = tmp_path_factory.mktemp("clojure"), HERE / "clojure"
    copy = ["dependency:copy-dependencies", f"-DoutputDirectory={place}"]
    run("mvn", "-q", "-B", "-f", program / "pom.xml", *copy, timeout_s=BUILD_TIMEOUT_S)
    class_path = os.pathsep.join(map(str, sorted(place.glob("*.jar"))))
    script = str(program / "read_histories.clj")
    return ["java", *QUICK_START, "-cp", class_path, "clojure.main", script]


def written(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def troubled() -> History:
    """Return sends of every outcome, some of them concurrent, and a read that lacks one of them."""
    outcomes = [
        SendOutcome.OK,
        SendOutcome.UNKNOWN,
        SendOutcome.FAILED,
        SendOutcome.OK,
        SendOutcome.OK,
    ]
    sends = [
        Send(1, 0, number % 2, 1 << 32 | number, 10 * number, 10 * number + 25, outcome, -1, number)
        for number, outcome in enumerate(outcomes)
    ]
    polls = [
        Poll(2, 0, 0, 100, 110, [0, 1], [1 << 32, 1 << 32 | 4], final=True),
        Poll(2, 0, 1, 110, 120, [], [], final=True),
    ]
    return History(topics=[Topic("t.o_p-ic", bytes(16), 2, 3, 2)], sends=sends, polls=polls)


def key(history: History, one: Send | Poll) -> str:
    return f"{history.topics[one.topic].name}-{one.partition}"


async def test_clojure_reads_what_the_clients_saw(clojure: list[str], tmp_path: Path) -> None:
    histories = [await clean_history(), troubled()]
    files = [written(tmp_path / f"{n}.edn", [*edn_lines(h)]) for n, h in enumerate(histories)]
    lines = run(*clojure, *files).splitlines()
    assert len(lines) == len(histories)
    for history, line in zip(histories, lines, strict=True):
        assert not line.startswith("refused"), line
        pairs = json.loads(line)
        appended = [(kind, k, v) for kind, ((f, k, v),) in pairs if f == "append"]
        assert sorted(appended) == sorted(
            (TYPES[SendOutcome(send.outcome)], key(history, send), send.value)
            for send in history.sends
        )
        read = {k: v for kind, ((f, k, v),) in pairs if f == "r"}
        final: dict[str, list[int]] = {}
        for poll in history.polls:
            if poll.final:
                final.setdefault(key(history, poll), []).extend(poll.values)
        assert read == final and len(pairs) == len(history.sends) + len(final)


REFUSED = [
    ("{:index 0", "{:index 1", "indexes are not 0, 1, 2"),
    ("{:index 3", "{:index 3, :index 3", "Duplicate key: :index"),
    (":type :ok", ":type :done", "no type of Jepsen's"),
    (":process 2", ":process :nemesis", "a process is a number for a client"),
    (":time 0", ":time -1", "a time is nanoseconds since the start"),
    (":time 120000", ":time 0", "time goes back"),
    (":f :txn", ":f :w", "neither appends nor reads"),
    (":append", ":w", "neither appends nor reads"),
    ("[4294967296 4294967300]", "4294967300", "neither appends nor reads"),
    (" 4294967300]", " 4294967296]", "a value is appended twice"),
    (":type :invoke", ":type :ok", "an end without a begin"),
    (":process 1", ":process 0", "a process that is busy or gone begins"),
    (":type :ok", ":type :info", "a process that is busy or gone begins"),
    ("[[:append", '[[:append "x" 1] [:append', "an end of another operation"),
]
"""Replacements in the first place where the text occurs, and the expected error."""


def test_elle_reader_refuses_each_breach_of_its_rules(clojure: list[str], tmp_path: Path) -> None:
    """The reading program finds a breach of each of its rules."""
    lines = "\n".join(edn_lines(troubled()))
    assert all(old in lines for old, *_ in REFUSED)
    files = [
        written(tmp_path / f"{n}.edn", [lines.replace(old, new, 1)])
        for n, (old, new, _) in enumerate(REFUSED)
    ]
    told = run(*clojure, *files).splitlines()
    assert len(told) == len(REFUSED)
    for (_, new, why), line in zip(REFUSED, told, strict=True):
        assert line.startswith(f"refused: {why}"), (new, line)
