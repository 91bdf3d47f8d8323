"""`kraftbox schema`: the JSON Schemas of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kraftbox.cli.output import say, say_lines

if TYPE_CHECKING:
    from pydantic import BaseModel

NAMES = ("testbed", "chaos-schedule", "election-file", "status", "audit-report")


def model_of(name: str) -> type[BaseModel]:
    """Return the pydantic model of one of NAMES."""
    from kraftbox.documents import others
    from kraftbox.documents.testbed import Testbed

    models: dict[str, type[BaseModel]] = {
        "testbed": Testbed,
        "chaos-schedule": others.ChaosSchedule,
        "election-file": others.ElectionFile,
        "status": others.Status,
        "audit-report": others.AuditReport,
    }
    return models[name]


def _name(text: str) -> str:
    if text not in NAMES:
        raise typer.BadParameter(f"invalid document {text!r}; allowed: {', '.join(NAMES)}")
    return text


def schema(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            parser=_name,
            help=f"One of {', '.join(NAMES)}; without it the names are listed.",
        ),
    ] = None,
) -> None:
    """Print the JSON Schema (2020-12) of a document, for editors and validators."""
    import json

    if name is None:
        for one in NAMES:
            say(one)
        return
    say_lines(
        json.dumps(
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                **model_of(name).model_json_schema(),
            },
            indent=2,
        )
    )
