"""JSON files of partitions to elect leaders for."""

from __future__ import annotations

import json

import pytest

from kraftbox.cli.election_file import read_election_file
from kraftbox.cli.output import CommandFailed


def test_partitions_and_desired_leaders(tmp_path):
    path = tmp_path / "p.json"
    entries = [
        {"topic": "foo", "partition": 1, "desiredLeader": 0},
        {"topic": "foo", "partition": 0, "desiredLeader": None},
        {"topic": "bar-1", "partition": 2147483647, "later": "fields are passed over"},
    ]
    path.write_text(json.dumps({"partitions": entries, "version": 1}))
    assert read_election_file(path) == {
        ("foo", 1): 0,
        ("foo", 0): None,
        ("bar-1", 2147483647): None,
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "Expecting value"),
        ("[]", 'expected an object with an array "partitions"'),
        ("{}", 'expected an object with an array "partitions"'),
        ('{"partitions": {}}', 'expected an object with an array "partitions"'),
        ('{"partitions": [1]}', "entry 1: expected an object, got 1"),
        ('{"partitions": [{"partition": 1}]}', "topic: expected a name, got None"),
        ('{"partitions": [{"topic": "", "partition": 1}]}', "topic: expected a name, got ''"),
        (
            '{"partitions": [{"topic": "t"}]}',
            "partition: expected an integer of at least 0, got None",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": -1}]}',
            "partition: expected an integer of at least 0, got -1",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": true}]}',
            "partition: expected an integer of at least 0, got True",
        ),
        ('{"partitions": [{"topic": "t", "partition": 2147483648}]}', "2147483648"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "desiredLeader": "1"}]}',
            "Leader: expected an integer of at least 0, got '1'",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 0}]}',
            "entry 2: duplicate partition t-0",
        ),
        ('{"partitions": [' + "[" * 100_000, "recursion"),
    ],
)
def test_invalid_election_file_is_refused_with_file_and_entry(tmp_path, content, said):
    path = tmp_path / "p.json"
    path.write_text(content)
    with pytest.raises(CommandFailed, match=r"p\.json: ") as failed:
        read_election_file(path)
    assert said in str(failed.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(CommandFailed, match="No such file"):
        read_election_file(tmp_path / "none.json")
