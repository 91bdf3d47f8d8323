"""Every message with an encoding of its own, requests and responses: any bytes decode or raise.

A decoded message must encode again to bytes that decode to an equal one, and decode to the same in
steps; bytes that are refused must be refused in steps, too. The first two bytes choose class and
version.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from fuzz.target import Finding
from fuzz.values import random_message
from protocol.codec import decode, encode
from protocol.decoding import Allowance, Decoding
from protocol.errors import EncodeError, ProtocolError
from protocol.schema import Message
from testkit.records.messages import message_versions


class Messages:
    def __init__(self) -> None:
        self._cases = message_versions()

    def seeds(self, rng: random.Random) -> Sequence[bytes]:
        out = []
        for at, (cls, version) in enumerate(self._cases):
            for _ in range(2):
                message = random_message(rng, cls, version)
                out.append(at.to_bytes(2, "big") + encode(message, version))
        return out

    def run(self, data: bytes) -> None:
        if len(data) < 2:
            return
        cls, version = self._cases[int.from_bytes(data[:2], "big") % len(self._cases)]
        stepped = _in_steps(cls, data, version)
        try:
            message, end = decode(cls, data, version, 2)
        except ProtocolError:
            if stepped is not None:
                raise Finding(
                    f"{cls.__name__} {version} is rejected, but not when decoded in steps"
                ) from None
            return
        if stepped is None or (stepped != (message, end) and "nan" not in repr(message)):
            raise Finding(f"{cls.__name__} {version} differs when decoded in steps")
        if not 2 <= end <= len(data):
            raise Finding(f"{cls.__name__} {version} ended at {end} of {len(data)}")
        try:
            again = encode(message, version)
        except EncodeError as error:
            raise Finding(f"cannot encode {cls.__name__} {version} again: {error}") from error
        other, _ = decode(cls, again, version)
        if other != message and "nan" not in repr(message):
            raise Finding(f"{cls.__name__} {version} differs when encoded again")

    def close(self) -> None:
        pass


def _in_steps(cls: type[Message], data: bytes, version: int) -> tuple[Message, int] | None:
    decoding = Decoding(cls, memoryview(data), version, 2, Allowance())
    try:
        while not decoding.step():
            pass
    except ProtocolError:
        return None
    return decoding.message, decoding.end


def make() -> Messages:
    return Messages()
