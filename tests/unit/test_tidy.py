"""Rules about the source that no linter has: sizes, places of `async`, imports of pure code.

Each rule keeps a habit of docs/architecture.md; the exceptions live in tidy_exceptions.txt, whose
numbers may only shrink.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from testkit.syntax import PACKAGES, nodes_of

ROOT = Path(__file__).resolve().parents[2]
# Next to the packages: not in the wheel.
KITS = ("testkit",)
FUNCTION_LINES_MAX = 70
PURE_MODULE_LINES_MAX = 600
SHELL_MODULE_LINES_MAX = 800

# Rooms of code that does I/O. Elsewhere a module is pure, unless its first line begins with the
# mark.
SHELL_ROOMS = (
    "kraftbox/cli/*",
    "kraftbox/kafka_tools/*",
    "kraftbox/process/*",
    "kraftbox/testing/*",
    "simulation/clients/*",
    "simulation/faults/*",
    "simulation/world/*",
    "audit/reading/*",
    "audit/spark/*",
    "audit/tasks/*",
    "protocol/transport/client.py",
    "storage/files/*",
    "broker/apis/*",
    "controller/apis/*",
)
SHELL_MARK = "Shell: "
# Never imported (outside TYPE_CHECKING) by code that must replay from a seed: time, randomness,
# network, disk, processes.
BANNED_IN_PURE = {
    *("asyncio", "random", "secrets", "select", "selectors", "socket", "threading", "time", "uuid"),
    *("ctypes", "fcntl", "os", "pathlib", "shutil", "subprocess", "tempfile", "zipfile"),
    *("py4j", "pyarrow", "pyspark"),
}


@cache
def sources() -> dict[str, str]:
    return {
        str(path.relative_to(ROOT)): path.read_text()
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }


@cache
def tree(path: str) -> ast.Module:
    return ast.parse(sources()[path])


@cache
def nodes(path: str) -> Sequence[ast.AST]:
    """Return all nodes of a module's tree."""
    return nodes_of(tree(path))


def matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


def is_shell(path: str) -> bool:
    return matches(path, SHELL_ROOMS) or says_shell(path)


def says_shell(path: str) -> bool:
    return (ast.get_docstring(tree(path)) or "").startswith(SHELL_MARK)


def code_lines(path: str) -> set[int]:
    """Return the numbers of lines with code: no comments, blank lines or docstrings."""
    skip = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    }
    lines: set[int] = set()
    for token in tokenize.tokenize(io.BytesIO(sources()[path].encode()).readline):
        if token.type not in skip:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in nodes(path):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                lines.difference_update(range(value.lineno, (value.end_lineno or 0) + 1))
    return lines


def oversized() -> Iterator[tuple[str, int]]:
    for path, text in sources().items():
        limit = SHELL_MODULE_LINES_MAX if is_shell(path) else PURE_MODULE_LINES_MAX
        long = {
            node.name: range(node.lineno, (node.end_lineno or 0) + 1)
            for node in nodes(path)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX
        }
        if not long and text.count("\n") <= limit:
            continue  # Too short even with comments; tokenizing the file would take long.
        lines = code_lines(path)
        if len(lines) > limit:
            yield f"module {path}", len(lines)
        for name, span in long.items():
            if (count := len(lines.intersection(span))) > FUNCTION_LINES_MAX:
                yield f"function {path}:{name}", count


def exceptions() -> dict[str, int]:
    text = (ROOT / "tests/unit/tidy_exceptions.txt").read_text()
    entries = [line.rsplit(" ", 1) for line in text.splitlines() if line and line[0] != "#"]
    return {name: int(count) for name, count in entries}


def test_modules_and_functions_are_small():
    allowed = exceptions()
    found = dict(oversized())
    grown = {name: n for name, n in found.items() if n > allowed.get(name, 0)}
    assert grown == {}, "larger than the limit, or than their exception"
    stale = {name: n for name, n in allowed.items() if found.get(name, 0) < n}
    assert stale == {}, "these shrank: lower or remove their exception"


