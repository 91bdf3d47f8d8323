"""Source of an encoder for one message version.

Adjacent fixed-size fields and the length prefix that follows them are written with one `pack`.
Values are not checked one by one: `struct` refuses values that are out of range, and
`protocol.twin` explains any error afterwards.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from protocol.compiler.plan import (
    COMPACT_PREFIX,
    MAX_LENGTH,
    MAX_STRING_BYTES,
    Plan,
    PlannedField,
)
from protocol.compiler.source import SMALL_ARRAY, Malformed, Source
from protocol.schema import FRESH, Buffer

# Record sets up to this size are copied into the surrounding buffer: another part costs more.
COPY_RECORDS_BYTES = 512


def put_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint. Raises: Malformed unless 0 <= value <= 2**31 - 1."""
    if not 0 <= value <= MAX_LENGTH:
        raise Malformed
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def put_tags(
    out: bytearray, known: list[tuple[int, bytearray]], unknown: dict[int, bytes] | None
) -> None:
    """Append a tag section in tag order. Raises: Malformed if a tag occurs twice."""
    fields: Sequence[tuple[int, Buffer]] = known
    if unknown:
        fields = [*known, *unknown.items()]
        fields.sort(key=lambda field: field[0])
        if len({tag for tag, _ in fields}) != len(fields):
            raise Malformed
    put_uvarint(out, len(fields))
    for tag, payload in fields:
        size = len(payload)
        if 0 <= tag < 128 and size < 128:
            out.append(tag)
            out.append(size)
        else:
            put_uvarint(out, tag)
            put_uvarint(out, size)
        out += payload


def records_size(value: Any) -> int:
    """Return the size in bytes of a record set, which may be a list of pieces."""
    return sum(map(len, value)) if type(value) is list else len(value)


def put_records(out: bytearray, parts: list[Buffer], value: Any) -> bytearray:
    """Append a record set to `parts` without copying it; small pieces are copied to `out`.

    Returns: the buffer for the bytes that follow.
    """
    for piece in value if type(value) is list else (value,):
        if len(piece) <= COPY_RECORDS_BYTES:
            out += piece
        else:
            parts += (out, piece)
            out = bytearray()
    return out


def compile_encoder(plan: Plan) -> Any:
    """Return `encode(m, out: bytearray, parts: list) -> bytearray`.

    `encode` appends finished buffers to `parts` and returns the buffer that follows them.
    """
    return _Encoder().compile(plan)


