"""Decompression with a budget. The first byte is the codec."""

from __future__ import annotations

import random
from collections.abc import Sequence

from fuzz.target import Finding
from protocol.compression import Codec, compress, decompress
from protocol.errors import ApiError

BUDGET_BYTES = 1 << 20


class Compression:
    def seeds(self, rng: random.Random) -> Sequence[bytes]:
        plain = (b"", b"a", b"abc" * 100, rng.randbytes(500), bytes(100_000), bytes(3 << 20))
        return [bytes((codec,)) + compress(codec, data) for codec in Codec for data in plain]

    def run(self, data: bytes) -> None:
        if not data:
            return
        codec = Codec(data[0] % len(Codec))
        try:
            out = decompress(codec, data[1:], BUDGET_BYTES)
        except ApiError:
            return
        if len(out) > BUDGET_BYTES:
            raise Finding(f"{codec.name}: {len(out)} bytes, budget {BUDGET_BYTES}")

    def close(self) -> None:
        pass


def make() -> Compression:
    return Compression()