def fatal_places() -> Iterator[str]:
    """Yield `path: name` of each call that starts a task or reports a failure that stops the
    node."""
    for path in sources():
        for node in nodes(path):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr in ("spawn", "_spawn") and not path.startswith("kraftbox/launcher"):
                fatal = [word.value for word in node.keywords if word.arg == "fatal"]
                quiet = any(
                    isinstance(word, ast.Constant) and word.value is False for word in fatal
                )
                # The argument is passed on: the caller is checked instead.
                if not quiet and not any(isinstance(word, ast.Name) for word in fatal):
                    yield f"{path}: {task_name(path, node)}"
            elif node.func.attr == "report" and "upervisor" in ast.unparse(node.func.value):
                yield f"{path}: {ast.unparse(node.args[0])}"


def task_name(path: str, call: ast.Call) -> str:
    """Return the name of the task in a `spawn` as written in the source, without quotes."""
    given = call.args[0]
    if isinstance(given, ast.Name):
        # name = f"..." is the line above
        found = [
            node
            for node in nodes(path)
            if isinstance(node, ast.Assign)
            and ast.unparse(node.targets[0]) == given.id
            and node.lineno < call.lineno
        ]
        given = max(found, key=lambda node: node.lineno).value
    return ast.unparse(given).removeprefix("f").strip("'\"")


def test_every_task_that_stops_the_node_is_accounted_for():
    """Bytes from outside must not end a fatal task: docs/fatal-tasks.md explains for each why they
    cannot."""
    text = (ROOT / "docs/fatal-tasks.md").read_text()
    listed = set(re.findall(r"^\| `([^`]+)` \|", text, re.M))
    found = set(fatal_places())
    assert found - listed == set(), "not in docs/fatal-tasks.md"
    assert listed - found == set(), "gone: take it out of docs/fatal-tasks.md"


def last_name(node: ast.AST) -> str:
    """Return `c` of `c` or `a.b.c`; empty for anything else."""
    return getattr(node, "id", getattr(node, "attr", ""))


def awaits(path: str) -> Iterator[int]:
    for node in nodes(path):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield node.lineno


def impurities(path: str) -> Iterator[str]:
    """Yield all reasons why a module cannot be replayed from a seed."""
    for line in awaits(path):
        yield f"{path}:{line} is async"
    for node in nodes(path):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "open"
        ):
            yield f"{path}:{node.lineno} opens a file"
    for name, line in runtime_imports(path):
        if name in BANNED_IN_PURE:
            yield f"{path}:{line} imports {name}"


def runtime_imports(path: str) -> Iterator[tuple[str, int]]:
    """Yield top-level names that a module imports at runtime, with line numbers."""
    hidden: set[ast.AST] = set()
    for node in nodes(path):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in map(last_name, ast.walk(node.test)):
            hidden.update(child for part in node.body for child in ast.walk(part))
    for node in nodes(path):
        if node in hidden:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name != "random" or not only_names_random_generators(path):
                    yield alias.name.partition(".")[0], node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0], node.lineno


def only_names_random_generators(path: str) -> bool:
    """Return whether `random` is used only for the type `random.Random` of an argument."""
    called = {id(node.func) for node in nodes(path) if isinstance(node, ast.Call)}
    return all(
        node.attr == "Random" and id(node) not in called
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "random"
    )


def test_module_without_shell_mark_is_pure():
    found = [line for path in sources() if not is_shell(path) for line in impurities(path)]
    assert found == []


def test_shell_mark_is_needed():
    """A mark is also wrong where the room already implies it."""
    found = [
        path
        for path in sources()
        if says_shell(path) and (matches(path, SHELL_ROOMS) or not any(impurities(path)))
    ]
    assert found == []


def test_a_module_begins_with_a_noun_phrase():
    """The field's term comes first: a reader of the file list finds the module by it."""
    questions = ("What ", "Who ", "Whose ", "Whether ", "How ", "Where ", "Which ", "When ", "Why ")
    found = [
        path
        for path in sources()
        if (ast.get_docstring(tree(path)) or "").removeprefix(SHELL_MARK).startswith(questions)
    ]
    assert found == []


def test_one_module_makes_partition_changes():
    found = [
        f"{path}:{node.lineno}"
        for path in sources()
        if path != "controller/elections/partition_change.py"
        for node in nodes(path)
        if isinstance(node, ast.Call) and last_name(node.func).endswith("PartitionChangeRecord")
    ]
    assert found == []


PARTITION = "broker/replication/partition/"
PARTITIONS_USERS = ("broker", "simulation", *KITS, "bench", "tests/unit/broker", "tests/sim")
"""The packages that call decisions of partitions."""


