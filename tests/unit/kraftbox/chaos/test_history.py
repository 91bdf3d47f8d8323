"""Histories in files: round trips, detected damage, and skipped fields of newer versions."""

from __future__ import annotations

import msgpack
import pytest
from crc32c import crc32c

from kraftbox.chaos.history import (
    MAGIC,
    VERSION,
    Assign,
    End,
    Fault,
    History,
    HistoryError,
    Poll,
    Process,
    Send,
    SendOutcome,
    Topic,
    Transaction,
    decode,
    encode,
    load,
    save,
    value_bytes,
    value_id,
    value_of,
)


def full_history() -> History:
    value = value_id(1, 0)
    return History(
        about={"seed": 7, "command": "kraftbox chaos"},
        topics=[Topic("chaos", bytes(16), 3, 3, 2)],
        processes=[Process(1, "producer", "kraftbox 0.1.0"), Process(2, "reader", "kraftbox")],
        sends=[
            Send(1, 0, 2, value, 10, 20, SendOutcome.OK, 0, 0, producer_id=1000),
            Send(
                1,
                0,
                2,
                value_id(1, 1),
                11,
                30,
                SendOutcome.FAILED,
                -1,
                1,
                -1,
                "NOT_ENOUGH_REPLICAS",
            ),
        ],
        polls=[Poll(2, 0, 2, 40, 50, [0], [value], final=True)],
        assigns=[Assign(2, 0, 2, 35, 0)],
        ends=[End(2, 0, 2, 36, 37, 1, final=True)],
        transactions=[Transaction(1, 1, 10, 20, SendOutcome.UNKNOWN)],
        faults=[Fault("kill", [4], 12, 15, "leader of chaos-2")],
    )


def framed(body: object, magic: bytes = MAGIC, version: int = VERSION) -> bytes:
    data = magic + bytes([version]) + msgpack.packb(body)
    return data + crc32c(data).to_bytes(4, "big")


def test_a_history_comes_back_from_its_file(tmp_path):
    save(tmp_path / "history.kbxh", full_history())
    assert load(tmp_path / "history.kbxh") == full_history()
    assert [path.name for path in tmp_path.iterdir()] == ["history.kbxh"]


def test_saved_history_takes_no_name_that_others_can_foresee(tmp_path):
    """A link under a predictable temporary name would let the history overwrite its target."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "run.kbxh.tmp").symlink_to(victim)
    save(tmp_path / "run.kbxh", full_history())
    assert victim.read_text() == "mine"
    assert load(tmp_path / "run.kbxh") == full_history()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "run.kbxh",
        "run.kbxh.tmp",
        "victim",
    ]


def test_an_empty_history_comes_back():
    assert decode(encode(History())) == History()


def test_tables_and_columns_of_a_later_writer_are_passed_over():
    body = {"about": {}, "ends": [[2, 0, 2, 36, 37, 1, True, "more"]], "weather": [1]}
    assert decode(framed(body)).ends == [End(2, 0, 2, 36, 37, 1, final=True)]


def test_every_cut_is_noticed():
    data = encode(full_history())
    for length in range(len(data)):
        with pytest.raises(HistoryError):
            decode(data[:length])


def test_every_flipped_byte_is_noticed():
    data = encode(full_history())
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 0x10
        with pytest.raises(HistoryError):
            decode(bytes(broken))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (framed({"about": {}}, magic=b"KBXC"), "got b'KBXC'"),
        (framed({"about": {}}, version=2), "unknown version 2; expected 1"),
        (framed([1, 2]), "cannot read the body"),
        (framed({"about": {}, "sends": [[1]]}), "cannot read the body"),
        (framed({"about": {}, "sends": 3}), "cannot read the body"),
    ],
)
def test_invalid_history_is_refused_with_reason(data, why):
    with pytest.raises(HistoryError, match=why):
        decode(data)


def test_a_value_is_found_again_in_its_record():
    value = value_id(3, 41)
    assert value_of(value_bytes(value)) == value
    assert len(value_bytes(value, 100)) == 100
    assert value_of(value_bytes(value, 100)) == value


@pytest.mark.parametrize(
    "data", [None, b"", b"12", b"|", b"x|", b"-4|", b"9" * 30 + b"|", "²|".encode()]
)
def test_value_of_another_writer_has_no_id(data):
    assert value_of(data) == -1
