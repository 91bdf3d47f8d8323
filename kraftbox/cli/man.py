"""`kraftbox man`: manual pages, generated from the commands' parsers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from kraftbox.cli.output import CommandFailed, say, say_lines

SECTION = 1
EXIT_CODES = "0: success. 1: failure. 2: wrong usage. 130: interrupted."


def man(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[COMMAND...]", help="Command to describe; default: kraftbox itself."
        ),
    ] = [],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FOLDER", help="Write the pages of all commands to this folder."
        ),
    ] = None,
) -> None:
    """Print a manual page, or write all of them (show them with `man -l -` and `man -M`)."""
    pages = dict(all_pages())
    if out is None:
        name = "-".join(["kraftbox", *words])
        if name not in pages:
            raise typer.BadParameter(f"unknown command {' '.join(words)!r}; list: kraftbox --help")
        say_lines(pages[name].rstrip("\n"))
        return
    if words:
        raise typer.BadParameter("give a command or --out, not both")
    folder = out / f"man{SECTION}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            (folder / f"{name}.{SECTION}").write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"--out {out}: {error.strerror}") from None
    say(f"wrote {len(pages)} pages to {folder}")


def all_pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page."""
    from kraftbox.cli.main import LISTED, app, imported

    commands = {listed.name: imported(listed.name) for listed in LISTED}
    root = typer.main.get_command(app)
    yield "kraftbox", page(["kraftbox"], root, commands)
    for name, command in commands.items():
        yield from _pages(["kraftbox", name], command)


def _pages(words: Sequence[str], command: Any) -> Iterator[tuple[str, str]]:
    inside = getattr(command, "commands", {})
    yield "-".join(words), page(words, command, inside)
    for name, each in inside.items():
        yield from _pages([*words, name], each)


def page(words: Sequence[str], command: Any, inside: Any) -> str:
    """Return one page as roff."""
    name = "-".join(words)
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    help_text = (command.help or "").strip()
    first, _, rest = help_text.partition("\n\n")
    lines = [
        f'.TH {_text(name.upper())} {SECTION} "" "kraftbox {_version()}" "Kraftbox"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(' '.join(first.split()).rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_text(' '.join(words))}",
        _text(" ".join(_usage(shown, inside))),
    ]
    if rest.strip():
        lines.append(".SH DESCRIPTION")
        for number, paragraph in enumerate(rest.split("\n\n")):
            lines += [*([".PP"] if number else []), _text(" ".join(paragraph.split()))]
    if inside:
        lines.append(".SH COMMANDS")
        for each, found in inside.items():
            lines += [".TP", f".B {_text(each)}", _text(found.get_short_help_str(limit=200))]
    context = command.context_class(command, info_name=" ".join(words), resilient_parsing=True)
    lines += _parameters(
        "ARGUMENTS", context, [one for one in shown if one.param_type_name == "argument"]
    )
    lines += _parameters(
        "OPTIONS", context, [one for one in shown if one.param_type_name == "option"]
    )
    lines += [".SH EXIT STATUS", EXIT_CODES]
    examples = (command.epilog or "").partition("Examples:\n")[2].splitlines()
    if examples:
        lines += [".SH EXAMPLES", ".nf", *(_text(line.strip()) for line in examples), ".fi"]
    return "\n".join(line for line in lines if line) + "\n"


def _usage(shown: Sequence[Any], inside: Any) -> Iterator[str]:
    if any(one.param_type_name == "option" for one in shown):
        yield "[OPTIONS]"
    for one in shown:
        if one.param_type_name == "argument":
            yield str(one.metavar or one.name.upper())
    if inside:
        yield "COMMAND [ARGS]..."


def _parameters(title: str, context: Any, those: Sequence[Any]) -> Iterator[str]:
    """Yield the help of each parameter as a list."""
    if not those:
        return
    yield f".SH {title}"
    for one in those:
        named, text = one.get_help_record(context) or (one.name, "")
        yield from (".TP", f".B {_text(' '.join(named.split()))}", _text(" ".join(text.split())))


def _text(text: str) -> str:
    """Escape text that roff would interpret."""
    safe = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{safe}" if safe[:1] in (".", "'") else safe


def _version() -> str:
    try:
        return metadata.version("kraftbox")
    except metadata.PackageNotFoundError:
        return ""