def deciders() -> set[str]:
    """Return the functions of a partition that return effects."""
    return {
        node.name
        for path in sources()
        if path.startswith(PARTITION)
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef) and ast.unparse(node.returns or node) == "Effects"
    }


def dropped_effects(module: ast.Module, names: set[str]) -> Iterator[int]:
    """Yield lines that drop the effects of a partition.

    There the call stands alone, or its result is assigned to `_`. (Ruff finds unused local
    variables.)
    """
    for node in ast.walk(module):
        value = node.value if isinstance(node, ast.Expr | ast.Assign) else None
        if isinstance(value, ast.Call):
            unused = isinstance(node, ast.Expr) or ast.unparse(node).startswith("_ = ")
            if unused and last_name(value.func) in names:
                yield node.lineno


def test_effects_of_a_partition_are_not_dropped() -> None:
    """`replication.partition.effects`: a forgotten effect is a lost flush, proposal or election."""
    names = deciders()
    assert {"maybe_advance_high_watermark", "become_leader", "propose_isr"} <= names
    asked = re.compile(rf"\b(?:{'|'.join(sorted(names))})\(")
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in PARTITIONS_USERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if asked.search(text := path.read_text())
        for line in dropped_effects(ast.parse(text), names)
    ]
    assert found == []
    dropped = "_ = propose_isr(x)\npropose_isr(x)\nisr_changes.propose_isr(x)\n"
    assert list(dropped_effects(ast.parse(dropped), names)) == [1, 2, 3]
    assert not list(dropped_effects(ast.parse("return propose_isr(x)"), names))


def test_nothing_is_left_for_later():
    words = ("TO" + "DO", "FIX" + "ME", "XX" + "X:", "NotImplemented" + "Error")
    found = [
        f"{path}:{number} {word}"
        for path, text in sources().items()
        for number, line in enumerate(text.splitlines(), start=1)
        for word in words
        if word in line
    ]
    assert found == []


def test_each_folder_of_modules_is_a_package():
    """lint-imports ignores a folder without an `__init__.py`, and applies no contract to it."""
    folders = {path.rpartition("/")[0] for path in sources()}
    assert [folder for folder in folders if f"{folder}/__init__.py" not in sources()] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_resolve_inside_the_repository(package):
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None
    assert Path(spec.origin).is_relative_to(ROOT)
    assert package not in sys.stdlib_module_names


def imports_of_tests(path: Path) -> Iterator[str]:
    """Yield full names of all imports of a file from tests, in whatever form."""
    text = path.read_text()
    if not re.search(r"^\s*(?:from\s+\.|(?:from|import)\s+tests\b)", text, re.M):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.startswith("tests"))
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            if module.startswith((".", "tests")):
                yield from (f"{module}.{name.name}" for name in node.names)


def test_code_outside_tests_imports_nothing_from_tests() -> None:
    """Code outside `tests` imports nothing from it.

    A test imports from its own group alone, and there only from modules without tests.
    """
    outside = [
        f"{path.relative_to(ROOT)}: {imported}"
        for folder in (*PACKAGES, *KITS, "bench", "fuzz", "scripts", "tools")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for imported in imports_of_tests(path)
        if imported.startswith("tests")
    ]
    assert outside == []
    groups = [path for path in sorted((ROOT / "tests").iterdir()) if path.is_dir()]
    inside = [
        f"{path.relative_to(ROOT)}: {imported}"
        for group in groups
        for path in sorted(group.rglob("*.py"))
        for imported in imports_of_tests(path)
        if not imported.startswith(f"tests.{group.name}.") or ".test_" in imported
    ]
    assert inside == []


def test_folders_of_unit_tests_are_those_of_the_packages() -> None:
    """The path of a module gives the path of its tests."""
    found = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests/unit").rglob("test_*.py"))
        if path.parent != ROOT / "tests/unit"
        and not (ROOT / path.parent.relative_to(ROOT / "tests/unit")).is_dir()
    ]
    assert found == []


def test_the_wheel_carries_every_package():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["kraftbox"]
    inside = {f"kraftbox/_root/{name}" for name in PACKAGES if name != "kraftbox"}
    included = set(wheel["force-include"].values())
    assert {one for one in included if "/deploy/" not in one} == inside
    assert set(project["tool"]["importlinter"]["root_packages"]) == {*PACKAGES, *KITS}
