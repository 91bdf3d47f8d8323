"""Random damage to bytes from one random source: equal seed, equal damage."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

SIZE_MAX = 1 << 16

INTERESTING = (
    b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff\xff", b"\x7f\xff", b"\x80\x00",
    b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff", b"\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x00\x00\x00\x00", b"..", b"/", b"\n",
)  # fmt: skip


def flip_bits(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def random_bytes(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    size = min(rng.randint(1, 8), len(data) - at)
    data[at : at + size] = rng.randbytes(size)


def overwrite(data: bytearray, rng: random.Random) -> None:
    value = rng.choice(INTERESTING)
    at = rng.randrange(len(data))
    data[at : at + len(value)] = value


def insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randint(0, len(data))
    data[at:at] = rng.choice(INTERESTING)


def cut_end(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def cut_middle(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.randint(1, 16)]


def repeat(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    piece = data[at : at + rng.randint(1, 64)]
    data[at:at] = piece * rng.randint(1, 20)


def add_one(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    data[at] = (data[at] + rng.choice((1, -1))) & 0xFF


Damage = Callable[[bytearray, random.Random], None]
DAMAGE: tuple[Damage, ...] = (
    flip_bits, random_bytes, overwrite, insert, cut_end, cut_middle, repeat, add_one,
)  # fmt: skip


def mutate(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Return one seed with zero or more damages; sometimes joined with another one, or noise."""
    if not seeds or rng.random() < 0.03:
        return rng.randbytes(rng.randrange(200))
    data = bytearray(rng.choice(seeds))
    if rng.random() < 0.1:
        other = rng.choice(seeds)
        data[rng.randint(0, len(data)) :] = other[rng.randint(0, len(other)) :]
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 6))):
        if not data:
            break
        rng.choice(DAMAGE)(data, rng)
    return bytes(data[:SIZE_MAX])
