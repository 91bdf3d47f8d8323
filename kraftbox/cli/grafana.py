"""`kraftbox grafana`: the dashboards for Grafana."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kraftbox.cli.output import CommandFailed, JsonFlag, say, say_json, say_lines, table
from kraftbox.cli.shipped import dashboards


def grafana(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Dashboard to print; default: list all.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Write all dashboards to this folder."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """List, print or write the Grafana dashboards; import them with a Prometheus data source."""
    if name is not None and out is not None:
        raise typer.BadParameter("give a name or --out, not both", param_hint="--out")
    found = dashboards()
    if name is not None:
        if name not in found:
            raise CommandFailed(f"unknown dashboard {name!r}; known: {', '.join(found)}")
        say_lines(found[name].rstrip("\n"))
        return
    if out is not None:
        _write(found, out)
        return
    titles = {key: str(json.loads(text)["title"]) for key, text in found.items()}
    if as_json:
        say_json([{"name": key, "title": title} for key, title in titles.items()])
        return
    table(("NAME", "TITLE"), titles.items())


def _write(found: dict[str, str], out: Path) -> None:
    """Write the dashboards to a folder and print their paths. Raises CommandFailed."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for key, text in found.items():
            (out / f"{key}.json").write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"--out {out}: {error.strerror}") from None
    for key in found:
        say(str(out / f"{key}.json"))
