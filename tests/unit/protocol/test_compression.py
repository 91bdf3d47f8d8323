"""The compression codecs: round trips, foreign framings, truncated and hostile input, the
budget."""

from __future__ import annotations

import gzip
import random
import struct
import zlib

import cramjam
import pytest

from protocol.compression import (
    DEFAULT_LEVELS,
    Codec,
    codec_of,
    compress,
    decompress,
)
from protocol.errors import ApiError, ErrorCode

PACKED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
SIZES = [0, 1, 100, 32 * 1024, 32 * 1024 + 1, 64 * 1024, 64 * 1024 + 1, 1_000_000]


def text(size: int, seed: int = 1) -> bytes:
    rng = random.Random(seed)
    return bytes(rng.choices(b"abcdefgh", k=size))


def noise(size: int, seed: int = 2) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", SIZES)
def test_round_trip(codec: Codec, size: int) -> None:
    for data in (text(size), noise(size), bytes(size)):
        assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer(codec: Codec, kind: type) -> None:
    packed = compress(codec, kind(text(1000)))
    assert decompress(codec, kind(packed)) == text(1000)


@pytest.mark.parametrize(
    ("codec", "level"),
    [(Codec.GZIP, 1), (Codec.GZIP, 9), (Codec.LZ4, 1), (Codec.LZ4, 17), (Codec.ZSTD, -5)]
    + [(Codec.ZSTD, 19), (Codec.GZIP, -1)],
)
def test_levels(codec: Codec, level: int) -> None:
    data = text(100_000)
    assert decompress(codec, compress(codec, data, level)) == data


def test_default_level_is_kafkas() -> None:
    data = text(100_000)
    for codec, level in DEFAULT_LEVELS.items():
        assert compress(codec, data) == compress(codec, data, level)
        assert decompress(codec, compress(codec, data, -1)) == data


@pytest.mark.parametrize("codec", PACKED)
def test_budget_is_exact(codec: Codec) -> None:
    packed = compress(codec, text(300_000))
    assert len(decompress(codec, packed, 300_000)) == 300_000
    with pytest.raises(ApiError) as caught:
        decompress(codec, packed, 299_999)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_budget_of_plain_bytes() -> None:
    with pytest.raises(ApiError) as caught:
        decompress(Codec.NONE, b"12345", 4)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", PACKED)
def test_bomb_stops_at_the_budget(codec: Codec) -> None:
    bomb = compress(codec, bytes(20_000_000))
    with pytest.raises(ApiError) as caught:
        decompress(codec, bomb, 1_000_000)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", PACKED)
def test_truncated_never_passes_for_whole(codec: Codec) -> None:
    data = noise(3000)
    packed = compress(codec, data)
    for length in range(len(packed)):
        if codec is Codec.SNAPPY and length == 16:
            continue  # a stream without blocks is complete
        with pytest.raises(ApiError) as caught:
            decompress(codec, packed[:length])
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", PACKED)
def test_trailing_garbage(codec: Codec) -> None:
    with pytest.raises(ApiError) as caught:
        decompress(codec, compress(codec, text(3000)) + b"\x07garbage")
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", PACKED)
def test_garbage_gives_an_answer(codec: Codec) -> None:
    rng = random.Random(codec)
    packed = compress(codec, text(2000) + noise(200))
    for _ in range(500):
        broken = bytearray(packed)
        for _ in range(rng.randint(1, 5)):
            broken[rng.randrange(min(len(broken), rng.choice((20, 2500))))] = rng.randrange(256)
        try:
            assert len(decompress(codec, broken, 100_000)) <= 100_000
        except ApiError as error:
            assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)


def test_several_members_and_frames() -> None:
    one, two = text(1000), noise(1000)
    for codec in PACKED:
        assert decompress(codec, compress(codec, one) + compress(codec, two)) == one + two
    assert decompress(Codec.GZIP, gzip.compress(one) + gzip.compress(two)) == one + two


def test_zlib_without_gzip_header_is_refused() -> None:
    with pytest.raises(ApiError):
        decompress(Codec.GZIP, zlib.compress(b"abc"))


def test_snappy_raw_block() -> None:
    raw = bytes(cramjam.snappy.compress_raw(text(5000)))
    assert decompress(Codec.SNAPPY, raw) == text(5000)
    with pytest.raises(ApiError) as caught:
        decompress(Codec.SNAPPY, raw, 4999)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_snappy_promise_is_checked_before_memory_is_taken() -> None:
    # The varint length is 100 MB, and eight bytes follow.
    lie = b"\x80\xc2\xd7\x2f" + bytes(8)
    with pytest.raises(ApiError) as caught:
        decompress(Codec.SNAPPY, lie)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 100])
def test_xerial_block_length_lies(length: int) -> None:
    head = compress(Codec.SNAPPY, b"")
    with pytest.raises(ApiError) as caught:
        decompress(Codec.SNAPPY, head + struct.pack(">i", length) + bytes(10))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_xerial_is_what_java_writes() -> None:
    packed = compress(Codec.SNAPPY, text(40_000))
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    (first,) = struct.unpack_from(">i", packed, 16)
    assert len(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == 32 * 1024


def test_lz4_has_independent_blocks_of_64_kib() -> None:
    packed = compress(Codec.LZ4, text(70_000) + noise(70_000))
    assert packed[:7].hex() == "04224d18604082"
    assert packed[-4:] == bytes(4)
    assert decompress(Codec.LZ4, packed) == text(70_000) + noise(70_000)


def test_lz4_linked_blocks_with_checksums_and_size() -> None:
    packed = bytes(cramjam.lz4.compress(text(500_000)))
    assert packed[4] & 0x20 == 0
    assert decompress(Codec.LZ4, packed) == text(500_000)


def test_numbers() -> None:
    assert [codec_of(n) for n in range(5)] == list(Codec)
    for number in (5, 6, 7):
        with pytest.raises(ApiError) as caught:
            codec_of(number)
        assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
