"""Requests with large lists and malformed ends: megabytes that are hard to decode or to answer.

Of each API and its last version that has a list: that list with many elements, which name what does
not exist; the same with a wrong end; with more elements than any list may have; with more tagged
fields than any section may have. Frames are made once and sent often.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from fuzz.hostile import CHANGING, Hostile
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import EncodeError
from protocol.headers import RequestHeader, encode_request_header, is_flexible
from protocol.messages import request_class
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.schema import Buffer, Field, Struct, parse_versions
from protocol.transport.own_names import TOOL_SOFTWARE_NAME
from protocol.varint import encode_uvarint

ELEMENTS: Final = 100_000
WRONG_END: Final = ", wrong end"
TAGGED: Final = "tagged fields"
MALFORMED_BYTES: Final = 3
TAGS: Final = 200_000
LONE: Final[Mapping[str, Any]] = {"replication_factor": 99, "timeout_ms": 1000, "max_wait_ms": 0}
"""Values with which nothing is created, and nothing waits."""
LEFT_OUT: Final = frozenset({ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.PRODUCE})
"""APIs left out: brokers would keep the quotas for good, and a record set is not a list."""


class HeavyFrame(NamedTuple):
    """A frame with its length, in parts; `kind` names its long list or its damage."""

    api: ApiKey
    version: int
    kind: str
    parts: tuple[Buffer, ...]

    @property
    def name(self) -> str:
        return f"{self.api.name} {self.version} {self.kind}"

    @property
    def is_refused(self) -> bool:
        """True if the frame cannot be decoded, so that no handler gets it."""
        return self.kind == TAGGED or self.kind.endswith(WRONG_END)


def hello() -> tuple[Buffer, ...]:
    """The first frame of a connection: a large one would be refused before anything is read."""
    request = ApiVersionsRequest(
        client_software_name=TOOL_SOFTWARE_NAME, client_software_version="1"
    )
    return _framed(ApiKey.API_VERSIONS, 3, encode(request, 3))


def heavy_frames(
    hostile: Hostile,
    served: Mapping[ApiKey, Sequence[int]],
    elements: int = ELEMENTS,
    tagged: int = TAGS,
) -> Iterator[HeavyFrame]:
    """The frames for a listener that serves these versions."""
    tags = encode_uvarint(tagged) + b"".join(
        encode_uvarint(tag) + b"\0" for tag in range(100, 100 + tagged)
    )
    for api, versions in served.items():
        if api in LEFT_OUT:
            continue
        version = max(versions)
        cls = request_class(api)
        for field in cls.FIELDS:
            if field.kind.element is None or version not in parse_versions(field.versions):
                continue
            body = _with_list(hostile, api, version, field, elements)
            if body is None:
                continue
            yield HeavyFrame(api, version, field.name, _framed(api, version, body))
            cut = memoryview(body)[:-MALFORMED_BYTES]
            kind = field.name + WRONG_END
            yield HeavyFrame(api, version, kind, _framed(api, version, cut))
        if is_flexible(api, version):
            plain = encode(cls(), version)
            parts = _framed(api, version, plain[:-1], tags)
            yield HeavyFrame(api, version, TAGGED, parts)


def _with_list(
    hostile: Hostile, api: ApiKey, version: int, field: Field, elements: int
) -> bytes | None:
    """A request whose `field` has many elements; None where its values do not fit the version."""
    cls = request_class(api)
    message = hostile.message(api, version)
    kind = field.kind.element
    assert kind is not None
    first = hostile.element(cls, field, kind, version)
    for name, value in LONE.items():
        if any(each.name == name for each in cls.FIELDS):
            setattr(message, name, value)
    setattr(message, field.name, _elements(hostile.rng, api, first, elements))
    try:
        return encode(message, version)
    except EncodeError:
        return None


def _elements(rng: random.Random, api: ApiKey, first: Any, count: int) -> list[Any]:
    """Many elements like the first, each with a name of its own where it has one."""
    if isinstance(first, str):
        return [f"heavy-{number}" for number in range(count)]
    if isinstance(first, bytes):
        return [rng.randbytes(len(first)) for _ in range(count)]
    if not isinstance(first, Struct):
        return [first] * count
    values = {name: value for name, value in first.items() if isinstance(value, str)}
    changes = {name: value for name, value in LONE.items() if name in dict(first.items())}
    if not values:
        return [first.replace(**changes)] * count
    name = next(iter(values))
    if api in CHANGING and "resource_name" in values:
        name = "resource_name"
    return [first.replace(**changes, **{name: f"heavy-{number}"}) for number in range(count)]


def _framed(api: ApiKey, version: int, *body: Buffer) -> tuple[Buffer, ...]:
    header = encode_request_header(RequestHeader(api, version, 0, "heavy"))
    size = len(header) + sum(map(len, body))
    return size.to_bytes(4, "big") + header, *body
