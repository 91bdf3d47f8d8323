"""The shape of a test's cluster: pytest.ini, overridden by the mark `kafka`. Pure.

The default is one node that is broker and controller, the fastest to start. By default a single
broker is its own controller, and several brokers have three separate controllers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

NODES_MAX: Final = 99
KEYS: Final = ("brokers", "controllers", "combined", "racks", "configs")
TOPIC_KEYS: Final = ("partitions", "replication_factor", "configs")


class WrongSetting(ValueError):
    """A setting is invalid; the message has its name, its value and the allowed values."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a cluster; tests with equal shapes share one."""

    brokers: int = 1
    controllers: int = 1
    combined: bool = True
    racks: tuple[str, ...] = ()
    configs: tuple[tuple[str, str], ...] = ()

    def options(self) -> dict[str, Any]:
        """Return the arguments of `KafkaCluster.start`."""
        return {
            "brokers": self.brokers,
            "controllers": self.controllers,
            "combined": self.combined,
            "racks": self.racks,
            "configs": dict(self.configs),
        }

    def text(self) -> str:
        """Return a short text for the name of a test."""
        configs = ",".join(f"{key}={value}" for key, value in self.configs)
        parts = [f"{self.brokers}b{self.controllers}c", *self.racks, configs]
        return "-".join(part for part in parts if part)


def of_settings(
    brokers: str, controllers: str, racks: Sequence[str], configs: Iterable[str]
) -> dict[str, Any]:
    """Return the settings in pytest.ini as arguments of a mark. Raises WrongSetting."""
    found: dict[str, Any] = {}
    for name, text in (("brokers", brokers), ("controllers", controllers)):
        if text.strip():
            found[name] = _count(f"kafka_{name}", text)
    if racks:
        found["racks"] = tuple(racks)
    pairs = {}
    for line in configs:
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise WrongSetting(f"kafka_configs: expected KEY=VALUE, got {line!r}")
        pairs[key.strip()] = value.strip()
    return {**found, "configs": pairs} if pairs else found


def of_marks(
    base: Mapping[str, Any], marks: Iterable[tuple[Sequence[Any], Mapping[str, Any]]]
) -> Shape:
    """Return the shape of a test: `base`, overridden by its marks, outermost first.

    Settings (`configs`) are merged, other arguments replaced. Raises WrongSetting.
    """
    arguments: dict[str, Any] = dict(base)
    for positional, named in marks:
        if positional:
            raise WrongSetting(
                f"kafka{tuple(positional)!r}: arguments must be named, such as brokers=1"
            )
        for key, value in named.items():
            if key not in KEYS:
                raise WrongSetting(
                    f"kafka({key}=...): unknown argument; allowed: {', '.join(KEYS)}"
                )
            arguments[key] = (
                {**arguments.get(key, {}), **_mapping(value)} if key == "configs" else value
            )
    return _shape(arguments)


def _shape(arguments: Mapping[str, Any]) -> Shape:
    brokers = _count("kafka(brokers)", arguments.get("brokers", 1))
    alone = brokers == 1 and arguments.get("controllers") is None
    controllers = arguments.get("controllers")
    if controllers is None:
        controllers = 1 if alone or arguments.get("combined") else 3
    racks = arguments.get("racks", ())
    if isinstance(racks, str) or not all(isinstance(rack, str) and rack for rack in racks):
        raise WrongSetting(f"kafka(racks={racks!r}): expected a list of names")
    combined = arguments.get("combined", alone)
    if not isinstance(combined, bool):
        raise WrongSetting(f"kafka(combined={combined!r}): expected True or False")
    configs = {key: text_of(value) for key, value in arguments.get("configs", {}).items()}
    return Shape(
        brokers,
        _count("kafka(controllers)", controllers),
        combined,
        tuple(racks),
        tuple(sorted(configs.items())),
    )


def topic_options(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `create_topic` in a mark `kafka_topic`. Raises WrongSetting."""
    for key in named:
        if key not in TOPIC_KEYS:
            raise WrongSetting(
                f"kafka_topic({key}=...): unknown argument; allowed: {', '.join(TOPIC_KEYS)}"
            )
    return dict(named)


def text_of(value: object) -> str:
    """Return a value in the format of server.properties."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise WrongSetting(f"kafka(configs={value!r}): expected a dict of keys and values")
    return value


def _count(name: str, value: object) -> int:
    text = str(value).strip()
    if not re.fullmatch("[1-9][0-9]?", text):
        raise WrongSetting(f"{name} = {text}: expected a number from 1 to {NODES_MAX}")
    return int(text)
