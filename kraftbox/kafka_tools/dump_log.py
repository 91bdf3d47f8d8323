"""kafka-dump-log.sh: run `kraftbox dump-log` with Kafka's options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kraftbox.kafka_tools.options import parser

DECODERS = {
    "cluster-metadata-decoder": "metadata",
    "offsets-decoder": "offsets",
    "transaction-log-decoder": "transactions",
}


def main(name: str, arguments: Sequence[str]) -> int:
    from kraftbox.cli.main import main as cli

    options = parser(name, __doc__ or "")
    options.add_argument("--files", required=True, metavar="FILE,...")
    options.add_argument("--print-data-log", action="store_true", help="print records too")
    for decoder in DECODERS:
        options.add_argument(f"--{decoder}", action="store_true")
    for flag in ("deep-iteration", "index-sanity-check"):
        options.add_argument(
            f"--{flag}", action="store_true", help="accepted; this is always the case"
        )
    return 1 if cli(command(options.parse_args(arguments))) else 0


def command(given: argparse.Namespace) -> list[str]:
    """Return the arguments of `kraftbox` for these options."""
    chosen = [kind for one, kind in DECODERS.items() if getattr(given, one.replace("-", "_"))]
    wanted = ["dump-log", *(file for file in given.files.split(",") if file)]
    if chosen:
        return [*wanted, "--decode", chosen[0]]
    return wanted if given.print_data_log else [*wanted, "--batches"]
