"""Encoding of long messages in steps, to the same bytes as `codec.encode`.

Encoding a response with 100,000 elements takes a tenth of a second, which would block the event
loop. Here a struct that is too heavy for one step is split. Runs of its short fields and each
element of its long lists are separate steps, down to structs that are light enough.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from protocol.compiler.encoder import compile_encoder, put_uvarint
from protocol.compiler.plan import Plan, PlannedField, plan_message
from protocol.schema import Buffer, Message, Struct
from protocol.weights import weigh

STEP_WEIGHT: Final = 100
"""A struct of at most this weight is encoded in one step."""
CHUNK_BYTES: Final = 65_536
"""Encoded bytes are collected in buffers of about this size."""

_int32 = struct.Struct(">i")

_Encoder: TypeAlias = Callable[[Any, bytearray, list[Buffer]], bytearray]


class _LongList(NamedTuple):
    """A list of structs, whose elements are encoded one by one."""

    name: str
    compact: bool
    element: _Steps


class _Steps:
    """The encoders of a struct in one version, compiled at first use."""

    __slots__ = ("_pieces", "_plan", "_whole")

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._whole: _Encoder | None = None
        self._pieces: list[_Encoder | _LongList] | None = None

    @property
    def whole(self) -> _Encoder:
        """The encoder of the whole struct."""
        if self._whole is None:
            self._whole = compile_encoder(self._plan)
        return self._whole

    @property
    def pieces(self) -> list[_Encoder | _LongList]:
        """Encoders of runs of fields, and the lists of structs between them."""
        if self._pieces is None:
            self._pieces = list(_pieces(self._plan))
        return self._pieces


def encode_steps(msg: Message, version: int, parts: list[Buffer]) -> Iterator[int]:
    """Encode a message, appending to `parts`; yield the weight of each step.

    Raises the errors of the compiled encoders for a value that the schema does not allow.
    """
    writer = _Writer(parts)
    yield from writer.write(msg, _steps(type(msg), version))
    parts.append(writer.out)


@cache
def _steps(cls: type[Message], version: int) -> _Steps:
    return _Steps(plan_message(cls, version))


def _pieces(plan: Plan) -> Iterator[_Encoder | _LongList]:
    # A run rejects unknown tags: only the encoder of the whole struct could write them.
    run: list[PlannedField] = []
    absent = plan.absent
    for field in plan.plain:
        if field.kind.name != "array" or field.struct is None:
            run.append(field)
            continue
        yield compile_encoder(Plan(plan.cls, False, run, [], absent))
        yield _LongList(field.name, field.compact, _Steps(field.struct))
        run, absent = [], []
    yield compile_encoder(Plan(plan.cls, plan.flexible, run, plan.tagged, absent))


class _Writer:
    """Fills buffers one after the other."""

    def __init__(self, parts: list[Buffer]) -> None:
        self.out = bytearray()
        self._parts = parts

    def write(self, value: Struct, steps: _Steps) -> Iterator[int]:
        weight = weigh(value, STEP_WEIGHT)
        if weight <= STEP_WEIGHT:
            self._put(steps.whole, value)
            yield weight
            return
        for piece in steps.pieces:
            if not isinstance(piece, _LongList):
                self._put(piece, value)
                yield 1
                continue
            items = getattr(value, piece.name)
            if piece.compact:
                put_uvarint(self.out, 0 if items is None else len(items) + 1)
            else:
                self.out += _int32.pack(-1 if items is None else len(items))
            for item in items or ():
                yield from self.write(item, piece.element)

    def _put(self, encoder: _Encoder, value: Struct) -> None:
        # Record sets are appended to the parts uncopied, after the bytes before them.
        self.out = encoder(value, self.out, self._parts)
        if len(self.out) >= CHUNK_BYTES:
            self._parts.append(self.out)
            self.out = bytearray()
