"""kafka-leader-election.sh: elect preferred leaders, or any replica where no other is left."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from client.admin import Admin, ElectionType
from client.cluster_client import ClusterClient
from kraftbox.cli.connect import run
from kraftbox.cli.output import CommandFailed, say
from kraftbox.kafka_tools.options import bootstrap_of, parser
from protocol.errors import ErrorCode

TYPES = {"preferred": ElectionType.PREFERRED, "unclean": ElectionType.UNCLEAN}


def main(name: str, arguments: Sequence[str]) -> int:
    options = parser(name, __doc__ or "")
    options.add_argument("--bootstrap-server", required=True)
    options.add_argument("--admin.config", "--command-config", dest="command_config")
    options.add_argument("--election-type", required=True, type=str.lower, choices=sorted(TYPES))
    options.add_argument("--topic")
    options.add_argument("--partition", type=int)
    options.add_argument("--path-to-json-file", metavar="FILE")
    options.add_argument("--all-topic-partitions", action="store_true")
    given = options.parse_args(arguments)
    wanted = partitions_of(given)
    failed = run(bootstrap_of(given), lambda client: _elect(client, given, wanted))
    return 1 if failed else 0


def partitions_of(options: argparse.Namespace) -> dict[str, list[int]] | None:
    """Partitions by topic, None for all of them. Raises CommandFailed."""
    if options.all_topic_partitions:
        return None
    if options.path_to_json_file:
        try:
            with open(options.path_to_json_file, encoding="utf-8") as file:
                entries = json.load(file)["partitions"]
            found: dict[str, list[int]] = {}
            for entry in entries:
                found.setdefault(str(entry["topic"]), []).append(int(entry["partition"]))
            return found
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CommandFailed(f"{options.path_to_json_file}: {error!r}") from None
    if options.topic is None or options.partition is None:
        raise CommandFailed(
            "give --all-topic-partitions, --path-to-json-file, or --topic with --partition"
        )
    return {options.topic: [options.partition]}


async def _elect(
    client: ClusterClient, options: argparse.Namespace, wanted: dict[str, list[int]] | None
) -> bool:
    """Whether something failed."""
    kind = options.election_type
    named = None
    if wanted is not None:
        named = [(topic, index) for topic, indexes in wanted.items() for index in indexes]
    done, had, failed = [], [], []
    for (topic, index), code in (await Admin(client).elect_leaders(TYPES[kind], named)).items():
        name = f"{topic}-{index}"
        if code is ErrorCode.NONE:
            done.append(name)
        elif code is ErrorCode.ELECTION_NOT_NEEDED:
            had.append(name)
        else:
            failed.append(f"{name}: {code.name}")
    if done:
        say(
            f"Successfully completed leader election ({kind.upper()}) for partitions "
            f"{', '.join(done)}"
        )
    if had:
        say(f"Valid replica already elected for partitions {', '.join(had)}")
    for line in failed:
        say(f"Error completing leader election ({kind.upper()}) for partition: {line}")
    return bool(failed)
