"""Source of a decoder that refuses a message with too many elements.

It decodes a frame of any size as fast as the code of `decoder.py` does: a Produce of some megabytes
has few elements. It counts work in the units of `steps.py`, once per list, before it reads the
list. It therefore stops before the first list that exceeds the limit. Memory is not counted: the
objects of `WORK_AT_ONCE` units take less than `decoding.FREE_BYTES`.
"""

from __future__ import annotations

from typing import Any, Final

from protocol.compiler.decoder import Decoder
from protocol.compiler.plan import Plan, PlannedField
from protocol.compiler.source import TooLong

WORK_AT_ONCE: Final = 1_200
"""Enough for a Fetch of 1,000 partitions; the slowest message takes a millisecond."""
TEXT_SHIFT: Final = 8
"""256 bytes of text are a unit of work, because their UTF-8 is checked."""
LONG_TEXT_BYTES: Final = 127
BYTES_SHIFT: Final = 11
"""2,048 bytes that are only copied are a unit of work."""
NUMBERS_SHIFT: Final = 3
"""Eight numbers are a unit of work."""
TAGS_SHIFT: Final = 2
"""Four unknown tagged fields are a unit of work."""

TAGGED_BYTES: Final = 128 * 1024
"""A struct with unknown tagged fields is read at once if no more than this is left of the frame."""


def compile_bounded(plan: Plan, work: int = WORK_AT_ONCE) -> Any:
    """Return `decode(buf: memoryview, pos, end) -> (object, next position)`.

    Args:
        work: most units of work; `decode` raises TooLong for a message that needs more.
    """
    return _BoundedDecoder(work).compile(plan)


class _BoundedDecoder(Decoder):
    def __init__(self, work: int) -> None:
        super().__init__()
        self.at_once = work
        self.source.scope["TooLong"] = TooLong

    def begin(self) -> None:
        self.source.emit(f"left = {self.at_once}")

    def work(self, units: str) -> None:
        """Emit a check that `units` of work are left, before they are done."""
        self.source.emit(f"left -= {units}")
        with self.source.block("if left < 0:"):
            self.source.emit("raise TooLong")

    def count_tags(self, plan: Plan) -> None:
        self.varint("tags")
        self.work(f"tags >> {TAGS_SHIFT}")

    def skip_tags(self, name: str) -> None:
        # Their bytes are copied without a pause, so only a short rest of the frame may follow.
        with self.source.block(f"if end - pos > {TAGGED_BYTES}:"):
            self.source.emit("raise TooLong")
        super().skip_tags(name)

    def keep_tag(self, target: str, stop: str) -> None:
        self.work(f"({stop} - pos) >> {BYTES_SHIFT}")
        super().keep_tag(target, stop)

    def tag_read(self) -> None:
        self.work("1")

    def read_value(self, f: PlannedField, target: str, value: str) -> None:
        if f.kind.name == "string":
            with self.source.block(f"if stop - pos > {LONG_TEXT_BYTES}:"):
                self.work(f"(stop - pos) >> {TEXT_SHIFT}")
        elif f.kind.name == "bytes":
            with self.source.block(f"if stop - pos >= {1 << BYTES_SHIFT}:"):
                self.work(f"(stop - pos) >> {BYTES_SHIFT}")
        super().read_value(f, target, value)

    def read_elements(self, element: PlannedField, n: str, target: str) -> None:
        code = element.kind.code
        self.work(f"{n} >> {NUMBERS_SHIFT}" if code and len(code) == 1 else n)
        super().read_elements(element, n, target)