class _Encoder:
    def __init__(self) -> None:
        self.source = Source()
        self.values: list[str] = []
        self.codes = ""
        self.out = "out"
        self.source.scope.update(
            pack=struct.pack,
            put_uvarint=put_uvarint,
            put_tags=put_tags,
            put_records=put_records,
            records_size=records_size,
        )

    def compile(self, plan: Plan) -> Any:
        self.write_struct(plan, "m")
        self.flush()
        self.source.emit("return out")
        return self.source.function("encode(m, out, parts)")

    # --- fixed-size values, collected until a value of variable size follows

    def fixed(self, value: str, code: str) -> None:
        self.values.append(value)
        self.codes += code

    def take(self) -> tuple[list[str], str]:
        """Return the collected values and their codes, and start a new collection."""
        waiting = self.values, self.codes
        self.values, self.codes = [], ""
        return waiting

    def emit_pack(self, values: list[str], codes: str) -> None:
        if codes == COMPACT_PREFIX:
            self.source.emit(f"{self.out}.append({values[0]})")
        elif codes:
            pack = self.source.packer("pack", codes)
            self.source.emit(f"{self.out} += {pack}({', '.join(values)})")

    def flush(self) -> None:
        self.emit_pack(*self.take())

    def flush_with_varint(self, n: str, *, limit: int | None = None) -> None:
        """Emit the collected values and the varint `n`, with one `pack` if it takes one byte."""
        values, codes = self.take()
        with self.source.block(f"if {n} < 128:"):
            self.emit_pack([*values, n], codes + COMPACT_PREFIX)
        with self.source.block("else:"):
            if limit is not None:
                self.refuse(f"{n} > {limit}")
            self.emit_pack(values, codes)
            self.source.emit(f"put_uvarint({self.out}, {n})")

    # --- structs

    def write_struct(self, plan: Plan, name: str) -> None:
        for f in plan.absent:
            if not f.ignorable:
                self.refuse_value(f, name)
        if not plan.flexible:
            self.refuse(f"{name}.unknown_tags")
        for f in plan.plain:
            self.write_field(f, f"{name}.{f.name}")
        if plan.flexible:
            self.write_tags(plan, name)

    def refuse(self, condition: str) -> None:
        with self.source.block(f"if {condition}:"):
            self.source.emit("raise Malformed")

    def refuse_value(self, f: PlannedField, name: str) -> None:
        value = self.source.fresh("v")
        self.source.emit(f"{value} = {name}.{f.name}")
        self.refuse(self.differs(f, value))

    def differs(self, f: PlannedField, value: str) -> str:
        """Return an expression that is true if `value` is not the field's default."""
        if f.default is None:
            return f"{value} is not None"
        if f.default is not FRESH:
            return f"{value} != {f.default!r}"
        if f.kind.element is not None:
            return f"({value} or {value} is None)"
        assert f.struct is not None
        inner = f.struct.plain + f.struct.tagged + f.struct.absent
        tests = [self.differs(g, f"{value}.{g.name}") for g in inner]
        if f.nullable:
            tests.insert(0, f"{value} is None")
        return f"({' or '.join([*tests, f'{value}.unknown_tags'])})"

    def write_tags(self, plan: Plan, name: str) -> None:
        source = self.source
        if not plan.tagged:
            self.flush_tag_count(f"{name}.unknown_tags", f"[], {name}.unknown_tags")
            return
        self.flush()
        known = source.fresh("tags")
        source.emit(f"{known} = []")
        outer = self.out
        for f in plan.tagged:
            value = source.fresh("v")
            source.emit(f"{value} = {name}.{f.name}")
            with source.block(f"if {self.differs(f, value)}:"):
                self.out = source.fresh("out")
                source.emit(f"{self.out} = bytearray()")
                self.write_field(f, value)
                self.flush()
                source.emit(f"{known}.append(({f.tag}, {self.out}))")
        self.out = outer
        self.flush_tag_count(f"{known} or {name}.unknown_tags", f"{known}, {name}.unknown_tags")

    def flush_tag_count(self, condition: str, arguments: str) -> None:
        """Emit the tag section; the empty one, which is usual, is packed with other values."""
        values, codes = self.take()
        with self.source.block(f"if {condition}:"):
            self.emit_pack(values, codes)
            self.source.emit(f"put_tags({self.out}, {arguments})")
        with self.source.block("else:"):
            self.emit_pack([*values, "0"], codes + COMPACT_PREFIX)

    # --- fields

    def write_field(self, f: PlannedField, value: str) -> None:
        if f.kind.name == "uuid":
            self.refuse(f"len({value}) != 16")
        if f.kind.code:
            self.fixed(value, f.kind.code)
        elif f.kind.name == "struct":
            self.write_nested(f, value)
        elif f.kind.name == "array":
            self.write_array(f, value)
        else:
            self.write_blob(f, value)

    def write_nested(self, f: PlannedField, value: str) -> None:
        assert f.struct is not None
        name = self.source.fresh("m")
        self.source.emit(f"{name} = {value}")
        if not f.nullable:
            self.write_struct(f.struct, name)
            return
        self.flush()
        with self.source.block(f"if {name} is None:"):
            self.source.emit(f"{self.out}.append({f.null_byte})")
        with self.source.block("else:"):
            self.fixed("1", "B")
            self.write_struct(f.struct, name)
            self.flush()

    def write_length(self, f: PlannedField, n: str) -> None:
        """Emit the length prefix; the variable `n` has the length, plus one if it is compact."""
        if f.compact:
            limit = MAX_STRING_BYTES + 1 if f.kind.name == "string" else None
            self.flush_with_varint(n, limit=limit)
        else:
            self.fixed(n, f.prefix)
            self.flush()

    def write_blob(self, f: PlannedField, value: str) -> None:
        source = self.source
        v, n = source.fresh("v"), source.fresh("n")
        text = f.kind.name == "string"
        size = "records_size" if f.kind.name == "records" else "len"
        source.emit(f"{v} = {value}")
        length = f"{size}({v}) + 1" if f.compact else f"{size}({v})"
        if f.nullable:
            with source.block(f"if {v} is None:"):
                source.emit(f"{n} = {0 if f.compact else -1}")
            with source.block("else:"):
                if text:
                    source.emit(f"{v} = {v}.encode()")
                source.emit(f"{n} = {length}")
        else:
            if text:
                source.emit(f"{v} = {v}.encode()")
            source.emit(f"{n} = {length}")
        self.write_length(f, n)
        put = f"{self.out} += {v}"
        if f.kind.name == "records":
            put = f"{self.out} = put_records({self.out}, parts, {v})"
        if f.nullable:
            with source.block(f"if {v} is not None:"):
                source.emit(put)
        else:
            source.emit(put)

    def write_array(self, f: PlannedField, value: str) -> None:
        source = self.source
        v, n = source.fresh("v"), source.fresh("n")
        source.emit(f"{v} = {value}")
        length = f"len({v}) + 1" if f.compact else f"len({v})"
        if f.nullable:
            length = f"{0 if f.compact else -1} if {v} is None else {length}"
        source.emit(f"{n} = {length}")
        self.write_length(f, n)
        with source.block(f"if {v}:"):
            self.write_elements(f.element(), v)

    def write_elements(self, element: PlannedField, items: str) -> None:
        source = self.source
        code = element.kind.code
        if code and len(code) == 1:
            n = source.fresh("n")
            small = source.array_packers("pack", code)
            source.emit(f"{n} = len({items})")
            with source.block(f"if {n} < {SMALL_ARRAY}:"):
                source.emit(f"{self.out} += {small}[{n}](*{items})")
            with source.block("else:"):
                source.emit(f"{self.out} += pack(f'>{{{n}}}{code}', *{items})")
            return
        item = source.fresh("m")
        with source.block(f"for {item} in {items}:"):
            if element.struct is not None:
                self.write_struct(element.struct, item)
            else:
                self.write_field(element, item)
            self.flush()
