"""The schema language: a message is a class, and the class is the schema.

    class VoteRequest(Request["VoteResponse"], api_key=52, versions="0-2", flexible="0+"):
        cluster_id: str | None = field(string, "0+", nullable="0+", default=None)
        topics: list[TopicData] = field(array("TopicData"), "0+", default=FRESH)

        class TopicData(Struct):
            topic_name: str = field(string, "0+", default="")

Rules
- Fields are in wire order. An attribute has the snake_case form of the name in Kafka's definition.
- All structs of a message are nested classes directly below it, however deeply they are nested on
  the wire; `array("Name")` and `struct("Name")` look them up there.
- Version ranges have Kafka's syntax: "0+", "4-18", "3", "none".
- Every field has a default, so every class can be built without arguments. `FRESH` means a new
  empty list, or a new struct of defaults, for each object.
- Attributes of the whole message are upper-case class attributes (`API_KEY`, `VERSIONS`, ...), so
  that they cannot collide with a field.

The creation of a class only collects its fields. Version ranges are parsed, and `__init__` and the
codecs compiled, at their first use: the import of a message module takes tens of microseconds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from operator import attrgetter
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    TypeAlias,
    TypeVar,
    cast,
    dataclass_transform,
)

Buffer: TypeAlias = bytes | bytearray | memoryview
Records: TypeAlias = Buffer | list[Buffer]

MAX_VERSION: Final = 0x7FFF


class VersionRange(NamedTuple):
    """A closed range of versions; empty if `first` is above `last`."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __bool__(self) -> bool:
        return self.first <= self.last

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.first == self.last:
            return str(self.first)
        return f"{self.first}+" if self.last == MAX_VERSION else f"{self.first}-{self.last}"

    def intersect(self, other: VersionRange) -> VersionRange:
        return VersionRange(max(self.first, other.first), min(self.last, other.last))

    def each(self) -> range:
        return range(self.first, self.last + 1)


NO_VERSIONS: Final = VersionRange(1, 0)


