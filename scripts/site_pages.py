"""Generated pages of the site: commands, configuration keys, error codes, Python interfaces.

MkDocs loads this file as a hook (`hooks` in mkdocs.yml, `make docs`). The pages are made from the
program itself at each build, so they cannot become outdated. The home page is README.md; the
repository's other pages of Markdown become pages of the site, too.

A link of a page to a file of the repository that is no page becomes a link to the repository
(KRAFTBOX_HOME, as for `make release`), or plain text without that address.
"""

from __future__ import annotations

import html
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
ROOT_PAGES: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Pages at the top of the repository, and their names on the site."""
DOCS: Final = "docs"
LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
EMPTY_HEADER: Final = re.compile(r"<th( [^>]*)?></th>")
CODE: Final = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Make anchors as GitHub makes them, because pages are read there, too (called by MkDocs)."""
    from pymdownx.slugs import slugify

    config["mdx_configs"].setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the site (called by MkDocs)."""
    from mkdocs.structure.files import File

    for uri, text in generated_pages(ROOT):
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Return a page with links that lead to pages of the site (called by MkDocs)."""
    home = os.environ.get("KRAFTBOX_HOME", "").rstrip("/")
    return site_links(markdown, page.file.src_uri, home, {one.src_uri for one in files})


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    """Return a page's HTML with empty header cells as plain ones (called by MkDocs).

    A screen reader would announce a header without a name.
    """
    return EMPTY_HEADER.sub(r"<td\1></td>", content)


