"""Import contracts: layers of packages and rooms. The files of a room need none, because
`acyclic_siblings` forbids any circle."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]


def layers() -> dict[str, set[str]]:
    """Return the names in each contract of layers, by the package or room that it is about."""
    return {
        container: {name.strip(" ()") for layer in contract["layers"] for name in layer.split("|")}
        for contract in TOOL["contracts"]
        for container in contract.get("containers", ())
    }


def rooms(module: str) -> set[str]:
    folder = ROOT / module.replace(".", "/")
    return {path.parent.name for path in folder.glob("*/__init__.py")}


def modules(module: str) -> Iterator[str]:
    """Yield a package and all of its rooms."""
    yield module
    for name in sorted(rooms(module)):
        yield from modules(f"{module}.{name}")


def test_contract_of_layers_names_every_room_and_no_file() -> None:
    """CONTRIBUTING.md, "Layers": a contract need not list the files of a room."""
    found = layers()
    assert found == {container: rooms(container) for container in found}


def test_module_with_several_rooms_has_a_contract() -> None:
    """CONTRIBUTING.md, "Layers". A kit of tests has none."""
    packages = [name for name in TOOL["root_packages"] if name != "testkit"]
    several = {name for one in packages for name in modules(one) if len(rooms(name)) > 1}
    assert several - layers().keys() == set()


def test_circles_are_forbidden_in_every_package() -> None:
    """CONTRIBUTING.md, "Layers": no import cycle is allowed."""
    (acyclic,) = (one for one in TOOL["contracts"] if one["type"] == "acyclic_siblings")
    assert set(acyclic["ancestors"]) == set(TOOL["root_packages"])
