"""The checkpoint files: Kafka's bytes, round trips, truncated and corrupt files."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.ids import TopicId, uuid_to_text
from storage.log import checkpoints as files
from storage.log.checkpoints import CorruptCheckpoint
from storage.log.epochs import EpochCache, EpochEntry

TOPIC_ID = TopicId(bytes(range(16)))


def test_the_bytes_are_kafkas():
    assert files.encode_epochs([EpochEntry(1, 5), EpochEntry(3, 9)]) == b"0\n2\n1 5\n3 9\n"
    assert files.encode_epochs([]) == b"0\n0\n"
    offsets = {("b", 0): 7, ("a", 1): 5, ("a", 0): 2**62}
    assert files.encode_offsets(offsets) == b"0\n3\na 0 %d\na 1 5\nb 0 7\n" % 2**62
    text = uuid_to_text(TOPIC_ID)
    assert files.encode_partition_metadata(TOPIC_ID) == f"version: 0\ntopic_id: {text}".encode()
    assert files.encode_clean_shutdown(17) == b'{"version":0,"brokerEpoch":17}'


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=9))
def test_epochs_come_back(pairs):
    entries = EpochCache(pairs).entries
    assert files.decode_epochs(files.encode_epochs(entries)) == entries


@given(
    st.dictionaries(
        st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,9}", fullmatch=True), st.integers(0, 2**31 - 1)),
        st.integers(0, 2**63 - 1),
        max_size=5,
    )
)
def test_offsets_come_back(offsets):
    assert files.decode_offsets(files.encode_offsets(offsets)) == offsets


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0",
        b"0\n",
        b"0\n1\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0 1\nb 0 2\n",
        b"1\n0\n",
        b"0\n-1\n",
        b"0\nx\n",
        b"0\n1\na 0\n",
        b"0\n1\na x 1\n",
        b"0\n1\na 0 1e3\n",
        b"0\n1\na 0 99999999999999999999\n",
        b"0\n99999999999\n",
        b"\xff\xfe",
    ],
)
def test_broken_offset_checkpoints(data):
    with pytest.raises(CorruptCheckpoint):
        files.decode_offsets(data)


@pytest.mark.parametrize("data", [b"0\n2\n1 5\n1 6\n", b"0\n2\n1 5\n2 4\n", b"0\n1\n-1 5\n"])
def test_epochs_must_grow(data):
    with pytest.raises(CorruptCheckpoint):
        files.decode_epochs(data)


def test_every_cut_is_found_except_of_the_last_line_end():
    whole = files.encode_offsets({("topic", 3): 12, ("topic", 4): 5})
    for end in range(len(whole) - 1):
        with contextlib.suppress(CorruptCheckpoint):
            assert files.decode_offsets(whole[:end]) == "never read"


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_corrupt(data):
    for decode in (files.decode_epochs, files.decode_offsets, files.decode_partition_metadata):
        with contextlib.suppress(CorruptCheckpoint):
            decode(data)
    assert files.decode_clean_shutdown(data) >= -1 or data


def test_partition_metadata():
    encoded = files.encode_partition_metadata(TOPIC_ID)
    assert files.decode_partition_metadata(encoded) == TOPIC_ID
    assert files.decode_partition_metadata(encoded + b"\n\n") == TOPIC_ID
    for broken in (
        b"",
        b"version: 1\ntopic_id: " + uuid_to_text(TOPIC_ID).encode(),
        b"version: 0\n",
        b"version: 0\ntopic_id: short",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
    ):
        with pytest.raises(CorruptCheckpoint):
            files.decode_partition_metadata(broken)


@pytest.mark.parametrize(
    ("data", "epoch"),
    [(b'{"version":0,"brokerEpoch":9}', 9), (b"", -1), (b"[]", -1), (b"{}", -1), (b"\xff", -1)],
)
def test_clean_shutdown(data, epoch):
    assert files.decode_clean_shutdown(data) == epoch
