"""Decoding of a message of any size: at once if it has few elements, else in steps.

A frame above `WHOLE_BYTES` goes to `decode_at_once`, which stops at a list that makes it too long.
Such a message is read by `Decoding` a step at a time, and who drives it leaves the loop to others
in between, within limits of memory. It a message may take four times the memory of its
frame, and `FREE_BYTES`. What it needs beyond that comes from an `Allowance` that many decodings
share: objects of a small frame are larger than that by nature (a name of three bytes is an object
of sixty), and 100,000 elements of any request fit into `EXCESS_BYTES_MAX`.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from functools import cache
from sys import getrefcount
from typing import Any, Final, Generic, TypeVar

from protocol.compiler.bounded import compile_bounded
from protocol.compiler.plan import Plan, plan_message
from protocol.compiler.source import Beyond, Malformed, TooLong
from protocol.compiler.steps import compile_steps
from protocol.errors import ProtocolError
from protocol.schema import Message, Struct

M = TypeVar("M", bound=Message)

WHOLE_BYTES: Final = 4096
"""A frame up to this size is decoded at once: its worst takes a millisecond."""
MEMORY_FACTOR: Final = 4
FREE_BYTES: Final = 5 << 18
EXCESS_BYTES_MAX: Final = 80 << 20
"""The most that one decoding takes from its allowance."""
ALLOWANCE_BYTES: Final = 256 << 20
EXPLAINED_FIELDS: Final = 200
"""The twin looks at so many fields to say what is wrong with a message: some milliseconds."""

UNREADABLE: Final = (Malformed, struct.error, IndexError)

_GRANT_BYTES = 4 << 20

FREED_AT_ONCE: Final = 200
SHORT_LIST: Final = 20
OWN_REFERENCES: Final = 2
"""What `getrefcount` says of an object that one variable refers to."""


class Allowance:
    """Memory that decoded messages take beyond a multiple of their frames, of many together."""

    __slots__ = ("left_bytes",)

    def __init__(self, size_bytes: int = ALLOWANCE_BYTES) -> None:
        self.left_bytes = size_bytes

    def take(self, size_bytes: int) -> bool:
        """Take memory. Returns: False, and nothing is taken, if less is left."""
        if size_bytes > self.left_bytes:
            return False
        self.left_bytes -= size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """Return memory that was taken."""
        self.left_bytes += size_bytes


class Decoding(Generic[M]):
    """One message on its way out of `view`; `message` and `end` are there when `step` returned
    True."""

    __slots__ = (
        "_allowance",
        "_cls",
        "_excess_max",
        "_grant",
        "_made",
        "_steps",
        "_version",
        "_view",
        "_view_start",
        "end",
        "excess_bytes",
        "message",
    )

    message: M

    def __init__(
        self,
        cls: type[M],
        view: memoryview,
        version: int,
        offset: int,
        allowance: Allowance,
        excess_max: int = EXCESS_BYTES_MAX,
    ) -> None:
        """Raises ProtocolError for a version that the message does not have."""
        decoder = cls._step_decoders.get(version) or _compile(cls, version)
        size = len(view) - offset
        room = MEMORY_FACTOR * size + FREE_BYTES
        self._made: list[M] = []
        self._steps: Generator[int, int | None, tuple[M, int]] = decoder(
            view, offset, len(view), room, self._made
        )
        self._grant: int | None = None
        self._allowance = allowance
        self._excess_max = excess_max
        self._cls, self._version, self._view, self._view_start = cls, version, view, offset
        self.excess_bytes = 0
        """What was taken from the allowance; who takes the message gives it back."""
        self.end = 0

    def step(self) -> bool:
        """Decode a step. Returns: True when the message is whole.

        Raises ProtocolError for bytes that are no such message, or one beyond its limits.
        """
        try:
            needed = self._steps.send(self._grant)
        except StopIteration as stop:
            self.message, self.end = stop.value
            return True
        except UNREADABLE as error:
            self.stop()
            error.__traceback__ = None  # it refers to what was decoded
            raise why_unreadable(
                self._cls, self._view, self._version, self._view_start, error
            ) from None
        self._grant = self._granted(needed) if needed else 0
        return False

    def _granted(self, needed: int) -> int:
        grant = max(needed, min(_GRANT_BYTES, self._excess_max - self.excess_bytes))
        left = min(self._excess_max - self.excess_bytes, self._allowance.left_bytes)
        if grant > left or not self._allowance.take(grant):
            wanted, allowed = self.excess_bytes + needed, self.excess_bytes + left
            self.stop()
            size = len(self._view) - self._view_start
            raise ProtocolError(
                f"memory of a decoded {self._cls.__name__} beyond {MEMORY_FACTOR} times its "
                f"{size} bytes",
                wanted,
                f"0-{allowed}",
            )
        self.excess_bytes += grant
        return grant

    def take_made(self) -> M | None:
        """Return the message, also one that was only begun, and keep no reference to it."""
        if hasattr(self, "message"):
            del self.message
        return self._made.pop() if self._made else None

    def stop(self) -> None:
        """Read no further, and give back what was taken."""
        self._steps.close()
        self._allowance.give_back(self.excess_bytes)
        self.excess_bytes = 0


def _compile(cls: type[Message], version: int) -> Any:
    decoder = compile_steps(_plan(cls, version))
    cls._step_decoders[version] = decoder
    return decoder


def _compile_bounded(cls: type[Message], version: int) -> Any:
    decoder = compile_bounded(_plan(cls, version))
    cls._bounded_decoders[version] = decoder
    return decoder


def _plan(cls: type[Message], version: int) -> Plan:
    if version not in cls.VERSIONS:
        raise ProtocolError(f"version of {cls.__name__}", version, str(cls.VERSIONS))
    return plan_message(cls, version)


def decode_at_once(
    cls: type[M], view: memoryview, version: int, offset: int
) -> tuple[M, int] | None:
    """Decode a message of a millisecond, however large its frame is: records have few elements.

    Returns: the message and the offset behind it; None if it takes longer. Raises ProtocolError.
    """
    decoder = cls._bounded_decoders.get(version) or _compile_bounded(cls, version)
    try:
        decoded: tuple[M, int] = decoder(view, offset, len(view))
    except TooLong:
        return None
    except UNREADABLE as error:
        raise why_unreadable(cls, view, version, offset, error) from None
    return decoded


def free_in_steps(message: Message) -> Iterator[None]:
    """Free the lists of a message a step at a time: all at once, a million objects take 100 ms.

    The caller hands over its reference. Of what others refer to, nothing is changed.
    """
    lists: list[list[Any]] = []
    if getrefcount(message) <= OWN_REFERENCES:
        _collect_lists(message, lists)
    del message
    while lists:
        last = lists[-1]
        for _ in range(min(FREED_AT_ONCE, len(last))):
            item = last.pop()
            if isinstance(item, Struct) and getrefcount(item) <= OWN_REFERENCES:
                _collect_lists(item, lists)
            if lists[-1] is not last:
                break
        else:
            if not last:
                lists.pop()
        yield


def _collect_lists(owner: Struct, lists: list[list[Any]]) -> None:
    """Note the long lists of a struct that nothing else refers to."""
    for name in _list_fields(type(owner)):
        value = getattr(owner, name, None)
        if value and len(value) > SHORT_LIST and getrefcount(value) <= OWN_REFERENCES + 1:
            lists.append(value)


@cache
def _list_fields(cls: type[Struct]) -> tuple[str, ...]:
    return tuple(f.name for f in cls.FIELDS if f.kind.element is not None)


def why_unreadable(
    cls: type[Message], view: memoryview, version: int, offset: int, error: Exception
) -> ProtocolError:
    """Say what is wrong with a message, as far as its first fields show it."""
    if isinstance(error, Beyond):
        what, value, allowed = error.args
        return ProtocolError(f"{what} in {cls.__name__} v{version}", value, allowed)
    from protocol import twin  # only needed when something is wrong

    try:
        twin.explain(cls, view, version, offset, EXPLAINED_FIELDS)
    except ProtocolError as exact:
        return exact
    cause = f"{error!r} behind the first {EXPLAINED_FIELDS} fields"
    return ProtocolError(f"{cls.__name__} v{version}", cause, "bytes of the schema")
