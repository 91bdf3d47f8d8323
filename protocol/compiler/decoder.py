"""Source of a decoder for one message version.

Adjacent fixed-size fields, the length prefix of the variable field that follows them, and the count
of tagged fields are read with one `unpack_from` into the attributes. Structs are read inline,
without a call per element. Reading beyond the buffer raises struct.error or IndexError. Every
length is compared with the remaining bytes before a value is built.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from protocol.compiler.plan import (
    COMPACT_PREFIX,
    MAX_LENGTH,
    MAX_STRING_BYTES,
    Plan,
    PlannedField,
)
from protocol.compiler.source import SMALL_ARRAY, Malformed, Source, size_of
from protocol.schema import FRESH


def uvarint_rest(buf: memoryview, pos: int, first: int) -> tuple[int, int]:
    """Finish an unsigned varint whose first byte, with the high bit set, was read before `pos`.

    Returns:
        The value and the next position.

    Raises:
        Malformed: it has more than five bytes or exceeds 2**31 - 1.
    """
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > MAX_LENGTH:
                raise Malformed
            return value, pos
    raise Malformed


def next_tag(buf: memoryview, pos: int, end: int, last: int) -> tuple[int, int, int]:
    """Read the tag and size of a tagged field. Returns: (tag, start, stop) of its bytes.

    Raises: Malformed if the tag is not above `last`, or the field exceeds `end`.
    """
    tag = buf[pos]
    pos += 1
    if tag > 0x7F:
        tag, pos = uvarint_rest(buf, pos, tag)
    size = buf[pos]
    pos += 1
    if size > 0x7F:
        size, pos = uvarint_rest(buf, pos, size)
    stop = pos + size
    if tag <= last or stop > end:
        raise Malformed
    return tag, pos, stop


def unknown_tags(
    buf: memoryview, pos: int, end: int, count: int
) -> tuple[dict[int, bytes] | None, int]:
    """Read the tagged fields of a struct that defines none.

    Args:
        count: the first byte of the number of fields, which was read before `pos`.

    Returns: the fields by tag, or None without any, and the next position.
    """
    if count > 0x7F:
        count, pos = uvarint_rest(buf, pos, count)
    tags: dict[int, bytes] = {}
    tag = -1
    for _ in range(count):
        tag, start, pos = next_tag(buf, pos, end, tag)
        tags[tag] = bytes(buf[start:pos])
    return tags or None, pos


def compile_decoder(plan: Plan) -> Any:
    """Return `decode(buf: memoryview, pos, end) -> (object, next position)`."""
    return Decoder().compile(plan)


class Decoder:
    """Emits the decoder of one plan; subclasses override the emitters of large values."""

    SIGNATURE = "decode(buf, pos, end)"

    def __init__(self) -> None:
        self.source = Source()
        self.targets: list[str] = []
        self.codes = ""
        self.source.scope.update(
            new=object.__new__,
            uvarint_rest=uvarint_rest,
            unknown_tags=unknown_tags,
            unpack_from=struct.unpack_from,
        )

    def compile(self, plan: Plan) -> Any:
        self.begin()
        self.read_struct(plan, "m")
        self.source.emit("return m, pos")
        return self.source.function(self.SIGNATURE)

    # --- hooks for decoders that count work

    def begin(self) -> None:
        """Emit lines before the first struct."""

    def struct_made(self, name: str) -> None:
        """Emit lines after a struct is created and before its fields are read."""

    def count_tags(self, plan: Plan) -> None:
        """Emit the rest of the number of tagged fields, whose first byte is not 0."""
        if plan.tagged:
            self.varint("tags")

    def skip_tags(self, name: str) -> None:
        """Emit the reading of tagged fields of a struct that defines none."""
        self.source.emit(f"{name}.unknown_tags, pos = unknown_tags(buf, pos, end, tags)")

    def keep_tag(self, target: str, stop: str) -> None:
        """Emit the copy of an undefined tagged field."""
        self.source.emit(f"{target} = bytes(buf[pos:{stop}])")

    def tag_read(self) -> None:
        """Emit lines after a tagged field of a struct that defines some."""

    @contextmanager
    def each_element(self, n: str) -> Iterator[None]:
        """Emit a loop over the `n` elements of a list."""
        with self.source.block(f"for _ in range({n}):"):
            yield

    # --- fixed-size fields, collected until a field of variable size follows

    def fixed(self, target: str, code: str) -> None:
        self.targets.append(target)
        self.codes += code

    def flush(self) -> None:
        if not self.targets:
            return
        if self.codes == "B":
            self.source.emit(f"{self.targets[0]} = buf[pos]")
            self.source.emit("pos += 1")
            self.targets, self.codes = [], ""
            return
        comma = "," if len(self.targets) == 1 else ""
        unpack = self.source.packer("unpack", self.codes)
        self.source.emit(f"{', '.join(self.targets)}{comma} = {unpack}(buf, pos)")
        self.source.emit(f"pos += {size_of(self.codes)}")
        self.targets, self.codes = [], ""

    def varint(self, name: str) -> None:
        """Emit the rest of a varint whose first byte is in the variable `name`."""
        with self.source.block(f"if {name} > 127:"):
            self.source.emit(f"{name}, pos = uvarint_rest(buf, pos, {name})")

    # --- structs

    def read_struct(self, plan: Plan, name: str) -> None:
        emit = self.source.emit
        emit(f"{name} = new({self.source.constant('C', plan.cls)})")
        self.struct_made(name)
        for f in plan.absent + plan.tagged:
            self.set_default(f, f"{name}.{f.name}")
        emit(f"{name}.unknown_tags = None")
        for f in plan.plain:
            self.read_field(f, f"{name}.{f.name}")
        if plan.flexible:
            self.fixed("tags", "B")
        self.flush()
        if not plan.flexible:
            return
        with self.source.block("if tags:"):
            self.count_tags(plan)
            if plan.tagged:
                self.read_tags(plan, name)
            else:
                self.skip_tags(name)

    def set_default(self, f: PlannedField, target: str) -> None:
        if f.default is not FRESH:
            literal = repr(f.default)
            self.source.emit(f"{target} = {literal}")
        elif f.kind.element is not None:
            self.source.emit(f"{target} = []")
        else:
            assert f.struct is not None
            name = self.source.fresh("d")
            self.source.emit(f"{target} = {name} = new({self.source.constant('C', f.struct.cls)})")
            inner = f.struct
            for g in inner.plain + inner.tagged + inner.absent:
                self.set_default(g, f"{name}.{g.name}")
            self.source.emit(f"{name}.unknown_tags = None")

    def read_tags(self, plan: Plan, name: str) -> None:
        source = self.source
        last, extra, tag, stop = (source.fresh(s) for s in ("last", "extra", "tag", "stop"))
        source.emit(f"{last} = -1")
        source.emit(f"{extra} = {{}}")
        with source.block("for _ in range(tags):"):
            for item in (tag, "size"):
                source.emit(f"{item} = buf[pos]")
                source.emit("pos += 1")
                self.varint(item)
            source.emit(f"{stop} = pos + size")
            with source.block(f"if {tag} <= {last} or {stop} > end:"):
                source.emit("raise Malformed")
            source.emit(f"{last} = {tag}")
            word = "if"
            for f in plan.tagged:
                with source.block(f"{word} {tag} == {f.tag}:"):
                    self.read_field(f, f"{name}.{f.name}")
                    self.flush()
                word = "elif"
            with source.block("else:"):
                self.keep_tag(f"{extra}[{tag}]", stop)
                source.emit(f"pos = {stop}")
            with source.block(f"if pos != {stop}:"):
                source.emit("raise Malformed")
            self.tag_read()
        with source.block(f"if {extra}:"):
            source.emit(f"{name}.unknown_tags = {extra}")

    # --- fields

    def read_field(self, f: PlannedField, target: str) -> None:
        if f.kind.code:
            self.fixed(target, f.kind.code)
        elif f.kind.name == "struct":
            self.read_nested(f, target)
        elif f.kind.name == "array":
            self.read_array(f, target)
        else:
            self.read_blob(f, target)

    def read_nested(self, f: PlannedField, target: str) -> None:
        assert f.struct is not None
        name = self.source.fresh("m")
        if not f.nullable:
            self.flush()
            self.read_struct(f.struct, name)
            self.source.emit(f"{target} = {name}")
            return
        self.fixed("n", f.prefix)
        self.flush()
        with self.source.block("if n == 1:"):
            self.read_struct(f.struct, name)
            self.source.emit(f"{target} = {name}")
        with self.source.block(f"elif n == {f.null_byte}:"):
            self.source.emit(f"{target} = None")
        with self.source.block("else:"):
            self.source.emit("raise Malformed")

    def read_length(self, f: PlannedField, n: str) -> None:
        """Emit the reading of a variable-size field's prefix into the variable `n`.

        A compact prefix is the length plus one, and 0 for null; another is -1 for null.
        """
        self.fixed(n, f.prefix)
        self.flush()
        if f.prefix != COMPACT_PREFIX:
            return
        with self.source.block(f"if {n} > 127:"):
            self.source.emit(f"{n}, pos = uvarint_rest(buf, pos, {n})")
            if f.kind.name == "string":
                with self.source.block(f"if {n} > {MAX_STRING_BYTES + 1}:"):
                    self.source.emit("raise Malformed")

    def read_blob(self, f: PlannedField, target: str) -> None:
        source = self.source
        self.read_length(f, "n")
        shift = " - 1" if f.compact else ""
        value = {
            "string": 'str(buf[pos:stop], "utf-8", "replace")',  # as Kafka does
            "bytes": "bytes(buf[pos:stop])",
            "records": "buf[pos:stop]",
        }[f.kind.name]
        source.emit(f"stop = pos + n{shift}")
        if not f.nullable:
            with source.block("if not pos <= stop <= end:"):
                source.emit("raise Malformed")
            self.read_value(f, target, value)
            source.emit("pos = stop")
            return
        with source.block("if pos <= stop <= end:"):
            self.read_value(f, target, value)
            source.emit("pos = stop")
        with source.block(f"elif n == {0 if f.compact else -1}:"):
            source.emit(f"{target} = None")
        with source.block("else:"):
            source.emit("raise Malformed")

    def read_value(self, f: PlannedField, target: str, value: str) -> None:
        """Emit the conversion of the bytes from `pos` to `stop`, an expression in `value`."""
        self.source.emit(f"{target} = {value}")

    def read_array(self, f: PlannedField, target: str) -> None:
        source = self.source
        element = f.element()
        smallest = element.min_size_bytes()
        assert smallest > 0, f"elements of {f.name} take no bytes, so their number has no bound"
        n = source.fresh("n")
        self.read_length(f, n)
        if f.compact:
            source.emit(f"{n} -= 1")
        times = f" * {smallest}" if smallest > 1 else ""
        if not f.nullable:
            with source.block(f"if not 0 <= {n}{times} <= end - pos:"):
                source.emit("raise Malformed")
            self.read_elements(element, n, target)
            return
        with source.block(f"if 0 <= {n}{times} <= end - pos:"):
            self.read_elements(element, n, target)
        with source.block(f"elif {n} == -1:"):
            source.emit(f"{target} = None")
        with source.block("else:"):
            source.emit("raise Malformed")

    def read_elements(self, element: PlannedField, n: str, target: str) -> None:
        source = self.source
        code = element.kind.code
        if code and len(code) == 1:
            self.read_numbers(element, n, target)
            return
        items, item = source.fresh("items"), source.fresh("m")
        source.emit(f"{target} = {items} = []")
        with self.each_element(n):
            if element.struct is not None:
                self.read_struct(element.struct, item)
            else:
                self.read_field(element, item)
                self.flush()
            source.emit(f"{items}.append({item})")

    def read_numbers(self, element: PlannedField, n: str, target: str) -> None:
        source, code = self.source, element.kind.code
        small = source.array_packers("unpack", code)
        with source.block(f"if {n} < {SMALL_ARRAY}:"):
            source.emit(f"{target} = list({small}[{n}](buf, pos))")
        with source.block("else:"):
            source.emit(f"{target} = list(unpack_from(f'>{{{n}}}{code}', buf, pos))")
        source.emit(f"pos += {n} * {element.kind.size_bytes}")
