"""Output of commands, in which untrusted text reaches no terminal as control sequences."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from client.visible_records import Received
from kraftbox.cli import main, output, status
from kraftbox.cli.live import drawing
from kraftbox.cli.node_logs import Tail, write
from kraftbox.cli.records import Printer
from kraftbox.kafka_tools import console_consumer, options

EVIL = "g\x1b]0;OWNED\x1b\\\x1b]52;c;cm0g\x07\x9b2J\u202e\nforged\rline :skull: [red]"
SHOWN = "g\\x1b]0;OWNED"
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


class Terminal(io.TextIOWrapper):
    """A standard output that counts as a terminal, or as a pipe."""

    def __init__(self, is_terminal: bool) -> None:
        self.is_terminal = is_terminal
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return self.is_terminal

    def __call__(self, call: Callable[..., object], *arguments: Any, **more: Any) -> Any:
        """Call a function and return its output."""
        with contextlib.redirect_stdout(self), contextlib.redirect_stderr(self):
            return call(*arguments, **more)

    @property
    def data(self) -> bytes:
        self.flush()
        return self.buffer.getvalue()  # type: ignore[attr-defined,no-any-return]

    @property
    def text(self) -> str:
        return self.data.decode()


@pytest.fixture(params=[False, True], ids=["pipe", "terminal"])
def out(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("COLUMNS", "500")
    monkeypatch.setenv("TERM", "dumb")
    yield Terminal(request.param)


def is_clean(text: str, lines: int) -> bool:
    return SHOWN in text and not CONTROLS.search(text) and text.count("\n") == lines


def test_output_line_is_escaped(out: Terminal) -> None:
    out(output.say, EVIL)
    assert is_clean(out.text, 1)


def test_error_output_escapes_each_line(out: Terminal) -> None:
    out(output.say_error, EVIL, "second")
    assert is_clean(out.text, 2)


def test_table_escapes_cells_and_takes_no_markup_from_them(out: Terminal) -> None:
    out(output.table, ("NAME", "NUMBER"), [(EVIL, 1)])
    assert is_clean(out.text, out.text.count("\n"))
    assert ":skull:" in out.text and "[red]" in out.text
    assert not out.text.startswith("forged")


def test_columns_of_kafkas_tools_escape_cells(out: Terminal) -> None:
    out(options.columns, [("NAME",), (EVIL,)])
    assert is_clean(out.text, 2)


def test_tabbed_cells_keep_their_tabs_and_escape_those_inside(out: Terminal) -> None:
    """Scripts split the output of kafka-topics.sh at tabs."""
    out(output.say_cells, "", "Topic: a\tb", EVIL)
    assert out.text.startswith("\tTopic: a\\tb\tg\\x1b]0;OWNED")
    assert out.text.count("\t") == 2 and out.text.count("\n") == 1


def test_lines_of_our_own_keep_line_ends_and_tabs(out: Terminal) -> None:
    out(output.say_lines, "a\n\tb\x1b[2J")
    assert out.text == "a\n\tb\\x1b[2J\n"


NEVER_ONE_LINE = re.compile(r"\\n|\\t|indent=")


def test_no_command_prints_several_lines_as_one() -> None:
    """`say` escapes line ends; `say_lines` and `say_cells` are for our own layout."""
    root = Path(output.__file__).parents[2]
    wrong = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in sorted((root / "kraftbox").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "say"
        and NEVER_ONE_LINE.search(ast.unparse(node))
    ]
    assert wrong == []


def test_json_output_is_exact(out: Terminal) -> None:
    out(output.say_json, {"group": EVIL})
    assert json.loads(out.text) == {"group": EVIL}
    assert not CONTROLS.search(out.text)


def test_failed_command_reports_its_error_escaped(
    out: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Command:
        def main(self, *_: Any, **__: Any) -> None:
            raise output.CommandFailed(EVIL, "second")

    monkeypatch.setattr(main.typer.main, "get_command", lambda _: Command())
    assert out(main.main, []) == 1
    assert is_clean(out.text, 2)
    assert is_clean(str(output.CommandFailed(EVIL)), 0)


def record(value: str) -> Received:
    return Received("t", 0, 0, 0, None, value.encode(), [])


def test_consumed_record_is_exact_on_a_pipe_and_escaped_on_a_terminal(out: Terminal) -> None:
    printer = out(Printer, None, lambda one: (one.value or b"") + b"\n")
    out(printer, record(EVIL))
    if out.is_terminal:
        assert is_clean(out.text, 2)
    else:
        assert out.data == EVIL.encode() + b"\n"


def test_console_consumer_is_exact_on_a_pipe_and_escaped_on_a_terminal(out: Terminal) -> None:
    printer = console_consumer.Printer({}, None, skip=False, out=out.buffer)
    out(printer, record(EVIL))
    if out.is_terminal:
        assert is_clean(out.text, 2)
    else:
        assert out.data == EVIL.encode() + b"\n"


def test_followed_log_is_escaped(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    log.write_bytes(EVIL.encode() + b"\n\tat \xff\n")
    shown = io.BytesIO()
    tail = Tail(1, log)
    write(tail.last(10), True, shown)
    tail.close()
    text = shown.getvalue().decode().replace("\tat", "at")
    assert is_clean(text, 3)
    assert text.count("1 | ") == 3


def evil(value: Any) -> Any:
    """Return a copy in which each text contains control sequences."""
    if isinstance(value, str):
        return value + EVIL
    if isinstance(value, dict):
        return {key: evil(one) for key, one in value.items()}
    return [evil(one) for one in value] if isinstance(value, list) else value


NODE = {
    "id": 1,
    "roles": "broker",
    "state": "failed",
    "pid": 1,
    "rack": "r",
    "listeners": "PLAINTEXT://a:1",
    "http": "a:2",
    "error": "e",
    "exitCode": 1,
    "cutOff": False,
}
CLUSTER = {
    "time": "now",
    "nodes": [NODE],
    "quorum": None,
    "partitions": {
        "total": 1,
        "underReplicated": 1,
        "leaderless": 1,
        "waiting": [{"topic": "t", "partition": 0, "text": "x"}],
    },
    "topics": [{"name": "t", "total": 1, "leaderless": 1, "underReplicated": 1}],
}


def test_status_escapes_every_text(out: Terminal) -> None:
    out(status._show, lambda: evil(CLUSTER), topics=True, as_json=False)
    assert is_clean(out.text, out.text.count("\n"))
    assert "\nforged" not in out.text


def test_live_view_escapes_cells_and_lines() -> None:
    section = drawing.Section(("GROUP",), [[drawing.Cell(EVIL)], [drawing.Cell(EVIL)]])
    seen = [*drawing._table(section, 2, 200), *drawing._table(section, 1, 200)]
    seen += [drawing._text(EVIL), drawing._assembled((EVIL, "bold"), EVIL)]
    now = datetime(2026, 1, 1, tzinfo=UTC)

    class At:
        at_ms = 0.0

    seen.append(drawing._event(At(), 0.0, EVIL, True, now))  # type: ignore[arg-type]
    for line in seen:
        assert isinstance(line, Text)
        assert not CONTROLS.search(line.plain) and "\n" not in line.plain


# --- every other place that prints ------------------------------------------------------------

OWN_TEXT = {
    "kraftbox/__main__.py": 1,
    "kraftbox/cli/audit.py": 2,
    "kraftbox/cli/chaos.py": 1,
    "kraftbox/cli/output.py": 1,
    "kraftbox/cli/up.py": 3,
    "kraftbox/kafka_tools/__init__.py": 2,
    "kraftbox/kafka_tools/console_consumer.py": 1,
    "kraftbox/kafka_tools/console_producer.py": 1,
    "kraftbox/kafka_tools/options.py": 1,
    "kraftbox/launcher/detach.py": 2,
    "kraftbox/launcher/fork_server.py": 1,
    "kraftbox/testing/helper.py": 1,
    "kraftbox/testing/running.py": 1,
}
"""Calls that print our own text, escaped text, or the operator's own arguments."""


def test_every_write_to_a_standard_stream_escapes_or_is_listed() -> None:
    root = Path(output.__file__).parents[2]
    found: dict[str, int] = {}
    for path in sorted((root / "kraftbox").rglob("*.py")):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.Call):
                continue
            call = ast.unparse(node)
            name = ast.unparse(node.func)
            writes = re.fullmatch(r"sys\.std(out|err)(\.buffer)?\.write|print", name)
            if writes and "escape" not in call:
                where = str(path.relative_to(root))
                found[where] = found.get(where, 0) + 1
    assert found == OWN_TEXT


def test_table_folds_no_cell_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """First hours, fault 17: `127.0.0.` stood above `1:26098`."""
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    output.table(("ADDRESS", "STATE"), [("127.0.0.1:26098,127.0.0.1:26099", "running")])
    assert capsys.readouterr().out.splitlines()[1].split() == [
        "127.0.0.1:26098,127.0.0.1:26099",
        "running",
    ]


def test_counted_has_the_noun_in_its_number() -> None:
    """First hours, fault 24: "created logs with 1 partitions"."""
    assert [output.counted(count, "partition") for count in (0, 1, 2)] == [
        "0 partitions",
        "1 partition",
        "2 partitions",
    ]
