"""`kraftbox dump-log`: the content of a log directory's files, of Kraftbox or Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from kraftbox.cli.output import CommandFailed, JsonFlag, progress, say, say_json

Item: TypeAlias = dict[str, Any]


class Decoder(StrEnum):
    """Decoder of record keys and values."""

    AUTO = "auto"
    DATA = "data"
    METADATA = "metadata"
    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"


def dump_log(
    paths: Annotated[
        list[Path], typer.Argument(help="Files or directories of a log.", exists=True)
    ],
    decode: Annotated[
        Decoder,
        typer.Option("--decode", help="How to decode records; default: by the directory's name."),
    ] = Decoder.AUTO,
    batches_only: Annotated[
        bool, typer.Option("--batches", help="Print batch headers without records.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print log segments, indexes, snapshots, checkpoints and the metadata log.

    Directories are read file by file. With --json every batch, record or entry is one line. If a
    file is damaged, the content before the damage is printed and the exit code is 1.
    """
    from kraftbox.cli.log_files import DamagedFile, dump_file, is_known

    damaged = []
    files = list(_files(paths))
    with progress("reading", len(files)) as ticker:
        for path in files:
            if not is_known(path):
                if path in paths:
                    raise CommandFailed(f"{path}: not a file of a log directory")
                continue
            if not as_json:
                say(f"{path}")
            try:
                for item in dump_file(path, decode.value, records=not batches_only):
                    if as_json:
                        say_json({"file": str(path), **item})
                    else:
                        say(_line(item))
            except DamagedFile as error:
                damaged.append(f"{path}: {error}")
            ticker.advance()
    if damaged:
        raise CommandFailed(*damaged)


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(child for child in path.rglob("*") if child.is_file())
        else:
            yield path


def _line(item: Item) -> str:
    """Return `  kind key: value key: value`; records are indented below their batch."""
    kind = item["kind"]
    indent = "    " if kind in ("record", "control") else "  "
    shown = " ".join(
        f"{name}: {value}" for name, value in item.items() if name != "kind" and value is not None
    )
    return f"{indent}{kind} {shown}"
