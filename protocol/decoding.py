"""Decoding of a message of any size: at once if it has few elements, else in steps.

A frame above `WHOLE_BYTES` first goes to `decode_at_once`, which stops before a list with too many
elements. `Decoding` then reads such a message in steps, and its caller yields to the event loop
between them.

A message may take four times the memory of its frame plus `FREE_BYTES`. More than that comes from
an `Allowance` that many decodings share. Small frames need it, because objects are larger than
their bytes: a name of three bytes is an object of sixty. 100,000 elements of any request fit into
`EXCESS_BYTES_MAX`.
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
"""A frame up to this size is decoded at once: the slowest one takes a millisecond."""
MEMORY_FACTOR: Final = 4
FREE_BYTES: Final = 5 << 18
EXCESS_BYTES_MAX: Final = 80 << 20
"""The most that one decoding takes from its allowance."""
ALLOWANCE_BYTES: Final = 256 << 20
EXPLAINED_FIELDS: Final = 200
"""The twin examines this many fields to explain an error, which takes some milliseconds."""

UNREADABLE: Final = (Malformed, struct.error, IndexError)

_GRANT_BYTES = 4 << 20

FREED_AT_ONCE: Final = 200
SHORT_LIST: Final = 20
OWN_REFERENCES: Final = 2
"""The count that `getrefcount` returns for an object that one variable refers to."""


class Allowance:
    """Shared limit of the memory that decoded messages take beyond a multiple of their frames."""

    __slots__ = ("left_bytes",)

    def __init__(self, size_bytes: int = ALLOWANCE_BYTES) -> None:
        self.left_bytes = size_bytes

    def take(self, size_bytes: int) -> bool:
        """Take memory. Returns: False, without taking any, if less than `size_bytes` is left."""
        if size_bytes > self.left_bytes:
            return False
        self.left_bytes -= size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """Give back memory that `take` granted."""
        self.left_bytes += size_bytes


class Decoding(Generic[M]):
    """A message that is decoded in steps.

    `message` and `end`, the offset behind the message, are set once `step` has returned True.
    """

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
        """Prepare to decode the message at `offset`.

        Args:
            excess_max: most bytes that this decoding takes from `allowance`.

        Raises:
            ProtocolError: the class does not have this version.
        """
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
        """Bytes taken from the allowance; the owner of the message gives them back."""
        self.end = 0

    def step(self) -> bool:
        """Decode one step. Returns: True once the message is complete.

        Raises:
            ProtocolError: the bytes are not such a message, or it exceeds its limits.
        """
        try:
            needed = self._steps.send(self._grant)
        except StopIteration as stop:
            self.message, self.end = stop.value
            return True
        except UNREADABLE as error:
            self.stop()
            error.__traceback__ = None  # its frames would keep the decoded objects alive
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
        """Return the message, even if incomplete, and drop the reference to it.

        Returns:
            None if no step has begun the message, or it was taken before.
        """
        if hasattr(self, "message"):
            del self.message
        return self._made.pop() if self._made else None

    def stop(self) -> None:
        """Stop decoding and return the memory to the allowance."""
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
    """Decode a message that takes at most a millisecond.

    Its frame may be large: a Produce of some megabytes has few elements.

    Returns:
        The message and the offset of its end; None if it would take longer.

    Raises:
        ProtocolError: the bytes are not a message of this class and version.
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
    """Free the lists of a message in steps; freeing a million objects at once takes 100 ms.

    The caller must drop its own reference. Objects with other references are not changed.
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
    """Return an error that explains why the bytes are not such a message.

    The twin examines the first `EXPLAINED_FIELDS` fields; an error behind them is not explained.
    """
    if isinstance(error, Beyond):
        what, value, allowed = error.args
        return ProtocolError(f"{what} in {cls.__name__} v{version}", value, allowed)
    from protocol import twin  # imported only to explain an error

    try:
        twin.explain(cls, view, version, offset, EXPLAINED_FIELDS)
    except ProtocolError as exact:
        return exact
    cause = f"{error!r} behind the first {EXPLAINED_FIELDS} fields"
    return ProtocolError(f"{cls.__name__} v{version}", cause, "bytes of the schema")