def generated_pages(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the path on the site and the Markdown of each generated page."""
    for name, uri in ROOT_PAGES.items():
        yield uri, (root / name).read_text(encoding="utf-8")
    yield "reference/commands.md", commands_page()
    yield "reference/keys.md", keys_page()
    yield "reference/errors.md", errors_page()
    yield "reference/kraftbox-testing.md", testing_page()
    yield "reference/client.md", client_page()


def site_links(text: str, uri: str, home: str, pages: Iterable[str]) -> str:
    """Return the text of a page with its relative links changed for the site.

    Args:
        text: the page's Markdown; links in code stay.
        uri: the page's path on the site.
        home: the repository's address; empty: links to its other files become plain text.
        pages: the paths of all files of the site.
    """
    known = set(pages)
    source = next((name for name, page in ROOT_PAGES.items() if page == uri), f"{DOCS}/{uri}")

    def changed(link: re.Match[str]) -> str:
        picture, shown, target, anchor = link.groups(default="")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        wanted = ROOT_PAGES.get(path) or posixpath.relpath(path, DOCS)
        if wanted in known or path.startswith(f"{DOCS}/"):
            here = posixpath.relpath(wanted, posixpath.dirname(uri) or ".")
            return f"{picture}[{shown}]({here}{anchor})"
        if not (ROOT / path).exists():
            return link[0]
        return f"[{shown}]({home}/blob/main/{path}{anchor})" if home else shown

    parts = CODE.split(text)
    parts[::2] = [LINK.sub(changed, part) for part in parts[::2]]
    return "".join(parts)


def commands_page() -> str:
    """Return the reference of all commands, made from their parsers."""
    import typer

    from kraftbox.cli.main import LISTED, app, imported
    from kraftbox.cli.man import EXIT_CODES

    root = typer.main.get_command(app)
    lines = ["# Commands", "", f"Exit codes: {EXIT_CODES}", ""]
    lines += ["| command | |", "|---|---|"]
    lines += [
        f"| [`kraftbox {one.name}`](#kraftbox-{one.name}) | {_cell(one.help)} |" for one in LISTED
    ]
    lines += ["", "## kraftbox", "", *_parameters(root, "kraftbox")]
    for listed in LISTED:
        lines += _command(f"kraftbox {listed.name}", imported(listed.name), 2)
    return "\n".join(lines) + "\n"


def _command(name: str, command: Any, level: int) -> Iterator[str]:
    context = command.context_class(command, info_name=name, resilient_parsing=True)
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    yield from ("", f"{'#' * level} {name}", "", "```", usage, "```", "")
    for paragraph in (command.help or "").split("\n\n"):
        yield from (_text(paragraph), "")
    yield from _parameters(command, name)
    examples = (command.epilog or "").partition("Examples:\n")[2].splitlines()
    if examples:
        yield from ("", "```", *(line.strip() for line in examples), "```")
    for sub, inside in getattr(command, "commands", {}).items():
        yield from _command(f"{name} {sub}", inside, level + 1)


def _parameters(command: Any, name: str) -> Iterator[str]:
    context = command.context_class(command, info_name=name, resilient_parsing=True)
    rows = [
        one.get_help_record(context) or (one.name, "")
        for one in command.params
        if not getattr(one, "hidden", False)
    ]
    if rows:
        yield from ("| argument or option | |", "|---|---|")
    for shown, told in rows:
        yield f"| `{_cell(shown, code=True)}` | {_cell(told)} |"


def keys_page() -> str:
    """Return the reference of all configuration keys, by resource."""
    from runtime.config import tables
    from runtime.config.without_effect import WITHOUT_EFFECT

    without = {name for names in WITHOUT_EFFECT.values() for name in names}
    lines = [
        "# All configuration keys",
        "",
        "Names, defaults and allowed values are those of Kafka 4.4, except for `kraftbox.*`.",
        "A node accepts the keys without effect and warns about them; the last section lists them.",
    ]
    for title, keys in (
        ("Nodes", {**tables.NODE_KEYS, **tables.BROKER_DYNAMIC_KEYS}),
        ("Topics", tables.TOPIC_KEYS),
        ("Groups", tables.GROUP_KEYS),
        ("Client metrics", tables.CLIENT_METRICS_KEYS),
        ("Quotas of clients", tables.CLIENT_QUOTA_KEYS),
        ("Quotas of addresses", tables.IP_QUOTA_KEYS),
    ):
        lines += ["", f"## {title}", "", *_keys_table(keys, without)]
    lines += ["", "## Without effect"]
    for reason, names in WITHOUT_EFFECT.items():
        lines += ["", _text(reason) + ":", "", ", ".join(f"`{name}`" for name in sorted(names))]
    return "\n".join(lines) + "\n"


def _keys_table(keys: Mapping[str, Any], without: set[str]) -> Iterator[str]:
    yield from ("| key | type | default | changes while running | |", "|---|---|---|---|---|")
    for name, key in sorted(keys.items()):
        if key.internal or name in without:
            continue
        default = "required" if key.required else _default(key.default)
        cells = (f"`{name}`", key.type.name.lower(), default, key.dynamic.value, _cell(key.doc))
        yield f"| {' | '.join(cells)} |"


def _default(value: object) -> str:
    if value is None or value in ("", []):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{','.join(map(str, value)) if isinstance(value, list) else value}`"


def errors_page() -> str:
    """Return the reference of Kafka's error codes."""
    from protocol.errors import ErrorCode

    lines = [
        "# Error codes",
        "",
        "Every error code of Kafka 4.4 and of Kraftbox. Clients repeat a request after a retriable",
        "error. Most responses have a more exact message than the text below.",
        "",
        "| code | name | retriable | text |",
        "|---|---|---|---|",
    ]
    for code in sorted(ErrorCode):
        retriable = "yes" if code.retriable else "no"
        lines.append(f"| {code.value} | `{code.name}` | {retriable} | {_cell(code.text)} |")
    return "\n".join(lines) + "\n"


def testing_page() -> str:
    """Return the reference of `kraftbox.testing`, for mkdocstrings to fill in."""
    from kraftbox import testing

    modules = {name: getattr(testing, name).__module__ for name in testing.__all__}
    return _interface(
        "kraftbox.testing",
        "The [guide to tests](../testing.md) shows their use. Fixtures of the pytest plugin return"
        " these objects. Everything below is imported from `kraftbox.testing`.",
        [f"kraftbox.testing.{_home(name, modules[name])}" for name in testing.__all__],
    )


def _home(name: str, module: str) -> str:
    """Return the public path of a name below `kraftbox.testing`, for objects that hide theirs."""
    inside = module.removeprefix("kraftbox.testing").removeprefix(".")
    return f"{inside}.{name}" if inside else name


def client_page() -> str:
    """Return the reference of the package `client`, for mkdocstrings to fill in."""
    import client

    return _interface(
        "client",
        "The [guide to the client](../client.md) shows their use. Everything below is imported from"
        " `client`.",
        [f"{client._HOME[name]}.{name}" for name in client.__all__],
    )


def _interface(title: str, intro: str, names: Iterable[str]) -> str:
    blocks = "".join(f"\n::: {name}\n" for name in names)
    return f"# {title}\n\n{intro}\n{blocks}"


def _text(text: str) -> str:
    """Return plain text as Markdown: nothing in it is markup."""
    plain = html.escape(" ".join(text.replace("\b", "").split()), quote=False)
    return re.sub(r"([\\*_\[\]#])", r"\\\1", plain)


def _cell(text: str, *, code: bool = False) -> str:
    """Return text for the cell of a table."""
    plain = " ".join(text.split()) if code else _text(text)
    return plain.replace("|", "\\|")
