"""The examples of docs/client.md and the public names, against a node in memory."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import client
from testkit.memory.node import running_node

PAGE = Path(__file__).parents[3] / "docs/client.md"
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples() -> list[tuple[int, str]]:
    """Return each example with the number of lines before it."""
    text = PAGE.read_text(encoding="utf-8")
    return [(text[: one.start(1)].count("\n"), one[1]) for one in EXAMPLE.finditer(text)]


async def test_documented_examples_run() -> None:
    async with running_node() as node:
        names: dict[str, Any] = {"bootstrap": node.client_addresses()[0], "print": lambda *_: None}
        for before, source in examples():
            code = compile(
                "\n" * before + source, str(PAGE), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            )
            result = eval(code, names)
            if inspect.isawaitable(result):
                await result
    assert len(examples()) == 8


def test_public_names_are_in_their_listed_modules() -> None:
    for name in client.__all__:
        assert getattr(client, name) is getattr(import_module(client._HOME[name]), name)
    source = inspect.getsource(client)
    for_types = set(re.findall(r"^    from \S+ import (\w+) as \1$", source, re.MULTILINE))
    assert for_types == set(client.__all__)
    assert not hasattr(client, "nothing_of_that_name")