@cache
def parse_versions(text: str) -> VersionRange:
    """Parse "0+", "4-18", "3" or "none". Raises ValueError for other texts."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), MAX_VERSION)
    first, dash, last = text.partition("-")
    return VersionRange(int(first), int(last if dash else first))


class Kind:
    """A wire type. `code` is the `struct` character of a fixed-size kind, else empty."""

    __slots__ = ("code", "element", "name", "size_bytes", "struct_name")

    def __init__(
        self,
        name: str,
        code: str = "",
        size_bytes: int = 0,
        element: Kind | None = None,
        struct_name: str = "",
    ) -> None:
        self.name = name
        self.code = code
        self.size_bytes = size_bytes
        self.element = element
        self.struct_name = struct_name

    def __repr__(self) -> str:
        if self.element is not None:
            return f"[]{self.element!r}"
        return self.struct_name or self.name


int8: Final = Kind("int8", "b", 1)
int16: Final = Kind("int16", "h", 2)
uint16: Final = Kind("uint16", "H", 2)
int32: Final = Kind("int32", "i", 4)
uint32: Final = Kind("uint32", "I", 4)
int64: Final = Kind("int64", "q", 8)
float64: Final = Kind("float64", "d", 8)
boolean: Final = Kind("bool", "?", 1)
uuid: Final = Kind("uuid", "16s", 16)
string: Final = Kind("string")
bytes_: Final = Kind("bytes")
records: Final = Kind("records")


def struct(name: str) -> Kind:
    """Return the kind of a nested struct, named as the class below the message."""
    return Kind("struct", struct_name=name)


def array(element: Kind | str) -> Kind:
    """Return the kind of a list; a string names a struct of the same message."""
    return Kind("array", element=struct(element) if isinstance(element, str) else element)


class _Fresh:
    """Default marker: each new object gets its own empty list or struct of defaults."""

    def __repr__(self) -> str:
        return "FRESH"


FRESH: Final[Any] = _Fresh()


class Field:
    """One field as declared; its class sets `name`."""

    __slots__ = ("default", "flexible", "ignorable", "kind", "name", "nullable", "tag", "versions")

    def __init__(
        self,
        kind: Kind,
        versions: str,
        default: Any,
        nullable: str,
        tag: int | None,
        ignorable: bool,
        flexible: str | None,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.versions = versions
        self.default = default
        self.nullable = nullable
        self.tag = tag
        self.ignorable = ignorable
        self.flexible = flexible

    def fresh_default(self, owner: type[Struct]) -> Any:
        """Return the default of this field for a new object of `owner`."""
        if self.default is not FRESH:
            return self.default
        return [] if self.kind.element is not None else owner.struct_class(self.kind)()


def field(
    kind: Kind,
    versions: str,
    *,
    default: Any,
    nullable: str = "none",
    tag: int | None = None,
    ignorable: bool = False,
    flexible: str | None = None,
) -> Any:
    """Declare a field.

    Args:
        versions: versions that have the field.
        nullable: versions in which None is allowed.
        tag: tag number; the field is tagged in all its versions.
        ignorable: drop a value that a version cannot represent, instead of failing to encode.
        flexible: overrides the message's flexible versions for the string encoding of this one
        field (the request header's client id).
    """
    return Field(kind, versions, default, nullable, tag, ignorable, flexible)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class SchemaMeta(type):
    """Metaclass that collects the fields of a class body; all costly work waits for the first
    use."""

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        **facts: Any,
    ) -> SchemaMeta:
        fields: dict[str, Field] = {}
        nested: list[SchemaMeta] = []
        for key, value in namespace.items():
            if type(value) is Field:
                value.name = key
                fields[key] = value
            elif type(value) is SchemaMeta:
                nested.append(value)
        for key in fields:
            del namespace[key]
        if bases:
            namespace["__slots__"] = tuple(fields)
            namespace["FIELDS"] = tuple(fields.values())
            namespace["_getter"] = None
            namespace["_encoders"] = {}
            namespace["_decoders"] = {}
            namespace["_bounded_decoders"] = {}
            namespace["_step_decoders"] = {}
        cls = super().__new__(mcls, name, bases, namespace)
        for inner in nested:
            cast(Any, inner)._owner = cls
        if facts:
            _set_facts(cast("type[Message]", cls), facts)
        return cls

    def __init__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        **facts: Any,
    ) -> None:
        super().__init__(name, bases, namespace)


def _set_facts(cls: type[Message], facts: dict[str, Any]) -> None:
    cls.VERSIONS = parse_versions(facts.pop("versions"))
    cls.FLEXIBLE = parse_versions(facts.pop("flexible", "none"))
    cls.UNSTABLE = parse_versions(facts.pop("unstable", "none"))
    cls.ON_REQUEST = parse_versions(facts.pop("on_request", "none"))
    for key, value in facts.items():
        setattr(cls, key.upper(), value)


class Struct(metaclass=SchemaMeta):
    """Base class of everything with fields: keyword-only constructor, mutable, compared by value.

    `unknown_tags` contains tagged fields that this code does not know (tag -> payload). They are
    written back when the struct is encoded.
    """

    __slots__ = ("unknown_tags",)
    __hash__ = None  # type: ignore[assignment]  # mutable values are not hashable

    FIELDS: ClassVar[tuple[Field, ...]] = ()
    _getter: ClassVar[Any] = None
    _copier: ClassVar[Any] = None
    _encoders: ClassVar[dict[int, Any]] = {}
    _decoders: ClassVar[dict[int, Any]] = {}
    _bounded_decoders: ClassVar[dict[int, Any]] = {}
    _step_decoders: ClassVar[dict[int, Any]] = {}
    _owner: ClassVar[Any] = None

    if TYPE_CHECKING:
        unknown_tags: dict[int, bytes] | None = None
    else:

        def __init__(self, **values):
            cls = type(self)
            cls.__init__ = _compile_init(cls)
            cls.__init__(self, **values)

    @classmethod
    def struct_class(cls, kind: Kind) -> type[Struct]:
        """Return the class of a struct kind that is used in this class or in one of its
        siblings."""
        owner = cls._owner or cls
        return cast("type[Struct]", getattr(owner, kind.struct_name))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(_values(self) == _values(other))

    def __repr__(self) -> str:
        parts = [f"{f.name}={getattr(self, f.name)!r}" for f in self.FIELDS]
        if self.unknown_tags:
            parts.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__qualname__}({', '.join(parts)})"

    def replace(self: S, **changes: Any) -> S:
        """Return a shallow copy with some fields changed. Raises TypeError for an unknown field
        name."""
        cls = type(self)
        if cls._copier is None:
            cls._copier = _compile_copier(cls)
        copied: S = cls._copier(self)
        for name, value in changes.items():
            if name not in _names(cls):
                raise TypeError(f"{cls.__qualname__} has no field {name!r}")
            setattr(copied, name, value)
        return copied

    def items(self) -> Iterator[tuple[str, Any]]:
        """Yield field names and values in wire order."""
        for f in self.FIELDS:
            yield f.name, getattr(self, f.name)


S = TypeVar("S", bound=Struct)


def _values(value: Struct) -> Any:
    cls = type(value)
    if cls._getter is None:
        cls._getter = attrgetter(*_names(cls))
    return cls._getter(value)


@cache
def _names(cls: type[Struct]) -> tuple[str, ...]:
    return ("unknown_tags", *(f.name for f in cls.FIELDS))


def _compile_init(cls: type[Struct]) -> Any:
    """Build an `__init__` with one keyword per field."""
    scope: dict[str, Any] = {"FRESH": FRESH}
    head, body = ["unknown_tags=None"], ["self.unknown_tags = unknown_tags"]
    for f in cls.FIELDS:
        scope[f"default_{f.name}"] = f.default
        head.append(f"{f.name}=default_{f.name}")
        if f.default is FRESH:
            make = "[]"
            if f.kind.element is None:
                make = f"new_{f.name}()"
                scope[f"new_{f.name}"] = cls.struct_class(f.kind)
            body.append(f"self.{f.name} = {make} if {f.name} is FRESH else {f.name}")
        else:
            body.append(f"self.{f.name} = {f.name}")
    source = f"def __init__(self, *, {', '.join(head)}):\n    " + "\n    ".join(body)
    exec(compile(source, f"<init of {cls.__qualname__}>", "exec"), scope)
    init = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__module__ = cls.__module__
    return init


def _compile_copier(cls: type[Struct]) -> Any:
    """Build a function that makes a shallow copy: records are copied in tens of thousands."""
    scope: dict[str, Any] = {"new": object.__new__, "cls": cls}
    body = "".join(f"    copied.{name} = self.{name}\n" for name in _names(cls))
    source = f"def copy(self):\n    copied = new(cls)\n{body}    return copied\n"
    exec(compile(source, f"<copy of {cls.__qualname__}>", "exec"), scope)
    return scope["copy"]


class Message(Struct):
    """Base class of everything that is encoded on its own with a version."""

    VERSIONS: ClassVar[VersionRange] = NO_VERSIONS
    FLEXIBLE: ClassVar[VersionRange] = NO_VERSIONS
    UNSTABLE: ClassVar[VersionRange] = NO_VERSIONS
    ON_REQUEST: ClassVar[VersionRange] = NO_VERSIONS

    @classmethod
    def structs(cls) -> dict[str, type[Struct]]:
        """Return the nested struct classes by name."""
        return {
            name: value
            for name, value in vars(cls).items()
            if isinstance(value, SchemaMeta) and issubclass(value, Struct)
        }


class ApiMessage(Message):
    """A request or response body.

    UNSTABLE are the versions that Kafka defines but offers only with
    `unstable.api.versions.enable`. ON_REQUEST are the last versions if a sender uses them only by
    explicit number, never as the highest common version. LISTENERS are the kinds of listener that
    serve the API.
    """

    API_KEY: ClassVar[int] = -1
    LISTENERS: ClassVar[tuple[str, ...]] = ()


class Response(ApiMessage):
    """The body of a response. LISTENERS stays empty: the request has it."""


R = TypeVar("R", bound=Response)

if TYPE_CHECKING:

    class Request(ApiMessage, Generic[R]):
        @classmethod
        def response_class(cls) -> type[R]: ...

else:

    class Request(ApiMessage):
        """The body of a request; `Request["FooResponse"]` declares the response for type
        checkers."""

        def __class_getitem__(cls, response):
            return cls

        @classmethod
        def response_class(cls):
            """Return the response class of this request, which is in the same module."""
            name = cls.__name__.removesuffix("Request") + "Response"
            return getattr(sys.modules[cls.__module__], name)


class MetadataRecord(Message):
    """A record of the cluster metadata log; RECORD_TYPE is its number in the frame."""

    RECORD_TYPE: ClassVar[int] = -1


class ControlRecord(Message):
    """The value of a control record that KRaft writes; CONTROL_TYPE is the number in its key."""

    CONTROL_TYPE: ClassVar[int] = -1


class CoordinatorRecord(Message):
    """A key or value in an internal topic; RECORD_TYPE pairs a key with its value."""

    RECORD_TYPE: ClassVar[int] = -1
