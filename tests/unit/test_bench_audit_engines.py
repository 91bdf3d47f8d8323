"""The intersection of the two audit engines' time curves."""

from bench.audit_engines import Row, as_table, crossing

SHORT = Row(1_000, 64 << 10, 1.0, 40.0, 20.0, 900.0)
MIDDLE = Row(1_000_000, 48 << 20, 8.0, 300.0, 22.0, 1_000.0)
LONG = Row(5_000_000, 240 << 20, 36.0, 900.0, 29.0, 1_200.0)


def test_crossing_of_engines_is_interpolated():
    # 14 s behind at one million, 7 s ahead at five: two thirds of the way.
    assert round(crossing([SHORT, MIDDLE, LONG])) == 3_666_667


def test_an_engine_that_is_always_quicker_has_no_line():
    assert crossing([SHORT, MIDDLE]) is None
    assert crossing([LONG]) is None
    assert "The two do not cross" in as_table([SHORT, MIDDLE])


def test_engine_table_ends_with_threshold_of_auto():
    *_, last = as_table([SHORT, MIDDLE, LONG]).splitlines()
    assert last == (
        "The two cross at some 3,666,667 records; "
        "`--engine auto` changes at some 21,333,333 of such records."
    )
