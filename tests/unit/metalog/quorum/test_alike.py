"""Rows of similar partition changes, written and read as each change would be alone."""

from __future__ import annotations

from typing import Any

import pytest

from metalog.quorum import alike
from metalog.quorum.alike import decoded, encoded
from protocol.errors import EncodeError, ProtocolError
from protocol.metadata import (
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    decode_record,
    encode_record,
)

TOPIC, OTHER = b"topic with an id", b"another topic id"
BASE = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[1, 2], leader=1)
NEIGHBOURS: dict[str, list[Any]] = {
    "partition": [BASE.replace(partition_id=n) for n in (0, 7, 300, 2**31 - 1, -1, -(2**31), 3)],
    "each field": [
        BASE,
        BASE.replace(topic_id=OTHER),
        BASE.replace(isr=[1]),
        BASE.replace(isr=None),
        BASE.replace(leader=2),
        BASE.replace(replicas=[1, 2, 3]),
        BASE.replace(removing_replicas=[3]),
        BASE.replace(adding_replicas=[3]),
        BASE.replace(leader_recovery_state=1),
        BASE.replace(directories=[OTHER, TOPIC]),
        BASE.replace(eligible_leader_replicas=[]),
        BASE.replace(last_known_elr=[1]),
        BASE.replace(election_kind=1),
        BASE.replace(election_cause="broker-fenced"),
        BASE.replace(local_logs=[PartitionChangeRecord.ReplicaLocalLog(size_bytes=1)]),
        BASE.replace(local_logs=[PartitionChangeRecord.ReplicaLocalLog(size_bytes=2)]),
        BASE.replace(unknown_tags={77: b"tag"}),
        BASE,
    ],
    "others between": [BASE, NoOpRecord(), BASE, PartitionRecord(topic_id=TOPIC), BASE],
}


@pytest.mark.parametrize("records", NEIGHBOURS.values(), ids=NEIGHBOURS.keys())
def test_a_row_is_written_and_read_as_each_alone(records: list[Any]) -> None:
    versioned = [(r, 2 if isinstance(r, PartitionChangeRecord) else 0) for r in records]
    alone = [encode_record(record, version) for record, version in versioned]
    assert list(encoded(versioned)) == alone
    assert list(decoded(alone)) == records
    both_ways = [alone[0], *reversed(alone), alone[0]]
    assert list(decoded(both_ways)) == [decode_record(value)[0] for value in both_ways]


def test_the_version_counts() -> None:
    versioned = [(BASE, 0), (BASE, 2), (BASE, 0)]
    assert list(encoded(versioned)) == [encode_record(BASE, version) for _, version in versioned]
    with pytest.raises(EncodeError, match="eligible_leader_replicas"):
        list(encoded([(BASE.replace(eligible_leader_replicas=[1]), v) for v in (2, 0)]))

    new = encode_record(BASE.replace(eligible_leader_replicas=[1]), 2)
    old = new[:2] + b"\x00" + new[3:]
    assert list(decoded([new, old])) == [decode_record(value)[0] for value in (new, old)]


def test_rows_out_of_range_or_truncated_are_refused() -> None:
    with pytest.raises(EncodeError, match="partition_id"):
        list(encoded([(BASE.replace(partition_id=n), 2) for n in (0, 2**31)]))
    value = encode_record(BASE, 2)
    for end in range(len(value)):
        with pytest.raises(ProtocolError):
            list(decoded([value, value[:end]]))


def test_a_row_is_encoded_and_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []

    def counting(function: Any) -> Any:
        return lambda *given: counted.append(given) or function(*given)

    for name in ("encode_record", "decode_record"):
        monkeypatch.setattr(alike, name, counting(getattr(alike, name)))
    row = [BASE.replace(partition_id=n) for n in range(1_000)]
    assert list(decoded(encoded([(record, 2) for record in row]))) == row
    assert len(counted) == 2
