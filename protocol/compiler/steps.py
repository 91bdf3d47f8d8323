"""Source of a decoder that pauses: a generator for frames of any size.

It decodes the same messages as the code of `decoder.py`. It counts work and yields 0 after each
step of `STEP_WORK` units; the caller resumes it at any time. One unit is an element, a tagged
field, or 256 bytes of text, and takes a microsecond or two. It also counts the memory of the
values. If that exceeds `room`, it yields the missing bytes before it builds the values, and the
caller sends back at least as many.

The limits are those of Apache Kafka 4.4: 1,000,000 elements of a list, and 10,000 tagged fields of
a section. In addition, all lists of anything but numbers have at most 1,000,000 elements together:
freeing more objects would block the event loop for too long. Frames for `decoder.py` are too small
to exceed a limit.
"""

from __future__ import annotations

import io
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final

from protocol.compiler.bounded import (
    BYTES_SHIFT,
    LONG_TEXT_BYTES,
    NUMBERS_SHIFT,
    TAGS_SHIFT,
    TEXT_SHIFT,
)
from protocol.compiler.decoder import Decoder, next_tag
from protocol.compiler.plan import SLOT_BYTES, TAG_BYTES, Plan, PlannedField
from protocol.compiler.source import SMALL_ARRAY

ELEMENTS_MAX: Final = 1_000_000
TAGS_MAX: Final = 10_000

STEP_WORK: Final = 100
NUMBERS_AT_ONCE: Final = 512
BYTES_AT_ONCE: Final = 128 * 1024


def compile_steps(plan: Plan, step_work: int = STEP_WORK) -> Any:
    """Return `decode(buf: memoryview, pos, end, room, made)`, a generator.

    It yields 0 to pause, or the bytes of memory that it needs beyond `room`; the caller then sends
    at least as many. It appends the message to `made` before it reads its fields, and returns
    (message, next position).
    """
    return _StepDecoder(step_work).compile(plan)


def portions(count: int) -> Iterator[int]:
    """Yield the sizes of the portions in which a list of `count` numbers is read."""
    while count > NUMBERS_AT_ONCE:
        yield NUMBERS_AT_ONCE
        count -= NUMBERS_AT_ONCE
    yield count


def long_bytes(buf: memoryview, pos: int, stop: int) -> Generator[int, Any, bytes]:
    """Copy the bytes of a long field; yield 0 between two portions."""
    out = io.BytesIO()
    while pos < stop:
        out.write(buf[pos : min(pos + BYTES_AT_ONCE, stop)])
        pos += BYTES_AT_ONCE
        yield 0
    return out.getvalue()


def tag_steps(
    buf: memoryview, pos: int, end: int, count: int
) -> Generator[int, Any, tuple[dict[int, bytes] | None, int]]:
    """Read `count` tagged fields of a struct that defines none; yield 0 now and then.

    Returns: the fields by tag, or None without any, and the next position.
    """
    tags: dict[int, bytes] = {}
    tag = -1
    for left in range(count, 0, -1):
        tag, start, pos = next_tag(buf, pos, end, tag)
        if pos - start > BYTES_AT_ONCE:
            tags[tag] = yield from long_bytes(buf, start, pos)
        else:
            tags[tag] = bytes(buf[start:pos])
        if left % STEP_WORK == 0:
            yield 0
    return tags or None, pos


