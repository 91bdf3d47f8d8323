"""Counts of prose habits that make docstrings, comments, messages and docs hard to read.

CONTRIBUTING.md has the rules for prose. A program cannot judge prose, but it can count habits that
made it hard to read: free relatives at the start of a sentence, indefinite persons, everyday verbs
in place of the field's terms, docstrings that only repeat a name, and test names without a subject.

A message is a string of two words or more that is an argument of a call, such as a help text, an
error or a log event. Tests have none: their strings are inputs, or quote the messages of a package.

`tests/unit/test_prose.py` compares the counts with `tests/unit/prose_counts.txt`: they may only
shrink, and an unlisted file must have none.

Usage: python scripts/prose_counts.py [--write | --show PATH ...] Without options it prints a table
by package, per 1,000 words.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from testkit.processes.ending import end_on_sigterm
from testkit.syntax import nodes_of

ROOT: Final = Path(__file__).resolve().parents[1]
COUNTS_FILE: Final = ROOT / "tests/unit/prose_counts.txt"
SHORT_WORDS_MAX: Final = 4
"""A function's docstring of at most this many words repeats its name."""

_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[\"'(`*]*[A-Z])|\n\s*\n|\n\s*(?=[-*|] |\d+\. )")
_RELATIVE = re.compile(r"[\"'(`*|\s-]*(What|Who|Whoever|Whom|Whose|Whether|Where|Which)\b")
_PERSON = re.compile(r"\b(nobody|somebody|anybody|everybody|whoever|whomever)\b", re.IGNORECASE)
_FIGURE = re.compile(
    r"""\b(?:
      (?:says?|said|saying|tells?|told|telling|asks?|asked|asking|hears?|heard|hearing)
    | speaks?\s+up | anew | for\s+ever | beside | at\s+last | as\s+ever | meanwhile
    | so\s+many | so\s+long | given\s+up | gives?\s+up | set\s+aside | put\s+out | taken\s+for
    | goes\s+by | go\s+by | mended | (?:is|are)\s+(?-i:none)
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
_NO_SUBJECT = re.compile(
    r"test_(?:what|who|whoever|whom|whose|whether|where|which|it|its|they|their|them)_"
)
_COMMENT = re.compile(r"(?:^\s*|\s\s)#+ (.*)")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_CODE_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_CODE_SPAN = re.compile(r"`[^`\n]*`")


class Counts(NamedTuple):
    """The habits found in one text, and its number of words."""

    relatives: int = 0
    """Statements that begin with a free relative."""
    persons: int = 0
    """Indefinite persons in place of a broker, a client or an operator."""
    figures: int = 0
    """Everyday words in place of the field's terms."""
    short: int = 0
    """Function docstrings of at most `SHORT_WORDS_MAX` words."""
    names: int = 0
    """Test names that begin with a relative or a pronoun, or have a person or figure."""
    words: int = 0

    def __add__(self, other: object) -> Counts:
        assert isinstance(other, Counts)
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def habits(self) -> tuple[int, int, int, int, int]:
        return self[:5]


NOTHING: Final = Counts()


def count_prose(text: str) -> Counts:
    """Count the habits of one docstring, comment or paragraph."""
    plain = _CODE_SPAN.sub("x", text)
    relatives = sum(
        1
        for sentence in _SENTENCE_END.split(plain)
        if sentence and _RELATIVE.match(sentence) and not sentence.rstrip().endswith("?")
    )
    return Counts(
        relatives=relatives,
        persons=len(_PERSON.findall(plain)),
        figures=len(_FIGURE.findall(plain)),
        words=len(_WORD.findall(plain)),
    )


def count_message(text: str) -> Counts:
    """Count the habits of a help text, error or log event, which may begin in lower case."""
    return count_prose(text[:1].upper() + text[1:])


def is_unclear_name(name: str) -> bool:
    """Return whether a test's name hides its subject: `test_<unit>_<condition>_<expected>`."""
    if not name.startswith("test_"):
        return False
    spoken = count_prose(name.replace("_", " "))
    return bool(_NO_SUBJECT.match(name) or spoken.persons or spoken.figures)


def count_markdown(text: str) -> Counts:
    """Count the habits of a Markdown page outside its code blocks."""
    return count_prose(_CODE_BLOCK.sub("", text))


def count_python(source: str, *, is_test: bool = False) -> Counts:
    """Count the habits of a module's docstrings, field descriptions, comments and messages.

    Args:
        is_test: count the names of test functions instead of messages.
    """
    total = NOTHING
    nodes = nodes_of(ast.parse(source))
    for node, text in _descriptions(nodes):
        counts = count_prose(text)
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and counts.words <= SHORT_WORDS_MAX:
            counts = counts._replace(short=1)
        total += counts
    for comment in _comments(source, nodes):
        total += count_prose(comment)
    if is_test:
        return total._replace(names=sum(map(is_unclear_name, _functions(nodes))))
    for message in _messages(nodes):
        total += count_message(message)
    return total


def _functions(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def _messages(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the strings of two words or more in the arguments of calls.

    A value that is formatted into a string is a placeholder in it.
    """
    for node in nodes:
        if not isinstance(node, ast.Call) or _is_pattern(node):
            continue
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            for text in _texts(argument):
                if " " in text.strip():
                    yield text


def _is_pattern(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "compile"


def _texts(node: ast.AST) -> Iterator[str]:
    """Yield the strings in an expression, but for those of the calls inside it."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
        )
    elif not isinstance(node, ast.Call):
        for part in ast.iter_child_nodes(node):
            yield from _texts(part)


def _descriptions(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.AST, str]]:
    """Yield each string that stands alone as a statement, with the node that it describes."""
    for node in nodes:
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for at, statement in enumerate(body):
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                yield node if at == 0 else statement, statement.value.value


def _comments(source: str, nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the comments, a block of consecutive comment lines as one.

    Lines inside strings may look like comments and are left out. A tokenizer would do the same in
    ten times the time.
    """
    quoted = {
        line
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if node.end_lineno != node.lineno
    }
    block: list[str] = []
    for number, line in enumerate(source.splitlines(), start=1):
        found = None if number in quoted or "#" not in line else _COMMENT.search(line)
        if found is None or found[1].startswith(("noqa", "type:", "pragma", "fmt:")):
            if block:
                yield " ".join(block)
            block = []
        else:
            block.append(found[1])
    if block:
        yield " ".join(block)


def count_file(path: Path) -> Counts:
    text = path.read_text()
    if path.suffix == ".md":
        return count_markdown(text)
    return count_python(text, is_test=_is_test(path))


def _is_test(path: Path) -> bool:
    return path.is_relative_to(ROOT / "tests")


def files_of_repository() -> list[str]:
    """Return the Python files and Markdown pages that git tracks, or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return sorted(path for path in listed if (ROOT / path).is_file())


def count_all(paths: Iterable[str]) -> dict[str, Counts]:
    return {path: count_file(ROOT / path) for path in paths}


def read_counts(text: str) -> dict[str, tuple[int, ...]]:
    """Return the listed counts by path.

    Raises: ValueError for a line that is not `PATH RELATIVES PERSONS FIGURES SHORT NAMES`.
    """
    listed = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        path, *numbers = line.split()
        if len(numbers) != len(NOTHING.habits):
            raise ValueError(f"expected PATH and {len(NOTHING.habits)} numbers, got {line!r}")
        listed[path] = tuple(int(number) for number in numbers)
    return listed


def write_counts(counts: Mapping[str, Counts]) -> str:
    """Return the text of the counts file: one line for each file that still has habits."""
    head = (
        "# Habits left in each file: relatives, persons, figures, short docstrings, test names.\n"
        "# Written by `python scripts/prose_counts.py --write`; numbers may only shrink.\n"
    )
    lines = [
        " ".join([path, *map(str, found.habits)])
        for path, found in sorted(counts.items())
        if any(found.habits)
    ]
    return head + "\n".join(lines) + "\n"


def package_of(path: str) -> str:
    return path.split("/", 1)[0] if "/" in path else "."


def table(counts: Mapping[str, Counts]) -> str:
    """Return one line per package: words, and each habit per 1,000 words."""
    by_package: dict[str, Counts] = {}
    for path, found in counts.items():
        package = package_of(path)
        by_package[package] = by_package.get(package, NOTHING) + found
    lines = [
        f"{'package':<12}{'words':>8}{'relatives':>11}{'persons':>9}{'figures':>9}{'short':>7}"
        f"{'names':>7}"
    ]
    total = sum(by_package.values(), NOTHING)
    for name, found in [*sorted(by_package.items()), ("all", total)]:
        per = [1000 * habit / max(found.words, 1) for habit in found.habits[:3]]
        lines.append(
            f"{name:<12}{found.words:>8}{per[0]:>11.2f}{per[1]:>9.2f}{per[2]:>9.2f}{found.short:>7}"
            f"{found.names:>7}"
        )
    return "\n".join(lines)


def shown(path: str) -> Iterator[str]:
    """Yield the sentences and test names of a file that have a habit."""
    text = (ROOT / path).read_text()
    if path.endswith(".md"):
        texts = [_CODE_BLOCK.sub("", text)]
    else:
        nodes = nodes_of(ast.parse(text))
        texts = [*(one for _, one in _descriptions(nodes)), *_comments(text, nodes)]
        if _is_test(ROOT / path):
            yield from filter(is_unclear_name, _functions(nodes))
        else:
            texts += [one[:1].upper() + one[1:] for one in _messages(nodes)]
    for one in texts:
        for sentence in _SENTENCE_END.split(_CODE_SPAN.sub("x", one)):
            if any(count_prose(sentence or "").habits):
                yield " ".join((sentence or "").split())


def main() -> None:
    parser = argparse.ArgumentParser(description="Count habits that make prose hard to read.")
    parser.add_argument("--write", action="store_true", help="write tests/unit/prose_counts.txt")
    parser.add_argument("--show", nargs="+", metavar="PATH", help="print the sentences that count")
    options = parser.parse_args()
    if options.show:
        for path in options.show:
            print(*(f"{path}: {sentence}" for sentence in shown(path)), sep="\n")
        return
    counts = count_all(files_of_repository())
    if options.write:
        COUNTS_FILE.write_text(write_counts(counts))
    print(table(counts))


if __name__ == "__main__":
    end_on_sigterm()
    main()
