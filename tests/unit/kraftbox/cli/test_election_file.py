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
        ("[]", "is not"),
        ("{}", "is not"),
        ('{"partitions": {}}', "is not"),
        ('{"partitions": [1]}', "entry 1: 1 is not an object"),
        ('{"partitions": [{"partition": 1}]}', "topic None"),
        ('{"partitions": [{"topic": "", "partition": 1}]}', "topic ''"),
        ('{"partitions": [{"topic": "t"}]}', "partition None"),
        ('{"partitions": [{"topic": "t", "partition": -1}]}', "partition -1"),
        ('{"partitions": [{"topic": "t", "partition": true}]}', "partition True"),
        ('{"partitions": [{"topic": "t", "partition": 2147483648}]}', "2147483648"),
        ('{"partitions": [{"topic": "t", "partition": 0, "desiredLeader": "1"}]}', "Leader '1'"),
        (
            '{"partitions": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 0}]}',
            "entry 2: t-0 is named twice",
        ),
        ('{"partitions": [' + "[" * 100_000, "recursion"),
    ],
)
def test_what_is_wrong_is_said_with_the_file_and_the_entry(tmp_path, content, said):
    path = tmp_path / "p.json"
    path.write_text(content)
    with pytest.raises(CommandFailed, match=r"p\.json: ") as failed:
        read_election_file(path)
    assert said in str(failed.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(CommandFailed, match="No such file"):
        read_election_file(tmp_path / "none.json")