class _StepDecoder(Decoder):
    SIGNATURE = "decode(buf, pos, end, room, made)"

    def __init__(self, step_work: int) -> None:
        super().__init__()
        self.step_work = step_work

    def begin(self) -> None:
        self.source.scope.update(portions=portions, long_bytes=long_bytes, tag_steps=tag_steps)
        self.source.emit(f"left = {self.step_work}")
        self.source.emit(f"others = {ELEMENTS_MAX}")
        with self.source.block("if False:"):
            self.source.emit("yield 0")

    def struct_made(self, name: str) -> None:
        if name == "m":
            self.source.emit("made.append(m)")

    # --- work and memory -----------------------------------------------------------------------

    def work(self, units: str) -> None:
        """Emit a count of work that was done, and a pause at the end of a step."""
        self.source.emit(f"left -= {units}")
        with self.source.block("if left <= 0:"):
            self.source.emit("yield 0")
            self.source.emit(f"left = {self.step_work}")

    def memory(self, size: str) -> None:
        """Emit a request for memory before it is used."""
        self.source.emit(f"room -= {size}")
        with self.source.block("if room < 0:"):
            self.source.emit("room += yield -room")

    def limit(self, what: str, count: str, most: int) -> None:
        with self.source.block(f"if {count} > {most}:"):
            self.source.emit(f'raise Beyond("{what}", {count}, "0-{most}")')

    # --- values that may be large --------------------------------------------------------------

    def count_tags(self, plan: Plan) -> None:
        self.varint("tags")
        self.limit(f"tagged fields of {plan.cls.__qualname__}", "tags", TAGS_MAX)
        self.memory(f"tags * {TAG_BYTES}")

    def skip_tags(self, name: str) -> None:
        self.source.emit(f"{name}.unknown_tags, pos = yield from tag_steps(buf, pos, end, tags)")
        self.work(f"tags >> {TAGS_SHIFT}")

    def keep_tag(self, target: str, stop: str) -> None:
        with self.source.block(f"if {stop} - pos > {BYTES_AT_ONCE}:"):
            self.source.emit(f"{target} = yield from long_bytes(buf, pos, {stop})")
        with self.source.block("else:"):
            super().keep_tag(target, stop)

    def read_value(self, f: PlannedField, target: str, value: str) -> None:
        if f.kind.name == "records":
            super().read_value(f, target, value)
        elif f.kind.name == "string":
            with self.source.block(f"if stop - pos > {LONG_TEXT_BYTES}:"):
                # One character outside the basic plane makes CPython use four bytes for each.
                self.memory("4 * (stop - pos)")
                self.work(f"(stop - pos) >> {TEXT_SHIFT}")
            super().read_value(f, target, value)
        else:
            with self.source.block(f"if stop - pos > {BYTES_AT_ONCE}:"):
                self.memory("stop - pos")
                self.source.emit(f"{target} = yield from long_bytes(buf, pos, stop)")
                self.source.emit(f"left = {self.step_work}")
            with self.source.block("else:"):
                self.memory("stop - pos")
                super().read_value(f, target, value)
                self.work(f"(stop - pos) >> {BYTES_SHIFT}")

    def read_elements(self, element: PlannedField, n: str, target: str) -> None:
        self.limit(f"elements of {element.name}", n, ELEMENTS_MAX)
        self.memory(f"{n} * {SLOT_BYTES + element.object_bytes()}")
        code = element.kind.code
        if not (code and len(code) == 1):
            self.source.emit(f"others -= {n}")
            with self.source.block("if others < 0:"):
                count = f"{ELEMENTS_MAX} - others"
                self.source.emit(
                    f'raise Beyond("elements of all lists", {count}, "0-{ELEMENTS_MAX}")'
                )
            super().read_elements(element, n, target)
            return
        source = self.source
        with source.block(f"if {n} < {SMALL_ARRAY}:"):
            super().read_numbers(element, n, target)
        with source.block("else:"):
            items, some = source.fresh("items"), source.fresh("some")
            source.emit(f"{target} = {items} = []")
            with source.block(f"for {some} in portions({n}):"):
                source.emit(f"{items} += unpack_from(f'>{{{some}}}{code}', buf, pos)")
                source.emit(f"pos += {some} * {element.kind.size_bytes}")
                self.work(f"{some} >> {NUMBERS_SHIFT}")

    def tag_read(self) -> None:
        self.work("1")

    @contextmanager
    def each_element(self, n: str) -> Iterator[None]:
        # Work is counted once per step of elements: to count each one takes a tenth more time.
        source, some = self.source, self.source.fresh("some")
        most = max(self.step_work, 1)
        with source.block(f"while {n}:"):
            source.emit(f"{some} = {n} if {n} < {most} else {most}")
            source.emit(f"{n} -= {some}")
            with source.block(f"for _ in range({some}):"):
                yield
            self.work(some)
