"""The decoder of one message version that stops at a message of many elements, as source.

It reads a frame of any size at the cost of `decoder.py`: a Produce of some megabytes has few
elements. It counts work in the units of `steps.py`, once per list, before the list is read. So a
message that is too long costs no more than what precedes its first list beyond the limit. Memory
needs no count: what `WORK_AT_ONCE` units make is below `decoding.FREE_BYTES`.
"""

from __future__ import annotations

from typing import Any, Final

from protocol.compiler.decoder import Decoder
from protocol.compiler.plan import Plan, PlannedField
from protocol.compiler.source import TooLong

WORK_AT_ONCE: Final = 1_200
"""A Fetch of 1,000 partitions; a millisecond for the slowest message."""
TEXT_SHIFT: Final = 8
"""256 bytes of text are a unit of work, as their encoding is checked."""
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

    It raises TooLong for a message of more than `work` units.
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
        """Count work that is about to be done."""
        self.source.emit(f"left -= {units}")
        with self.source.block("if left < 0:"):
            self.source.emit("raise TooLong")

    def count_tags(self, plan: Plan) -> None:
        self.varint("tags")
        self.work(f"tags >> {TAGS_SHIFT}")

    def skip_tags(self, name: str) -> None:
        # Their bytes are copied at once: few are if little is left of the frame.
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
