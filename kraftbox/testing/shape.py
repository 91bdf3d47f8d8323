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
KEYS: Final = ("brokers", "controllers", "combined", "racks", "configs", "isolate")
OF_TEST: Final = ("heal",)
"""Arguments of a mark that do not change the cluster."""
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
    isolate: bool = False

    def options(self) -> dict[str, Any]:
        """Return the arguments of `KafkaCluster.start`."""
        return {
            "brokers": self.brokers,
            "controllers": self.controllers,
            "combined": self.combined,
            "racks": self.racks,
            "configs": dict(self.configs),
            "isolate": self.isolate,
        }

    def text(self) -> str:
        """Return a short text for the name of a test."""
        configs = ",".join(f"{key}={value}" for key, value in self.configs)
        network = "isolated" if self.isolate else ""
        parts = [f"{self.brokers}b{self.controllers}c", *self.racks, network, configs]
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
        check_arguments("kafka", (*KEYS, *OF_TEST), positional, named)
        for key, value in named.items():
            if key == "configs":
                value = {**arguments.get(key, {}), **_mapping(value)}
            elif key in ("brokers", "controllers"):
                value = _number(f"kafka({key}={value!r})", value)
            elif key in ("combined", "isolate", "heal"):
                value = _truth(f"kafka({key}={value!r})", value)
            arguments[key] = value
    return _shape(arguments)


def heals(marks: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the cluster is healed after a test with these marks, outermost first."""
    found = True
    for named in marks:
        found = bool(named.get("heal", found))
    return found


def check_arguments(
    mark: str, allowed: Sequence[str], positional: Sequence[Any], named: Mapping[str, Any]
) -> None:
    """Raise WrongSetting unless all arguments of a mark are named and known."""
    if positional:
        example = f"{allowed[0]}={positional[0]!r}"
        raise WrongSetting(f"@pytest.mark.{mark}: arguments must be named, such as {example}")
    for key in named:
        if key not in allowed:
            # Imported only after a mistake.
            from difflib import get_close_matches

            near = get_close_matches(key, allowed, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(allowed)}"
            raise WrongSetting(f"@pytest.mark.{mark} has no {key!r}; {hint}")


def _shape(arguments: Mapping[str, Any]) -> Shape:
    brokers = arguments.get("brokers", 1)
    alone = brokers == 1 and arguments.get("controllers") is None
    controllers = arguments.get("controllers")
    if controllers is None:
        controllers = 1 if alone or arguments.get("combined") else 3
    racks = arguments.get("racks", ())
    if isinstance(racks, str) or not all(isinstance(rack, str) and rack for rack in racks):
        raise WrongSetting(f"kafka(racks={racks!r}): expected a list of names")
    configs = {key: text_of(value) for key, value in arguments.get("configs", {}).items()}
    return Shape(
        brokers,
        controllers,
        arguments.get("combined", alone),
        tuple(racks),
        tuple(sorted(configs.items())),
        arguments.get("isolate", False),
    )


def topic_options(positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `create_topic` in a mark `kafka_topic`. Raises WrongSetting."""
    check_arguments("kafka_topic", TOPIC_KEYS, positional, named)
    for key in ("partitions", "replication_factor"):
        value = named.get(key, 1)
        if not isinstance(value, int) or isinstance(value, bool):
            raise WrongSetting(f"kafka_topic({key}={value!r}): expected a number")
    if not isinstance(named.get("configs", {}), Mapping):
        raise WrongSetting(
            f"kafka_topic(configs={named['configs']!r}): expected a dict of keys and values"
        )
    return dict(named)


def text_of(value: object) -> str:
    """Return a value in the format of server.properties."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise WrongSetting(f"kafka(configs={value!r}): expected a dict of keys and values")
    return value


def _number(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= NODES_MAX:
        raise WrongSetting(f"{name}: expected a number from 1 to {NODES_MAX}")
    return value


def _truth(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise WrongSetting(f"{name}: expected True or False")
    return value


def _count(name: str, value: object) -> int:
    text = str(value).strip()
    if not re.fullmatch("[1-9][0-9]?", text):
        raise WrongSetting(f"{name} = {text}: expected a number from 1 to {NODES_MAX}")
    return int(text)
