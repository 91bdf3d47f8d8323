"""The four codecs of record batches, with a limit on the decompressed size.

A batch contains its compressed size, but not its decompressed one: one megabyte of zstd can expand
to terabytes. So every decompression has a budget in bytes. The output buffer starts near the size
of a normal batch and grows only while the stream keeps filling it, up to the budget. No buffer is
allocated because of an announced size. (zstd's own decoder reserves the window that a frame
announces, 128 MiB at most, and touches only what it fills.)

Framings, as clients write them:

- gzip: one or more members; zstd: one or more frames.
- lz4: the frame format. Written with independent 64 KiB blocks, because Java's reader does not
  support linked ones (`lz4_is_linked`); read in every variant.
- snappy: Java and librdkafka's Java mode put raw blocks after a 16-byte header ("xerial"); others
  send one raw block. Both are read; xerial is written, as in Kafka.

The functions use no clock and no I/O. Levels are those of KIP-390.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeAlias

import cramjam

from protocol.errors import ApiError, ErrorCode

Buffer: TypeAlias = bytes | bytearray | memoryview

DEFAULT_BUDGET_BYTES = 128 * 1024 * 1024
"""Default limit of the decompressed size of one batch."""

_FIRST_BUFFER_BYTES = 64 * 1024
_GROWTH = 4

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024

# Magic, then version 01 with independent blocks and no checksums, 64 KiB blocks, header checksum.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_MAGIC = _LZ4_HEADER[:4]
_LZ4_INDEPENDENT_BIT = 0x20
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 0x80000000
_LZ4_END = bytes(4)
_LZ4_FAST_LEVEL = 9
"""Kafka's default level, for which the fast compressor is used; other levels use the slow one."""

_int32 = struct.Struct(">i")
_uint32_le = struct.Struct("<I")


class Codec(IntEnum):
    """Compression of a batch: the low three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


DEFAULT_LEVELS = {Codec.GZIP: 6, Codec.LZ4: _LZ4_FAST_LEVEL, Codec.ZSTD: 3}


def codec_of(codec_id: int) -> Codec:
    """Return the codec with this number.

    Raises ApiError(UNSUPPORTED_COMPRESSION_TYPE) for the numbers 5 to 7.
    """
    if codec_id > 4:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type id: {codec_id}"
        )
    return Codec(codec_id)


def decompress(
    codec: Codec,
    data: Buffer,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    look: Callable[[Buffer], None] | None = None,
) -> bytes:
    """Decompress `data`.

    `look` is called with the first part of the result whenever a larger buffer is needed. It may
    raise an error, so that a batch is refused before memory for the rest is taken. (Snappy
    announces its sizes, and is decompressed at once.)

    Raises ApiError: MESSAGE_TOO_LARGE if the result would exceed `budget_bytes`, CORRUPT_MESSAGE if
    `data` is not a whole stream of this codec.
    """
    if codec is Codec.NONE:
        if len(data) > budget_bytes:
            raise _over_budget(codec, budget_bytes)
        return bytes(data)
    if codec is Codec.SNAPPY:
        return _snappy_decompress(data, budget_bytes)
    into = _DECOMPRESS_INTO[codec]
    size = min(max(len(data) * _GROWTH, _FIRST_BUFFER_BYTES), budget_bytes)
    while True:
        out = bytearray(size)
        try:
            written = into(data, out)
        except (cramjam.DecompressionError, OSError, ValueError) as error:
            if "whole buffer" not in str(error):
                raise _corrupt(codec, error) from None
        else:
            return bytes(memoryview(out)[:written])
        if look is not None:
            look(out)
        if size >= budget_bytes:
            raise _over_budget(codec, budget_bytes)
        size = min(size * _GROWTH, budget_bytes)


def lz4_is_linked(data: Buffer) -> bool:
    """Return whether `data` begins with an lz4 frame whose blocks depend on each other.

    Java's clients and Apache Kafka cannot read such a frame.
    """
    return len(data) > 4 and data[:4] == _LZ4_MAGIC and not data[4] & _LZ4_INDEPENDENT_BIT


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` with the framing of Kafka's own clients; `level` None or -1 is the
    default."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.SNAPPY:
        return _xerial_compress(memoryview(data))
    if level is None or level == -1:
        level = DEFAULT_LEVELS[codec]
    if codec is Codec.LZ4:
        return _lz4_compress(memoryview(data), level)
    module = cramjam.gzip if codec is Codec.GZIP else cramjam.zstd
    return bytes(module.compress(data, level))


_DECOMPRESS_INTO: dict[Codec, Callable[[Any, Any], int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def _snappy_decompress(data: Buffer, budget_bytes: int) -> bytes:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(data, budget_bytes, budget_bytes)
    view = memoryview(data)
    blocks: list[bytes] = []
    pos, left = 0, budget_bytes
    while pos < len(view):
        # A second stream may follow the first, with its own header.
        if view[pos : pos + 8] == _XERIAL_MAGIC:
            pos += len(_XERIAL_HEADER)
            if pos > len(view):
                raise _corrupt(Codec.SNAPPY, "truncated stream header")
            continue
        if pos + 4 > len(view):
            raise _corrupt(Codec.SNAPPY, "truncated block length")
        (length,) = _int32.unpack_from(view, pos)
        pos += 4
        if length < 0 or length > len(view) - pos:
            raise _corrupt(Codec.SNAPPY, f"block of {length} bytes, {len(view) - pos} left")
        block = _snappy_block(view[pos : pos + length], left, budget_bytes)
        left -= len(block)
        blocks.append(block)
        pos += length
    return b"".join(blocks)


def _snappy_block(data: Buffer, left_bytes: int, budget_bytes: int) -> bytes:
    try:
        length = cramjam.snappy.decompress_raw_len(data)
        if length > left_bytes:
            raise _over_budget(Codec.SNAPPY, budget_bytes)
        # Three input bytes give at most 64: a larger size is invalid; detect it before allocating.
        if length > len(data) * 32:
            raise _corrupt(Codec.SNAPPY, f"{length} bytes announced by {len(data)}")
        return bytes(cramjam.snappy.decompress_raw(data))
    except (cramjam.DecompressionError, OSError, ValueError) as error:
        raise _corrupt(Codec.SNAPPY, error) from None


def _xerial_compress(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_int32.pack(len(block)), block)
    return b"".join(parts)


def _lz4_compress(data: memoryview, level: int) -> bytes:
    options: dict[str, Any] = {"store_size": False}
    if level != _LZ4_FAST_LEVEL:
        options |= {"mode": "high_compression", "compression": level}
    parts = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = data[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, **options))
        if len(block) < len(plain):
            parts += (_uint32_le.pack(len(block)), block)
        else:
            parts += (_uint32_le.pack(len(plain) | _LZ4_STORED), bytes(plain))
    parts.append(_LZ4_END)
    return b"".join(parts)


def _over_budget(codec: Codec, budget_bytes: int) -> ApiError:
    return ApiError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The {codec.name.lower()} batch decompresses to more than {budget_bytes} bytes",
    )


def _corrupt(codec: Codec, why: object) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"Corrupt {codec.name.lower()} data: {why}")
