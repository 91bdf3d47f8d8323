import pytest

from kraftbox.testing.records import Record, as_rows, from_rows, sized


def test_texts_tombstones_and_records():
    rows = as_rows([b"a", "ä", None, Record(b"v", b"k", [("h", None)], 2, 7, 9)])
    assert [row[1] for row in rows] == [b"a", b"\xc3\xa4", None, b"v"]
    assert rows[3] == [b"k", b"v", [["h", None]], 2, 9]
    assert rows[0] == [None, b"a", [], None, None]


@pytest.mark.parametrize("value", [1, bytearray(b"x"), ("x",)])
def test_invalid_record_is_refused(value):
    with pytest.raises(TypeError, match="a record must be bytes, str, None, dict, list or a Rec"):
        as_rows([value])
    with pytest.raises(TypeError, match="key: must be bytes, str or None"):
        as_rows([], key=value)
    with pytest.raises(TypeError, match="header h: must be bytes, str or None"):
        as_rows([], headers={"h": value})


def test_key_headers_and_partition_are_for_values_without_their_own():
    own = Record(b"v", b"own", [("x", None)])
    rows = as_rows([{"a": 1}, [2], "c", own], key="k", headers={"h": "1"}, partition=4)
    usual = [b"k", [["h", b"1"]], 4, None]
    assert [[row[0], *row[2:]] for row in rows[:3]] == [usual] * 3
    assert [row[1] for row in rows[:3]] == [b'{"a":1}', b"[2]", b"c"]
    assert rows[3] == [b"own", b"v", [["x", None]], 4, None]


def test_an_answer_is_records_again():
    (record,) = from_rows([[b"k", b"v", [["h", b"1"]], 2, 7, 9]])
    assert record == Record(b"v", b"k", (("h", b"1"),), 2, 7, 9)


def test_groups_fit_into_a_frame_and_nothing_is_lost():
    rows = as_rows([b"x" * size for size in (0, 10, 900, 5_000, 10, 10)])
    groups = list(sized(rows, 1_000))
    assert [row for group in groups for row in group] == rows
    assert [len(group) for group in groups] == [2, 1, 1, 2]
    assert list(sized([], 1_000)) == []
