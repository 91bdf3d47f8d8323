"""Splitting of requests with long lists into parts, and joining of the parts' responses.

`cut` follows a path of list fields, such as ("topics", "partitions"), and makes requests that
differ only in these lists. Together they contain every element once, in order. `join` concatenates
the lists of the responses. If a list was split inside an element (a topic of 100,000 partitions),
the two halves of the element's response become one.

`serving/long_lists.py` decides which requests keep their meaning when they are split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from protocol.schema import Response, Struct, string, uuid
from protocol.weights import lists, weigh

S = TypeVar("S", bound=Struct)

Path: TypeAlias = Sequence[str]

_ERROR: Final = "error_code"
_THROTTLE: Final = "throttle_time_ms"


class Part(NamedTuple):
    """A request with some of the elements.

    `weight` is the weight of these elements. `load` is the handler's work for them, for example the
    partitions of created topics; by default the number of elements.
    """

    request: Any
    weight: int
    load: int


def cut(
    request: S, path: Path, part_max: int, load_of: Callable[[Any], int] | None = None
) -> Iterator[Part]:
    """Split a request into parts whose weight and load do not exceed `part_max`.

    A part with a single element may exceed it. The caller may pause between two parts: each costs
    no more than its weight.
    """
    name, *inner = path
    items: list[Any] = []
    held = loaded = 0
    for item in getattr(request, name) or ():
        weight = weigh(item, part_max) if isinstance(item, Struct) else 1 + (_size(item) >> 8)
        load = 1 if load_of is None else load_of(item)
        if items and (held + weight > part_max or loaded + load > part_max):
            yield Part(request.replace(**{name: items}), held, loaded)
            items, held, loaded = [], 0, 0
        if inner and weight > part_max:
            for piece in cut(item, inner, part_max):
                yield piece._replace(request=request.replace(**{name: [piece.request]}))
        else:
            items.append(item)
            held += weight
            loaded += load
    if items:
        yield Part(request.replace(**{name: items}), held, loaded)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes) else 0


def join(whole: Response, part: Response, depth: int) -> None:
    """Append the response to a part to the responses to earlier parts.

    Args:
        depth: number of list levels that may have been split inside an element.
    """
    if hasattr(whole, _THROTTLE):
        setattr(whole, _THROTTLE, max(getattr(whole, _THROTTLE), getattr(part, _THROTTLE)))
    _join(whole, part, depth)


def failed(response: Response) -> bool:
    """Return whether a response has a top-level error: then it is the response to all parts."""
    return bool(getattr(response, _ERROR, 0))


def _join(whole: Struct, part: Struct, depth: int) -> None:
    for name in lists(type(whole)):
        mine, others = getattr(whole, name), getattr(part, name)
        if mine is None:
            setattr(whole, name, others)
        elif others:
            first = 0
            if depth and mine and _halves(mine[-1], others[0]):
                _join(mine[-1], others[0], depth - 1)
                first = 1
            mine.extend(islice(others, first, None))


def _halves(one: Any, other: Any) -> bool:
    """Return whether two neighbours are responses for the same element of the request."""
    if not isinstance(one, Struct):
        return False
    names = _names(type(one))
    return bool(names) and all(getattr(one, name) == getattr(other, name) for name in names)


@cache
def _names(cls: type[Struct]) -> tuple[str, ...]:
    """Return the names of the fields that identify a topic, group or directory."""
    return tuple(
        field.name
        for field in cls.FIELDS
        if field.kind in (string, uuid) and field.name != "error_message"
    )
