import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.config.env import merge, properties_from_env
from runtime.config.properties import PropertiesError, format_properties, parse_properties
from runtime.config.schema import Type, format_double, format_value


def test_properties_by_javas_rules():
    text = (
        "# comment\n! another\n\n"
        "a=1\nb : 2\nc 3\n  d=x\\\n     y\n"
        "e\\ f=g\\tH\nlisteners=PLAINTEXT://:9092\n"
        "path=C\\:\\\\x\nempty\nu=\\u00e9\\uD83D\\uDE00\nlast=1\\\n"
    )
    assert parse_properties(text) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d": "xy",
        "e f": "g\tH",
        "listeners": "PLAINTEXT://:9092",
        "path": "C:\\x",
        "empty": "",
        "u": "é😀",
        "last": "1",
    }


def test_the_last_of_repeated_keys_counts():
    assert parse_properties("a=1\r\na=2\r") == {"a": "2"}


def test_a_broken_escape_names_the_line():
    with pytest.raises(PropertiesError, match="line 2"):
        parse_properties("a=1\nb=\\u12g4\n")


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x85"), max_size=20)


@pytest.mark.slow
@given(st.dictionaries(TEXT.filter(bool), TEXT, max_size=5))
def test_properties_round_trip(values):
    assert parse_properties(format_properties(values, "a\ncomment")) == values


def test_environment_names():
    environ = {
        "KAFKA_LOG_DIRS": "/d",
        "KAFKA_ABC__DEF": "1",
        "KAFKA_LISTENER_NAME_X_SCRAM___SHA___512": "2",
        "KAFKA_KAFKA_VALID_PROPERTY": "3",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "CLUSTER_ID": "x",
        "KAFKA_JMX_PORT": "9",
    }
    assert properties_from_env(environ) == {
        "log.dirs": "/d",
        "abc_def": "1",
        "listener.name.x.scram-sha-512": "2",
        "kafka.valid.property": "3",
        "jmx.port": "9",
    }


@pytest.mark.parametrize(
    "name",
    ["KAFKA_", "KAFKA_HOME", "KAFKA_LIBS", "KAFKA_VERSION", "KAFKA_OPTS", "KAFKA_DEBUG"]
    + ["KAFKA_EXTRA_OPTS", "KAFKA_LOG4J_CMD_OPTS", "KAFKA_2", "KAFKA_HEAP_OPTS"],
)
def test_variables_that_are_no_configuration(name: str):
    assert properties_from_env({name: "x"}) == {}


@pytest.mark.parametrize(
    ("name", "key"),
    [("KAFKA_LISTENER", "listener"), ("KAFKA_LOG_RETENTION_HUORS", "log.retention.huors")],
)
def test_a_mistyped_key_is_left_to_be_warned_of(name: str, key: str):
    assert properties_from_env({name: "x"}) == {key: "x"}


def test_precedence_of_environment_file_and_defaults():
    defaults = {"a": "default"}
    env = {"KAFKA_B_C": "env"}
    assert merge(defaults=defaults, mounted=None, environ={}) == {"a": "default"}
    assert merge(defaults=defaults, mounted={}, environ={}) == {"a": "default"}
    assert merge(defaults=defaults, mounted=None, environ=env) == {"b.c": "env"}
    assert merge(defaults=defaults, mounted={"b.c": "file", "c": "file"}, environ=env) == {
        "b.c": "env",
        "c": "file",
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (2147483647.0, "2.147483647E9"),
        (0.0001, "1.0E-4"),
        (12345678.9, "1.23456789E7"),
        (100.0, "100.0"),
    ],
)
def test_doubles_look_like_javas(value, text):
    assert format_double(value) == text


def test_values_as_text():
    assert format_value(True, Type.BOOLEAN) == "true"
    assert format_value(["a", "b"], Type.LIST) == "a,b"
    assert format_value(None, Type.LONG) is None
