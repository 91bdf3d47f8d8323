"""Kafka's tools under Kafka's names: their options, and their effect on a node in this process."""

from __future__ import annotations

import argparse
import io
import json
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from client.elections import ElectionType
from client.visible_records import Received
from kraftbox.cli.election_file import leaders_of
from kraftbox.cli.output import CommandFailed
from kraftbox.cli.record_text import Line
from kraftbox.cli.records import Idle
from kraftbox.kafka_tools import TOOLS, main
from kraftbox.kafka_tools.api_versions import shown
from kraftbox.kafka_tools.configs import added, is_own
from kraftbox.kafka_tools.console_consumer import Printer, _matching
from kraftbox.kafka_tools.console_producer import Reader, reader_of
from kraftbox.kafka_tools.elections import TYPES, partitions_of
from kraftbox.kafka_tools.elections import main as elections_main
from kraftbox.kafka_tools.groups import ACTIONS, _act
from kraftbox.kafka_tools.options import check_client_properties, pairs
from kraftbox.kafka_tools.topics import assignment
from protocol.schema import VersionRange


def test_lists_in_brackets_are_one_value():
    assert added("a=b,c=[d,e],f=") == {"a": "b", "c": "d,e", "f": ""}
    assert added("a=[x=1,y=2]") == {"a": "x=1,y=2"}
    for wrong in ("a", "=b", "a=[b"):
        with pytest.raises(CommandFailed, match="--add-config"):
            added(wrong)


def test_assignments_and_pairs():
    assert assignment("1:2,2:3") == {0: [1, 2], 1: [2, 3]}
    with pytest.raises(CommandFailed, match="1:x"):
        assignment("1:x")
    assert pairs(["a=b=c", "d="], "--property") == {"a": "b=c", "d": ""}
    with pytest.raises(CommandFailed, match="--property: expected NAME=VALUE, got 'a'"):
        pairs(["a"], "--property")


def test_client_properties_that_cannot_be_met_are_refused():
    check_client_properties({"linger.ms": "5", "security.protocol": "PLAINTEXT"})
    with pytest.raises(CommandFailed, match="security.protocol=SSL"):
        check_client_properties({"security.protocol": "SSL"})


def test_reader_splits_headers_key_and_value_as_kafka_does():
    """`h1:a,h2:b|k:v` is the line of the tutorials."""
    reader = Reader(True, b":", parse_headers=True, headers_delimiter=b"|", null_marker=b"NULL")
    line = b"h1:a,h2:b|k:v"
    assert reader.line(line) == Line(b"k", b"v", (("h1", b"a"), ("h2", b"b")))
    assert reader.line(b"h:NULL|NULL:NULL") == Line(None, None, (("h", None),))
    assert reader.line(b"NULL|k:v") == Line(b"k", b"v")
    without_key = reader._replace(parse_key=False)
    assert without_key.line(line) == Line(None, b"k:v", (("h1", b"a"), ("h2", b"b")))
    for wrong, named in (
        (b"k:v", "no headers delimiter"),
        (b"h|k:v", "no header key separator"),
        (b"h:1|v", "no key separator"),
        (b"NULL:1|k:v", "null marker"),
    ):
        with pytest.raises(CommandFailed, match=named):
            reader.line(wrong)
    lenient = reader._replace(ignore_error=True)
    assert lenient.line(b"k:v") == Line(b"k", b"v")
    assert lenient.line(b"h|v") == Line(None, b"v", (("h", None),))


def given_to_reader(*entries):
    return argparse.Namespace(property=list(entries), reader_property=None)


def test_reader_properties_are_all_known_and_distinct():
    """Ignoring a property that Kafka's reader does not have would silently produce wrong data."""
    reader = reader_of(
        given_to_reader(
            "parse.headers=TRUE",
            "headers.delimiter=|",
            "headers.separator=;",
            "headers.key.separator==",
            "null.marker=-",
            "ignore.error=true",
        )
    )
    assert reader == Reader(False, b"\t", True, True, b"|", b";", b"=", b"-")
    for wrong, named in (
        (["parse.header=true"], "unknown property parse.header; known: parse.key"),
        (["parse.headers=true", "headers.delimiter=,"], "headers.delimiter and headers.separator"),
        (["parse.key=true", "null.marker=\t"], "key.separator and null.marker must differ"),
        (["parse.key=true", "key.separator="], "key.separator must not be empty"),
    ):
        with pytest.raises(CommandFailed, match=named):
            reader_of(given_to_reader(*wrong))


