"""Records as text, in both directions, and records from the lines that `produce` reads."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.visible_records import Received
from kraftbox.cli.output import CommandFailed
from kraftbox.cli.produce import BATCH_BYTES, Format, Pace, Reader, batches
from kraftbox.cli.record_text import Line, as_json, bytes_of, formatter, from_json, text_of

maybe_bytes = st.none() | st.binary(max_size=20) | st.just(b"base64:AA==") | st.just(b"base64:!")
RECORD = Received("t", 3, 17, 1_790_000_000_000, b"k", b"v\n", [("a", b"1"), ("b", None)])


@given(maybe_bytes)
def test_bytes_come_back_from_text(data: bytes | None) -> None:
    """Bytes that look like escapes survive, too."""
    assert bytes_of(text_of(data)) == data


@given(maybe_bytes, maybe_bytes, st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3))
def test_produce_reads_json_lines_of_consume(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    printed = json.dumps(as_json(Received("t", 2, 9, 5, key, value, headers))).encode()
    assert from_json(printed) == Line(key, value, tuple(headers), 5, 2)


def test_a_json_line_may_hold_a_value_alone() -> None:
    assert from_json(b'{"value": null}') == Line(None, None)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b'{"key": "k"}',
        b'{"value": 1}',
        b'{"value": "base64:!"}',
        b'{"value": "", "headers": ["a"]}',
        b'{"value": "", "partition": -1}',
        b'{"value": "", "timestamp": true}',
        b"\xff",
    ],
)
def test_invalid_record_line_is_refused_with_its_number(line: bytes) -> None:
    with pytest.raises(CommandFailed, match="^line 7: "):
        Reader(Format.JSON).read(line, 7)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"%t-%p@%o %T\n", b"t-3@17 1790000000000\n"),
        (r"%k\t%s", b"k\tv\n"),
        (r"%K %S %h %%\\", b"1 2 a=1,b= %\\"),
        ("\u00fc\\0", b"\xc3\xbc\0"),
    ],
)
def test_formats(text: str, printed: bytes) -> None:
    assert formatter(text)(RECORD) == printed


def test_none_is_empty_in_a_format_and_has_no_size() -> None:
    assert formatter("[%k][%s] %K %S")(RECORD._replace(key=None, value=None)) == b"[][] -1 -1"


@pytest.mark.parametrize("text", ["%q", "%", "\\q", "\\"])
def test_invalid_format_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid (field|escape)"):
        formatter(text)


HEADERS = (("h", b"1"),)


@pytest.mark.parametrize(
    ("reader", "line", "read"),
    [
        (Reader(), b"a:b", Line(None, b"a:b")),
        (Reader(separator=b":"), b"a:b:c", Line(b"a", b"b:c")),
        (Reader(separator=b":"), b"a:", Line(b"a", b"")),
        (Reader(separator=b":", tombstones=True), b"a:", Line(b"a", None)),
        (Reader(tombstones=True), b"", Line(None, None)),
        (Reader(headers=HEADERS, timestamp_ms=5), b"a", Line(None, b"a", HEADERS, 5)),
        (
            Reader(Format.JSON, headers=HEADERS, timestamp_ms=5),
            b'{"value": "v", "headers": [["x", null]], "timestamp": 0, "partition": 4}',
            Line(None, b"v", (*HEADERS, ("x", None)), 0, 4),
        ),
        (Reader(Format.JSON, timestamp_ms=5), b'{"value": ""}', Line(None, b"", (), 5)),
    ],
)
def test_lines_become_records(reader: Reader, line: bytes, read: Line) -> None:
    assert reader.read(line, 1) == read


def test_batches_end_at_record_or_byte_limit() -> None:
    advanced: list[int] = []
    cut = list(batches(io.BytesIO(b"a\nb\r\nc\n"), Reader(), 2, advanced.append))
    assert [[line.value for line in batch] for batch in cut] == [[b"a", b"b"], [b"c"]]
    assert sum(advanced) == 7
    large = b"x" * BATCH_BYTES + b"\ny\n"
    assert [len(b) for b in batches(io.BytesIO(large), Reader(), None, advanced.append)] == [1, 1]


def test_a_rate_is_kept_by_waiting_for_what_was_sent() -> None:
    pace = Pace(100, begun_s=50.0)
    assert pace.batch_max == 10 and Pace(3, 0.0).batch_max == 1
    assert pace.wait_s(0, 50.0) == 0.0
    assert pace.wait_s(10, 50.0) == pytest.approx(0.1)
    assert pace.wait_s(10, 51.0) == 0.0
    assert Pace(None, 50.0).batch_max is None and Pace(None, 50.0).wait_s(99, 50.0) == 0.0
