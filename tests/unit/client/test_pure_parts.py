"""Parts of the client that need no node: addresses, partitioner, assignor, errors."""

import pytest

from client.addresses import parse_addresses
from client.errors import BadAddress, Refused, check
from client.partitioner import partition_of
from client.range_assignor import assign_range
from protocol.errors import ApiError, ErrorCode
from protocol.murmur2 import murmur2


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_go_where_kafkas_clients_put_them(key, hashed):
    assert murmur2(key) == hashed & 0xFFFFFFFF
    assert partition_of(key, 7) == (hashed & 0x7FFFFFFF) % 7


def test_range_assignment_gives_neighbours_and_the_rest_to_the_first():
    shares = assign_range({"b": ["t"], "a": ["t", "u"]}, {"t": 5, "u": 1})
    assert shares == {"a": {"t": [0, 1, 2], "u": [0]}, "b": {"t": [3, 4]}}


def test_more_members_than_partitions():
    assert assign_range({"a": ["t"], "b": ["t"]}, {"t": 1}) == {"a": {"t": [0]}, "b": {}}


def test_bootstrap_addresses():
    assert parse_addresses("a:1, [::1]:2") == [("a", 1), ("::1", 2)]
    with pytest.raises(BadAddress, match="expected HOST:PORT .*, got 'localhost'"):
        parse_addresses("localhost")


@pytest.mark.parametrize("port", ["0", "65536", "9" * 40, "-1", "²", "kafka", ""])
def test_a_port_that_cannot_be(port):
    with pytest.raises(
        BadAddress, match=f"expected HOST:PORT with a port from 1 to 65535, got 'a:{port}'"
    ):
        parse_addresses(f"a:{port}")


def test_errors_are_named():
    check(0, "topic x")
    with pytest.raises(Refused, match="topic x: UNKNOWN_TOPIC_OR_PARTITION: ") as caught:
        check(3, "topic x")
    assert caught.value.subject == "topic x"
    assert isinstance(caught.value, ApiError)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(Refused, match=r"^topic x: INVALID_CONFIG: mine$"):
        check(40, "topic x", "mine")
    with pytest.raises(Refused, match=r"^topic x: error 9999$"):
        check(9999, "topic x")