def test_formatter_shows_headers_and_numbers_as_kafka_does():
    out = io.BytesIO()
    printer = Printer(
        {
            "print.headers": "true",
            "print.key": "true",
            "headers.separator": ";",
            "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
            "value.deserializer": "org.apache.kafka.common.serialization.LongDeserializer",
        },
        None,
        skip=False,
        out=out,
    )
    record = Received("t", 0, 0, 0, b"k", bytes(7) + b"\x05", [("a", b"1"), ("b", b"2")])
    printer(record)
    assert out.getvalue() == b"a:1;b:2\tk\t5\n"
    with pytest.raises(CommandFailed, match="cannot read a value of 1 bytes"):
        printer(record._replace(value=b"x"))
    with pytest.raises(CommandFailed, match=r"key\.deserializer=x\.Avro is not supported"):
        Printer({"key.deserializer": "x.Avro"}, None, skip=False, out=out)


async def test_pattern_chooses_topics_by_their_whole_names():
    topics = [("h", False), ("hh", False), ("other", False), ("__consumer_offsets", True)]
    client = cast(
        Any,
        SimpleNamespace(
            metadata=AsyncMock(
                return_value=SimpleNamespace(
                    topics=[
                        SimpleNamespace(name=name, is_internal=internal, error_code=0)
                        for name, internal in topics
                    ]
                )
            )
        ),
    )
    for text, chosen in (("[h]", ["h"]), ("h+|o.*", ["h", "hh", "other"]), (".*_offsets", [])):
        assert await _matching(client, text, Idle(-1 if not chosen else 1000)) == chosen
    with pytest.raises(CommandFailed, match="invalid regular expression"):
        await _matching(client, "[", Idle(None))


@pytest.mark.parametrize(
    ("kind", "name", "own"),
    [
        ("topics", "t", {1}),
        ("brokers", "1", {2}),
        ("brokers", "", {3}),
        ("client-metrics", "m", {7}),
        ("groups", "g", {8}),
        ("broker-loggers", "1", {1, 2, 3, 4, 5, 6, 7, 8}),
    ],
)
def test_describe_without_all_shows_only_the_entitys_own_values(kind, name, own):
    """Kafka does not list a cluster-wide default of a broker as if it were the topic's."""
    assert {source for source in range(1, 9) if is_own(kind, name, source)} == own


async def test_describe_of_a_missing_group_is_an_error_line_and_no_failure(monkeypatch, capsys):
    """Kafka 4.3.1 exits with 0; health checks with `|| exit 1` depend on that."""

    async def describe(client, options):
        raise CommandFailed(f"no {options.group}")

    monkeypatch.setitem(ACTIONS, "describe", describe)
    await _act(cast(Any, None), "describe", argparse.Namespace(group="g"))
    assert capsys.readouterr().err == "\nError: no g\n"


def test_lines_become_records():
    keyed = Reader(parse_key=True, separator=b":", ignore_error=False)
    assert keyed.line(b"k:v:w") == Line(b"k", b"v:w")
    with pytest.raises(CommandFailed, match="no key separator"):
        keyed.line(b"v")
    assert keyed._replace(ignore_error=True).line(b"v") == Line(None, b"v")
    assert keyed._replace(parse_key=False).line(b"k:v") == Line(None, b"k:v")


