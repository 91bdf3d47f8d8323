"""The base of all document models, with errors that name the place, the value and the rule.
Pure.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

T = TypeVar("T", bound=BaseModel)

Number = Annotated[float, Field(strict=True)]
"""A number, integer or not; strings and booleans are refused."""
Whole = Annotated[int, Field(strict=True)]
"""An integer; strings and booleans are refused."""
SHOWN_CHARS_MAX = 60


class BadDocument(ValueError):
    """A document is invalid; the message has one line per error."""


class Document(BaseModel):
    """A part of a document; unknown keys are refused, and instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _as_text(value: Any) -> Any:
    """Return the value of a setting as in a properties file."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Settings = dict[str, Annotated[str, BeforeValidator(_as_text)]]
"""Keys of Kafka's server.properties or of a topic; values may be numbers or booleans."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML loader that refuses objects, aliases (which can expand without limit) and duplicate
    keys.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.MarkedYAMLError(None, None, "an alias (*...)", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: list[Any] = []
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                problem = f"duplicate key {key!r}"
                raise yaml.MarkedYAMLError(None, None, problem, key_node.start_mark)
            seen.append(key)
        return super().construct_mapping(node, deep)


def parse(model: type[T], text: str) -> T:
    """Parse a document from YAML or JSON. Raises BadDocument."""
    try:
        value = yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError, TypeError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        why = getattr(error, "problem", None) or str(error) or type(error).__name__
        raise BadDocument(f"{where}{why}") from None
    if not isinstance(value, dict):
        raise BadDocument(f"expected a map with the keys {', '.join(model.model_fields)}")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise BadDocument("\n".join(_line(model, one) for one in error.errors())) from None


def _line(model: type[BaseModel], error: Any) -> str:
    """Return one error: the place, the value there, and what is allowed."""
    place = tuple(error["loc"])
    if error["type"] == "extra_forbidden":
        fields = fields_at(model, place[:-1])
        inside = f" of {_dotted(place[:-1])}" if place[:-1] else ""
        return f"invalid key {str(place[-1])!r}{inside}; allowed: {', '.join(fields)}"
    if error["type"] == "missing":
        inside = _dotted(place[:-1])
        return f"{(inside + ': ' if inside else '')}missing key {str(place[-1])!r}"
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "value_error":
        return f"{_dotted(place)}: {message}" if place else message
    shown = repr(error["input"])
    if len(shown) > SHOWN_CHARS_MAX:
        shown = shown[:SHOWN_CHARS_MAX] + "..."
    return f"{_dotted(place)}: {shown}: {message[:1].lower()}{message[1:]}"


def _dotted(place: tuple[Any, ...]) -> str:
    return ".".join(str(one) for one in place if one != "[key]")


def fields_at(model: type[BaseModel], place: tuple[Any, ...]) -> list[str]:
    """Return the allowed keys of the part of a document at `place`."""
    found: Any = model
    for step in place:
        field = None if found is None else found.model_fields.get(step)
        if field is not None:
            found = _model_in(field.annotation)
        # A number is an index in a list; another string is a key of a map with values of one model.
    return [] if found is None else list(found.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that a field holds, alone, in a list or in a map."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inside = (_model_in(one) for one in get_args(annotation))
    return next((one for one in inside if one is not None), None)