def test_records_become_lines():
    record = Received("t", 2, 7, 1234, b"k", None, [("h", b"x"), ("n", None)])
    out = io.BytesIO()
    properties = {
        f"print.{part}": "true" for part in ("timestamp", "partition", "offset", "headers", "key")
    }
    printer = Printer({**properties, "key.separator": "|"}, 2, skip=False, out=out)
    printer(record)
    assert printer.left == 1
    assert out.getvalue() == b"CreateTime:1234|Partition:2|Offset:7|h:x,n:null|k|null\n"
    plain = Printer({}, 1, skip=False, out=out)
    out.truncate(0)
    out.seek(0)
    plain(record._replace(value=b"v", headers=[]))
    assert plain.left == 0
    assert out.getvalue() == b"v\n"


def test_versions_as_kafka_shows_them():
    lines = shown({1: VersionRange(4, 18), 18: VersionRange(0, 99), 9999: VersionRange(0, 1)})
    assert lines[0] == "Fetch(1): 4 to 18 [usable: 18]"
    assert lines[1].startswith("ApiVersions(18): 0 to 99 [usable: ")
    assert lines[2] == "UNKNOWN(9999): 0 to 1 [unusable]"


def test_wrong_usage_is_exit_code_1(capsys):
    for name, module in TOOLS.items():
        if module in ("storage", "run_class", "not_built"):
            continue
        with pytest.raises(SystemExit) as end:
            main(name, ["--no-such-option"])
        assert end.value.code == 1, name
    assert main("kafka-storage", ["no-such-command"]) == 1
    assert main("kafka-streams", []) == 1
    assert "unknown tool kafka-streams" in capsys.readouterr().err


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_an_error(capsys):
    # No process listens on port 1.
    assert main("kafka-topics", ["--bootstrap-server", "127.0.0.1:1", "--list"]) == 1
    assert "Error while executing kafka-topics: cannot reach 127.0.0.1:1" in capsys.readouterr().err


def test_partitions_of_an_election_are_given_in_one_way(tmp_path):
    path = tmp_path / "p.json"
    entries = [{"topic": "a", "partition": 1}, {"topic": "a", "partition": 0}]
    path.write_text(json.dumps({"partitions": entries}))
    nothing = {
        "all_topic_partitions": False,
        "path_to_json_file": None,
        "topic": None,
        "partition": None,
        "election_type": "preferred",
    }

    def given(**options: object):
        return partitions_of(argparse.Namespace(**{**nothing, **options}))

    assert given(path_to_json_file=str(path)) == {("a", 1): None, ("a", 0): None}
    assert given(topic="t", partition=0) == {("t", 0): None}
    assert given(all_topic_partitions=True) is None
    for wrong in (
        {},
        {"all_topic_partitions": True, "topic": "t", "partition": 0},
        {"path_to_json_file": str(path), "all_topic_partitions": True},
        {"path_to_json_file": str(path), "topic": "t", "partition": 0},
    ):
        with pytest.raises(CommandFailed, match="give one of --all-topic-partitions"):
            given(**wrong)
    for half in ({"topic": "t"}, {"partition": 0, "all_topic_partitions": True}):
        with pytest.raises(CommandFailed, match="belong together"):
            given(**half)


def test_a_designation_names_a_leader_for_each_partition_in_a_file(tmp_path):
    path = tmp_path / "p.json"
    entries = [{"topic": "a", "partition": 1, "desiredLeader": 3}, {"topic": "a", "partition": 0}]
    for kind in TYPES.values():
        assert leaders_of(kind, {("a", 1): 3}) == (
            {("a", 1): 3} if kind is ElectionType.DESIGNATION else {}
        )
    path.write_text(json.dumps({"partitions": entries}))
    common = ["--bootstrap-server", "127.0.0.1:1", "--election-type", "DESIGNATION"]
    for arguments, said in (
        (["--path-to-json-file", str(path)], "a-0: a designation needs desiredLeader"),
        (["--topic", "a", "--partition", "0"], "a designation needs --path-to-json-file"),
        (["--all-topic-partitions"], "a designation needs --path-to-json-file"),
    ):
        with pytest.raises(CommandFailed, match=said):
            elections_main("kafka-leader-election", [*common, *arguments])


def test_the_types_of_elections_are_spelled_as_in_the_proposal():
    assert TYPES["longest_log_agressive"] is TYPES["longest_log_aggressive"]
    assert set(TYPES.values()) == set(ElectionType)
